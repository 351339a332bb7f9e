"""Tests of the installed wheel run for any set of archs: a release may be for one."""

import re
from pathlib import Path

import pytest

from wheel_builder.tables.archs import known_archs

FOLDER = Path(__file__).parents[3] / "installed/wheel"
# Calls that run or look up kernels for an arch written into the test.
ASKS = re.compile(r'\b(?:kernels_on|is_supported|HostMemory|plans\.plan|ARCH)\b[^\n]*"(gfx\w+)"')


def named(text):
    """The archs of some wheels that a test's text asks for kernels."""
    return [arch for arch in ASKS.findall(text) if arch in known_archs()]


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.name)
def test_no_test_of_a_wheel_needs_an_arch_that_it_may_lack(path):
    """A release for gfx1030 alone failed in verify: tests ran "kernels of gfx942"."""
    assert named(path.read_text()) == [], f"{path.name}: take archs from tests/installed/wheel/archs.py"


@pytest.mark.parametrize(
    "text", ['kernels_on("gfx942")', 'ARCH = "gfx942"', 'assert is_supported("gfx1030", dtype, 64).ok']
)
def test_an_arch_in_a_test_is_seen(text):
    assert len(named(text)) == 1


def test_an_arch_that_no_wheel_is_built_for_may_be_named():
    assert named('kernels_on("gfx900")') == []
