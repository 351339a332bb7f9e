"""The stub of flash_attn_interface, whose functions return more when they are asked to."""

import ast
import textwrap
from collections.abc import Iterator

ASKED = "return_attn_probs"
WIDTH = 106
HEAD = """# Overloads of each function.  Written by: python3 -m wheel_builder.tables.generated
# fmt: off

from typing import Literal, SupportsFloat, SupportsIndex, overload

from torch import Tensor

from flash_attn_rocm.arguments.normal_form import WindowSize
from flash_attn_rocm.autograd.dispatch import Answer, Three

"""
# What a function returns, by the type of the argument that asks for more.
RETURNS = {"Literal[False]": "Tensor", "Literal[True]": "Three", "bool": "Answer"}


def stub(module: str) -> str:
    """Three overloads of each function in the text of a module."""
    functions = (each for each in ast.parse(module).body if isinstance(each, ast.FunctionDef))
    return HEAD + "\n".join(_overload(each, asked) for each in functions for asked in RETURNS) + "\n"


def _overload(function: ast.FunctionDef, asked: str) -> str:
    parameters = ", ".join(each.replace(" ", "\0") for each in _parameters(function.args, asked))
    lines = textwrap.wrap(f"{parameters},", WIDTH, break_on_hyphens=False)
    text = textwrap.indent("\n".join(lines).replace("\0", " "), "    ")
    return f"@overload\ndef {function.name}(\n{text}\n) -> {RETURNS[asked]}: ..."


def _parameters(arguments: ast.arguments, asked: str) -> Iterator[str]:
    """As in the source; an argument that has to be True is required, and so keyword only."""
    required = asked == "Literal[True]"
    missing = [None] * (len(arguments.args) - len(arguments.defaults))
    for each, default in zip(arguments.args, [*missing, *arguments.defaults], strict=True):
        if each.arg != ASKED:
            yield _parameter(each, default)
        elif required:
            yield from ("*", f"{ASKED}: {asked}")
        else:
            yield f"{ASKED}: {asked} = False"
    if not required:
        yield "*"
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(each, default)


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    assert argument.annotation is not None, "the linter asks for it"
    given = "" if default is None else f" = {ast.unparse(default)}"
    return f"{argument.arg}: {ast.unparse(argument.annotation)}{given}"
