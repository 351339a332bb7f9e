"""The names of paths."""

# Generated from kernels/tables/kinds.toml by `python3 -m wheel_builder.tables.generated`; do not edit.
MATRIX = "matrix"
TILED = "tiled"
TALL = "tall"
FP8 = "fp8"
INT8 = "int8"
WIDE = "wide"
UNEVEN = "uneven"
SPLIT = "split"
LATENT = "latent"
REFERENCE = "reference"
SEPARATE = "separate"
FUSED = "fused"
FORWARD = (MATRIX, TILED, TALL, FP8, INT8, WIDE, UNEVEN, SPLIT, LATENT, REFERENCE)
BACKWARD = (SEPARATE, FUSED)
