"""The generated files read by kernels match the tables."""

import pytest

from wheel_builder.tables.archs import CHECKOUT
from wheel_builder.tables.generated import generated, write


@pytest.mark.parametrize("name", generated())
def test_the_tree_has_what_is_generated_from_the_tables(name):
    wrong = "run: python3 -m wheel_builder.tables.generated"
    assert (CHECKOUT / name).read_text() == generated()[name], wrong


def test_generating_says_what_it_did(tmp_path, capsys):
    write(tmp_path)
    write(tmp_path)
    written = [f"{name}: written" for name in generated()]
    unchanged = [f"{name}: nothing to change" for name in generated()]
    assert capsys.readouterr().out.splitlines() == [*written, *unchanged]
    assert {name: (tmp_path / name).read_text() for name in generated()} == generated()
