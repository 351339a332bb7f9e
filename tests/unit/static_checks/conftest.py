"""A checkout with an empty golden file."""

import pytest

from wheel_builder.base.archs import CHECKOUT, TABLE
from wheel_builder.static_checks import golden


@pytest.fixture
def checkout(tmp_path):
    for name, text in ((TABLE, (CHECKOUT / TABLE).read_text()), (golden.GOLDEN, "")):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path
