"""The packages of wheel_builder are the flow, and each imports only itself and those before it."""

import ast
import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
LAYERS = [
    "base", "matrix", "files", "images", "build", "audit", "provenance", "index", "emulator", "static_checks",
    "fake_hip", "verify", "perf", "build_log", "cost",
    "upstream", "docs", "pipeline", "cli",
]  # fmt: skip
MODULES = sorted((CHECKOUT / "wheel_builder").rglob("*.py"))


def package(module):
    """The package of a dotted name below wheel_builder; empty for wheel_builder itself."""
    return [*module.split("."), ""][1]


def imported(text):
    """The dotted names below wheel_builder that a module's text imports, wherever in it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module == "wheel_builder":
            yield from (f"wheel_builder.{name.name}" for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def upward(own, text):
    """What the text of a module in the package ``own`` imports from packages after it."""
    names = [name for name in imported(text) if name.split(".")[0] == "wheel_builder" and package(name)]
    return [name for name in names if LAYERS.index(package(name)) > LAYERS.index(own)]


def test_every_package_has_its_place():
    found = {path.parent.relative_to(CHECKOUT / "wheel_builder").parts[:1] for path in MODULES}
    assert found == {(), *((name,) for name in LAYERS)}


def test_the_map_has_a_row_for_each_in_this_order():
    text = (CHECKOUT / "docs/dev/architecture.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `wheel_builder/(\w+)/` \|", text, re.MULTILINE) == LAYERS


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_a_module_imports_no_later_package(path):
    name = ".".join(path.relative_to(CHECKOUT).with_suffix("").parts)
    if package(name) not in ("__init__", "__main__"):
        assert upward(package(name), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "from wheel_builder.cli.main import main",
        "import wheel_builder.extras.perf.model.bound",
        "from wheel_builder import verify",
    ],
)
def test_the_rule_would_see_an_upward_import(text):
    assert len(upward("index", f"def f():\n    {text}\n")) == 1
    assert upward("cli", text) == []
