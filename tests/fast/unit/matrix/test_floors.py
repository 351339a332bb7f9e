"""The oldest Python of pyproject.toml, and PyTorch, glibc and ROCm of matrix.yaml, in the package."""

from dataclasses import replace

from wheel_builder.matrix.floors import FLOORS, PROJECT, python_floors
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.tables.archs import CHECKOUT

MATRIX = load_matrix(CHECKOUT / "matrix.yaml")
PYPROJECT = PROJECT.read_text(encoding="utf-8")


def test_the_package_has_those_of_the_sources():
    advice = "run .venv/bin/python -m wheel_builder.matrix.floors"
    assert FLOORS.read_text(encoding="utf-8") == python_floors(MATRIX, PYPROJECT), advice


def test_each_comes_from_its_source():
    package = replace(MATRIX.package, torch_floor="2.11", platform_tag="manylinux_2_34_x86_64")
    public = replace(MATRIX.public, runtimes=("7.2",))
    text = python_floors(
        replace(MATRIX, package=package, public=public), PYPROJECT.replace(">=3.10", ">=3.12")
    )
    assert text.splitlines()[-4:] == [
        "PYTHON_FLOOR = (3, 12)",
        "TORCH_FLOOR = (2, 11)",
        "GLIBC_FLOOR = (2, 34)",
        'OLDEST_ROCM = "7.2"',
    ]
