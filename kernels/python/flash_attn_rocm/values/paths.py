"""The names of paths."""

# Generated from kernels/tables/kinds.toml by `python3 -m wheel_builder.tables.generated`; do not edit.
MATRIX = "matrix"
TILED = "tiled"
TALL = "tall"
WIDE = "wide"
UNEVEN = "uneven"
SPLIT = "split"
LATENT = "latent"
REFERENCE = "reference"
SEPARATE = "separate"
FUSED = "fused"
FORWARD = (MATRIX, TILED, TALL, WIDE, UNEVEN, SPLIT, LATENT, REFERENCE)
BACKWARD = (SEPARATE, FUSED)
