"""The rooms of the Python package follow a call: each imports only itself and earlier ones."""

import ast
import graphlib
import re

import pytest

from scripts.house import imported
from tests.conftest import CHECKOUT

PACKAGE = CHECKOUT / "kernels/python/flash_attn_rocm"
# Folders, and modules at the top level.
ROOMS = [
    "values", "machine", "library", "diagnosis", "arguments", "pieces", "rewrite", "serving", "reference",
    "interfaces", "canary", "launch", "wrapped", "autograd", "flash_attn_interface", "functions", "raw",
    "quantised", "sdpa", "transformers", "suite", "tools", "tuning", "__init__", "__main__",
]  # fmt: skip
MOST_FILES = 15
WITH_CASES = "suite"


def dotted(path):
    """A module's name, as imports have it: ``flash_attn_rocm.canary`` of canary/__init__.py."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {dotted(path): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


def loaded_by_name(text):
    """Calls in a text that load a module of the package by name instead of an import."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and re.search(r"import_module$|__import__$", ast.unparse(node.func)):
            given = ast.unparse(node)
            if re.search(r"flash_attn_rocm|__name__|__package__|package=|'\.", given):
                yield given


def room(module):
    return (module.split(".")[1:] or ["__init__"])[0]


def upward(own, text):
    """Imports from later rooms in the text of a module of the room ``own``."""
    return [name for name in imported(text, MODULES) if ROOMS.index(room(name)) > ROOMS.index(own)]


def test_every_room_has_its_place():
    assert {room(module) for module in MODULES} == set(ROOMS)


def test_the_page_on_architecture_has_a_row_for_each_folder_in_this_order():
    text = (
        (CHECKOUT / "docs/dev/architecture.md")
        .read_text(encoding="utf-8")
        .partition("## The Python package")[2]
    )
    folders = [room for room in ROOMS if (PACKAGE / room).is_dir()]
    assert re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE) == folders


def test_no_room_is_too_full():
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    full = {folder.name for folder in folders if len(list(folder.glob("*.py"))) > MOST_FILES}
    assert full <= {WITH_CASES}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_no_later_room(module):
    assert upward(room(module), MODULES[module]) == []


def test_no_modules_import_each_other():
    graph = {module: set(imported(text, MODULES)) - {module} for module, text in MODULES.items()}
    assert set(graphlib.TopologicalSorter(graph).static_order()) == set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_nothing_of_the_package_is_loaded_by_name(module):
    assert [*loaded_by_name(MODULES[module])] == []
    assert "sys.path" not in MODULES[module]


@pytest.mark.parametrize(
    "text",
    [
        "from flash_attn_rocm.launch import append",
        "import flash_attn_rocm.tools.plot",
        "from flash_attn_rocm import raw",
    ],
)
def test_the_rule_would_see_an_upward_import(text):
    assert len(upward("canary", f"def f():\n    {text}\n")) == 1
    assert upward("__main__", text) == []


@pytest.mark.parametrize(
    "call",
    [
        'importlib.import_module("flash_attn_rocm.raw")', "import_module(f'{__package__}.support')",
        "__import__('flash_attn_rocm.raw')", "importlib.import_module('.raw', package)",
    ],
)  # fmt: skip
def test_the_rule_would_see_a_module_that_is_loaded_by_name(call):
    assert [*loaded_by_name(f"def f():\n    return {call}\n")]
    assert not [*loaded_by_name("importlib.import_module('transformers')")]
