"""The rooms of wheel_builder follow the flow: each imports only itself and earlier ones."""

import re
from pathlib import Path

import pytest

from scripts.house import imported

CHECKOUT = Path(__file__).parents[3]
LAYERS = [
    "base", "tables", "matrix", "files", "images", "build", "audit", "provenance", "index",
    "machine_code.disassembly", "machine_code.emulator", "machine_code.static_checks",
    "machine_code.fake_hip", "verify", "pipeline",
    "extras.perf", "extras.tune", "extras.timings", "extras.build_log", "extras.upstream", "extras.cost",
    "extras.site", "cli",
]  # fmt: skip
MODULES = sorted((CHECKOUT / "wheel_builder").rglob("*.py"))
MOST = 15  # files in one folder


def room(module):
    """The room of a dotted name below wheel_builder. Empty for wheel_builder itself and without a module."""
    parts = module.split(".")[1:]
    return next((name for n in (2, 1) if (name := ".".join(parts[:n])) in LAYERS), "")


def upward(own, text):
    """Imports from later rooms in the text of a module of the room ``own``."""
    names = imported(text, {dotted(path) for path in MODULES})
    return [name for name in names if room(name) and LAYERS.index(room(name)) > LAYERS.index(own)]


def dotted(path):
    parts = path.relative_to(CHECKOUT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_every_module_is_in_a_room():
    elsewhere = {dotted(path) for path in MODULES if not room(dotted(path))}
    outer = {"", ".__main__", ".machine_code", ".extras"}
    assert elsewhere == {f"wheel_builder{name}" for name in outer}
    assert {room(dotted(path)) for path in MODULES} == {"", *LAYERS}


def test_the_map_has_a_row_for_each_in_this_order():
    text = (CHECKOUT / "docs/dev/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `wheel_builder/([\w/]+)/` \|", text, re.MULTILINE)
    assert [row.replace("/", ".") for row in rows] == LAYERS


def test_no_folder_is_full():
    folders = [path for path in (CHECKOUT / "wheel_builder").rglob("*") if path.is_dir()]
    sizes = {path.relative_to(CHECKOUT): sum(file.is_file() for file in path.iterdir()) for path in folders}
    full = {str(path): size for path, size in sizes.items() if size > MOST and path.name != "__pycache__"}
    assert full == {}, "make rooms in it"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_a_module_imports_no_later_room(path):
    if own := room(dotted(path)):
        assert upward(own, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "from wheel_builder.cli.main import main",
        "import wheel_builder.extras.perf.model.bound",
        "from wheel_builder import verify",
        "from wheel_builder.extras import site",
        "from wheel_builder.machine_code.emulator import binding",
    ],
)
def test_the_rule_would_see_an_upward_import(text):
    assert len(upward("index", f"def f():\n    {text}\n")) == 1
    assert upward("cli", text) == []


def test_a_stage_imports_no_extra():
    text = "from wheel_builder.extras.perf import table"
    assert upward("pipeline", text)
    assert upward("verify", text)
