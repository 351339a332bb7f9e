"""A checkout with an empty golden file."""

import pytest

from wheel_builder.machine_code.static_checks import golden
from wheel_builder.tables.archs import CHECKOUT, TABLES


@pytest.fixture
def checkout(tmp_path):
    for name, text in (*((table, (CHECKOUT / table).read_text()) for table in TABLES), (golden.GOLDEN, "")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path
