"""Digests of Python code: they ignore words and cover everything else."""

import ast

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.files.pycode import code_digest, readers
from wheel_builder.machine_code.fake_hip.container import CONTROL, SHARED
from wheel_builder.verify import stage as verify
from wheel_builder.verify.numerics import TESTS
from wheel_builder.verify.seen import files_at

PACKAGE = CHECKOUT / "kernels/python/flash_attn_rocm"
COMPLETES = PACKAGE / "arguments/documentation.py"
CODE = '''
"""Module."""

import torch


class Kept:
    """Class."""

    def method(self):
        """Method."""
        return 1  # one


def function(x, y=2):
    """Function."""
    return x + y


async def later():
    """Later."""


@decorated
def read():
    """Read."""
    return "text"


@documented
def public():
    """Public."""
'''
WORDS = {
    "module's docstring": ('"""Module."""', '"""Other."""'),
    "class's docstring": ('"""Class."""', '"""Other\n\n    lines."""'),
    "method's docstring": ('"""Method."""', "'Other'"),
    "function's docstring": ('"""Function."""', 'r"""Other."""'),
    "coroutine's docstring": ('"""Later."""', '"""Other."""'),
    "docstring that is completed": ('"""Public."""', '"""Other."""'),
    "comment": ("# one", "# type: ignore"),
    "new comment": ("import torch", "# noqa\nimport torch"),
    "blank lines": ("import torch\n", "\n\n\nimport torch\n\n\n"),
    "layout": ("return x + y", "return (\n        x\n        + y\n    )"),
    "quotes": ('"text"', "'text'"),
}
CHANGES = {
    "number": ("y=2", "y=2.0"),
    "operator": ("x + y", "x - y"),
    "name": ("def method", "def other"),
    "order": ("import torch\n", ""),
    "string": ('"text"', '"other"'),
    "bytes": ('"text"', 'b"text"'),
    "decorator": ("@decorated", "@other"),
    "another decorator, too": ("@documented", "@other\n@documented"),
    "decorator with arguments": ("@documented", "@documented()"),
    "docstring that a decorator gets": ('"""Read."""', '"""Other."""'),
    "no docstring": ('    """Function."""\n', ""),
    "second string is no docstring": ('"""Function."""\n', '"""Function."""\n    "text"\n'),
    "docstring that is code": ('"""Function."""', 'f"""Function."""'),
    "docstring that pytest reads": ('"""Module."""', '"""PYTEST_DONT_REWRITE"""'),
    "pass instead of a docstring": ('"""Later."""', "pass"),
    "default": ("y=2", "y=None"),
    "indent": ("    return x + y", "    if x:\n        return x + y"),
    "encoding": ('\n"""Module', '# -*- coding: latin-1 -*-\nA = "ä"\n"""Module'),
}


def changed(old, new):
    assert CODE.count(old) == 1, old
    return CODE.replace(old, new).encode()


@pytest.mark.parametrize(("old", "new"), WORDS.values(), ids=WORDS)
def test_words_have_no_part_in_it(old, new):
    assert code_digest(changed(old, new)) == code_digest(CODE.encode())


@pytest.mark.parametrize(("old", "new"), CHANGES.values(), ids=CHANGES)
def test_code_has(old, new):
    assert code_digest(changed(old, new)) != code_digest(CODE.encode())


def test_the_encoding_that_a_file_names_has():
    text = b'A = "\xc3\xa4"\n'
    assert code_digest(b"# coding: latin-1\n" + text) != code_digest(b"# coding: utf-8\n" + text)


@pytest.mark.parametrize("data", [b"def (", b"A = 0x" + b"f" * 5000, b"\xff", b"\0"], ids=repr)
def test_what_cannot_be_read_counts_whole(data):
    """Including a number too long for Python to write out by default."""
    assert code_digest(data) != code_digest(data + b" # comment")


def suite_files():
    """The Python files of the package, and those in the containers of suites with stored results."""
    suites = (TESTS, verify.TESTS, verify.ERROR_TESTS, verify.SHIM, verify.MACHINES, CONTROL, *SHARED)
    paths = [PACKAGE, *(CHECKOUT / path for path in suites)]
    return [file for path in paths for file in files_at(path).values() if file.suffix == ".py"]


@pytest.mark.parametrize(
    "text",
    ["f.__doc__", "getattr(f, '__doc__')", "import inspect\ninspect.getsource(f)",
     "from linecache import getline", "sys._getframe().f_lineno", "import tokenize as t"],
)  # fmt: skip
def test_what_reads_words_is_seen(text):
    assert readers(text.encode())


def test_nothing_whose_result_is_kept_reads_its_own_words():
    """Except for one module, which completes the docstrings of the functions it decorates."""
    found = {file: readers(file.read_bytes()) for file in suite_files()}
    assert {file: names for file, names in found.items() if names} == {COMPLETES: {"__doc__"}}


def decorates(tree, name):
    """Whether a function is used only as a decorator, or inside such a function."""
    decorators = {
        id(part) for node in ast.walk(tree) if hasattr(node, "decorator_list")
        for each in node.decorator_list for part in ast.walk(each)
    }  # fmt: skip
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    within = {id(part): node.name for node in functions for part in ast.walk(node)}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
    return bool(found) and all(
        id(node) in decorators or (id(node) in within and decorates(tree, within[id(node)])) for node in found
    )


def test_docstrings_are_completed_by_decorators_alone():
    """Docstrings are left out of the digest, so code must only show them."""
    checked = set()
    for file in suite_files():
        tree = ast.parse(file.read_bytes())
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module
            and node.module.endswith(COMPLETES.stem) for alias in node.names
        }  # fmt: skip
        for name in imported & {"documented", "complete"}:
            assert decorates(tree, name), (file.name, name)
            checked.add(file.name)
    assert len(checked) == 4


def test_a_function_that_is_called_with_another_is_no_decorator():
    used = "@documented\ndef f(): ...\n"
    assert decorates(ast.parse(used), "documented")
    assert not decorates(ast.parse(used + "documented(g)\n"), "documented")
    assert not decorates(ast.parse(used + "def h():\n    documented(g)\nh()\n"), "documented")
