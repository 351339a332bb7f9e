"""A checkout with an empty golden file."""

from pathlib import Path

import pytest

from wheel_builder.static_checks import golden
from wheel_builder.static_checks.matrix_use import TRAITS

TRAITS_TEXT = (Path(__file__).parents[3] / TRAITS).read_text()


@pytest.fixture
def checkout(tmp_path):
    for name, text in ((TRAITS, TRAITS_TEXT), (golden.GOLDEN, "")):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path
