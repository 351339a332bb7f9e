"""The kernel headers include downwards only, and name gfx archs in one place."""

import re
from pathlib import Path

import pytest

INCLUDE = Path(__file__).parents[2] / "kernels" / "include"
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
    looking = [h.name for h in HEADERS if re.search(r"__gfx\w+__|__AMDGCN|__HIP", h.read_text())]
    assert looking == ["current.hpp"]


def test_only_the_arch_layer_names_archs():
    naming = {h.parent.name for h in HEADERS if re.search(r"gfx\d", re.sub(r"//.*", "", h.read_text()))}
    assert naming == {"arch"}


def test_the_rule_would_see_an_upward_include():
    assert layer("fa/kernel/forward.hpp") > layer("fa/tile/mask.hpp") > layer("fa/mma/layout.hpp")
    assert layer("fa/mma/layout.hpp") > layer("fa/arch/gfx.hpp")
