"""The oldest PyTorch, glibc and ROCm that the wheel supports."""

# Generated from matrix.yaml by `.venv/bin/python -m wheel_builder.matrix.floors`; do not edit.
TORCH_FLOOR = (2, 10)
GLIBC_FLOOR = (2, 28)
OLDEST_ROCM = "6.4"
