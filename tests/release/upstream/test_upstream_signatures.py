"""The signatures in the wheel's tests match the published source distribution."""

import ast
import json

import pytest

from tests.conftest import CHECKOUT
from tests.tools.sdist import file_of_sdist
from wheel_builder.matrix.reading import load_matrix

TABLE = CHECKOUT / "tests/installed/wheel/interface/signatures.json"


def signatures(source):
    """``name`` or ``name=default`` of every parameter of the public functions in the text of the module."""
    functions = [each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef)]
    return {each.name: parameters(each.args) for each in functions if each.name.startswith("flash_attn_")}


def parameters(arguments):
    assert not [*arguments.posonlyargs, *arguments.kwonlyargs]
    assert arguments.vararg is arguments.kwarg is None
    required = len(arguments.args) - len(arguments.defaults)
    defaults = [""] * required + [f"={ast.unparse(default)}" for default in arguments.defaults]
    return [each.arg + default for each, default in zip(arguments.args, defaults, strict=True)]


@pytest.fixture
def published(context):
    """The module of upstream's source distribution."""
    return file_of_sdist("flash_attn/flash_attn_interface.py", context).decode()


@pytest.mark.full
def test_the_table_is_what_was_published(published):
    found = json.loads(TABLE.read_text())
    assert found["flash_attn"] == load_matrix(CHECKOUT / "matrix.yaml").upstream.version
    assert found["functions"] == signatures(published)
