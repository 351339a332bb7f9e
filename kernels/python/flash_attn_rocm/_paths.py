"""The names of paths."""

# Generated from kernels/host/calls.toml by wheel_builder/base/generated.py: change it there.
MATRIX = "matrix"
TILED = "tiled"
SPLIT = "split"
REFERENCE = "reference"
SEPARATE = "separate"
FUSED = "fused"
FORWARD = (MATRIX, TILED, SPLIT, REFERENCE)
BACKWARD = (SEPARATE, FUSED)
