"""Writes the oldest PyTorch, glibc and ROCm of matrix.yaml into the Python package.

Run ``.venv/bin/python -m wheel_builder.matrix.floors`` after a change of matrix.yaml.
"""

from wheel_builder.matrix.model import Matrix
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.tables.archs import CHECKOUT

FLOORS = CHECKOUT / "kernels/python/flash_attn_rocm/values/floors.py"


def python_floors(matrix: Matrix) -> str:
    """The text of the package's module."""
    torch, glibc = (
        tuple(map(int, version.split("."))) for version in (matrix.package.torch_floor, matrix.package.glibc)
    )
    return f'''"""The oldest PyTorch, glibc and ROCm that the wheel supports."""

# Generated from matrix.yaml by `.venv/bin/python -m wheel_builder.matrix.floors`; do not edit.
TORCH_FLOOR = {torch}
GLIBC_FLOOR = {glibc}
OLDEST_ROCM = "{matrix.public.oldest}"
'''


if __name__ == "__main__":
    FLOORS.write_text(python_floors(load_matrix(CHECKOUT / "matrix.yaml")), encoding="utf-8")
