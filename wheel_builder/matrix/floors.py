"""Writes the oldest Python, PyTorch, glibc and ROCm into the Python package.

Run ``.venv/bin/python -m wheel_builder.matrix.floors`` after a change of matrix.yaml or pyproject.toml.
"""

import tomllib
from collections.abc import Mapping
from typing import Any

from wheel_builder.matrix.model import Matrix
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.tables.archs import CHECKOUT

FLOORS = CHECKOUT / "kernels/python/flash_attn_rocm/values/floors.py"
PROJECT = CHECKOUT / "pyproject.toml"


def python_floors(matrix: Matrix, project: str) -> str:
    """The text of the package's module. ``project`` is the text of pyproject.toml."""
    python = oldest_python(tomllib.loads(project)["project"])
    return f'''"""The oldest Python, PyTorch, glibc and ROCm that the wheel supports."""

# Generated from pyproject.toml and matrix.yaml by `python -m wheel_builder.matrix.floors`; do not edit.
PYTHON_FLOOR = {_parts(python)}
TORCH_FLOOR = {_parts(matrix.package.torch_floor)}
GLIBC_FLOOR = {_parts(matrix.package.glibc)}
OLDEST_ROCM = "{matrix.public.oldest}"
'''


def oldest_python(project: Mapping[str, Any]) -> str:
    """Of pyproject.toml's table ``project``."""
    oldest: str = project["requires-python"].removeprefix(">=")
    return oldest


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


if __name__ == "__main__":
    text = python_floors(load_matrix(CHECKOUT / "matrix.yaml"), PROJECT.read_text(encoding="utf-8"))
    FLOORS.write_text(text, encoding="utf-8")
