"""The public functions have the names, parameters, order and defaults of flash_attn 2.8.

Our keywords follow them. ``signatures.json`` was read from its source distribution. tests/release compares
the two.
"""

import ast
import inspect
import json
from pathlib import Path

import flash_attn_rocm
import pytest

FUNCTIONS = json.loads(Path(__file__).with_name("signatures.json").read_text())["functions"]

# Missing from flash_attn.
DESCALES = [(f"{name}_descale", None) for name in "qkv"]
OURS = {
    "flash_attn_func": [("sink", None), *DESCALES],
    "flash_attn_varlen_func": [("sink", None), ("chunk", 0), *DESCALES],
    "flash_attn_with_kvcache": [("sink", None), *DESCALES],
}


def test_there_are_seven():
    mine = [name for name in flash_attn_rocm.__all__ if name.startswith("flash_attn_")]
    assert sorted(mine) == sorted(FUNCTIONS)
    assert len(mine) == 7


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signature(name):
    all_of_them = inspect.signature(getattr(flash_attn_rocm, name)).parameters.values()
    parameters = [p for p in all_of_them if p.kind is not p.KEYWORD_ONLY]
    ours = [(p.name, p.default) for p in all_of_them if p.kind is p.KEYWORD_ONLY]
    assert ours == OURS.get(name, [("sink", None)])
    wanted = [each.partition("=") for each in FUNCTIONS[name]]
    assert [p.name for p in parameters] == [parameter for parameter, _, _ in wanted]
    assert {p.kind for p in parameters} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    for parameter, (_, given, default) in zip(parameters, wanted, strict=True):
        expected = ast.literal_eval(default) if given else inspect.Parameter.empty
        assert parameter.default == expected
        assert type(parameter.default) is type(expected)
