"""The oldest Python, PyTorch, glibc and ROCm that the wheel supports."""

# Generated from pyproject.toml and matrix.yaml by `python -m wheel_builder.matrix.floors`; do not edit.
PYTHON_FLOOR = (3, 10)
TORCH_FLOOR = (2, 10)
GLIBC_FLOOR = (2, 28)
OLDEST_ROCM = "6.4"
