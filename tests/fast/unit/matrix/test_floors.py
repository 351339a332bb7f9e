"""The oldest PyTorch, glibc and ROCm: matrix.yaml states them, the package and its build read them."""

from dataclasses import replace

from wheel_builder.matrix.floors import FLOORS, python_floors
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.tables.archs import CHECKOUT

MATRIX = load_matrix(CHECKOUT / "matrix.yaml")


def test_the_package_has_those_of_the_matrix():
    advice = "run .venv/bin/python -m wheel_builder.matrix.floors"
    assert FLOORS.read_text(encoding="utf-8") == python_floors(MATRIX), advice


def test_each_comes_from_the_matrix():
    package = replace(MATRIX.package, torch_floor="2.11", platform_tag="manylinux_2_34_x86_64")
    public = replace(MATRIX.public, runtimes=("7.2",))
    text = python_floors(replace(MATRIX, package=package, public=public))
    assert text.splitlines()[-3:] == ["TORCH_FLOOR = (2, 11)", "GLIBC_FLOOR = (2, 34)", 'OLDEST_ROCM = "7.2"']
