"""The names of paths."""

# Generated from kernels/tables/calls.toml by wheel_builder/tables/generated.py: change it there.
MATRIX = "matrix"
TILED = "tiled"
SPLIT = "split"
REFERENCE = "reference"
TALL = "tall"
WIDE = "wide"
UNEVEN = "uneven"
LATENT = "latent"
SEPARATE = "separate"
FUSED = "fused"
FORWARD = (MATRIX, TILED, SPLIT, REFERENCE, TALL, WIDE, UNEVEN, LATENT)
BACKWARD = (SEPARATE, FUSED)
