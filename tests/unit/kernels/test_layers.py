"""The kernel headers include downwards only, and only one looks at the compiler's macros."""

import re
from pathlib import Path

import pytest

INCLUDE = Path(__file__).parents[3] / "kernels" / "include"
LAYERS = ["arch", "mma", "tile", "kernel"]
HEADERS = sorted(INCLUDE.rglob("*.hpp"))


def layer(path):
    return LAYERS.index(path.split("/")[1])


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: str(path.relative_to(INCLUDE)))
def test_a_header_includes_no_higher_layer(header):
    own = header.relative_to(INCLUDE).as_posix()
    included = re.findall(r'#include "(fa/[^"]+)"', header.read_text())
    assert all((INCLUDE / path).is_file() for path in included)
    assert [path for path in included if layer(path) > layer(own)] == []


def test_only_current_hpp_looks_at_the_compilers_macros():
    looking = [h.name for h in HEADERS if re.search(r"__gfx\w+__|__amdgcn|__AMDGCN|__HIP", h.read_text())]
    assert looking == ["current.hpp"]


def test_the_rule_would_see_an_upward_include():
    assert layer("fa/kernel/forward.hpp") > layer("fa/tile/mask.hpp") > layer("fa/mma/layout.hpp")
    assert layer("fa/mma/layout.hpp") > layer("fa/arch/gfx.hpp")


LONGEST = 300
CONFIGS = (INCLUDE / "fa/kernel/tiles.hpp",)


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: str(path.relative_to(INCLUDE)))
def test_a_header_stays_short(header):
    assert len(header.read_text().splitlines()) < LONGEST


def unnamed(text):
    """Initialisers of the functions that return a config which do not name the field they set."""
    functions = re.findall(r"^constexpr \w+Config .*?^}$", text, re.MULTILINE | re.DOTALL)
    assert functions
    rows = re.findall(r"(?:return|[(,]) *\{([^{}]+)\}", "\n".join(functions))
    return [entry for row in rows for entry in _entries(row) if not re.match(r"\.\w+ = ", entry)]


def _entries(row):
    parts = re.sub(r"\([^()]*\)", "", row).split(",")
    return [part.strip() for part in parts if part.strip()]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.name)
def test_config_rows_name_their_fields(config):
    assert unnamed(config.read_text()) == []


@pytest.mark.parametrize(
    "row",
    ["return {8, .keys = 16};", "return with_savings({.waves = 8, 32}, saves);"],
)
def test_a_config_row_without_a_name_is_seen(row):
    assert unnamed(CONFIGS[0].read_text() + f"constexpr FwdConfig extra() {{\n  {row}\n}}\n") != []
