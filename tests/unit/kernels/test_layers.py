"""The headers of device code include downwards only, and only one looks at the compiler's macros."""

import re
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[3] / "kernels"
GENERATED = "generated/device"
# A folder's headers include those of their own and of earlier folders.
LAYERS = [
    "device/arch", "device/mma", "device/call", "device/memory", "device/masks", "device/scores",
    "device/forward/parts", "device/forward", "device/cache", "device/backward/parts", "device/backward/dq",
    "device/backward/dkdv", "device/backward",
]  # fmt: skip
HEADERS = sorted((KERNELS / "device").rglob("*.hpp"))
MOST_IN_A_FOLDER = 15


def layer(path):
    return LAYERS.index(path.rpartition("/")[0])


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: str(path.relative_to(KERNELS)))
def test_a_header_includes_no_higher_layer(header):
    own = header.relative_to(KERNELS).as_posix()
    included = re.findall(r'#include "([^"]+)"', header.read_text())
    assert all((KERNELS / path).is_file() for path in included)
    above = [path for path in included if not path.startswith(GENERATED) and layer(path) > layer(own)]
    assert above == []


@pytest.mark.parametrize("folder", ["device", "host", "build", "tables"])
def test_a_folder_has_few_files(folder):
    folders = (each for each in (KERNELS / folder).rglob("*") if each.is_dir())
    files = {each: [file for file in each.iterdir() if file.is_file()] for each in folders}
    assert [each for each, found in files.items() if len(found) > MOST_IN_A_FOLDER] == []


def test_only_current_hpp_looks_at_the_compilers_macros():
    looking = [h.name for h in HEADERS if re.search(r"__gfx\w+__|__amdgcn|__AMDGCN|__HIP", h.read_text())]
    assert looking == ["current.hpp"]


def test_the_rule_would_see_an_upward_include():
    assert layer("device/forward/forward.hpp") > layer("device/masks/mask.hpp") > layer("device/mma/layout.hpp")
    assert layer("device/mma/layout.hpp") > layer("device/arch/gfx.hpp")


LONGEST = 300
CONFIGS = (KERNELS / "device/call/tiles.hpp",)


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: str(path.relative_to(KERNELS)))
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
