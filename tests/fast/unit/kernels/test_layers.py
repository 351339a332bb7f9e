"""Device code and the host library include downwards only. One header uses the compiler's macros."""

import re
from collections import Counter
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[4] / "kernels"
# Generated files, in the checkout or (the registry) with the device code.
GENERATED = ("generated/", "registry.inc")
# A folder's files include only files of their own folder and of earlier ones.
LAYERS = [
    "device/arch", "device/mma", "device/call", "device/memory", "device/memory/codes", "device/masks",
    "device/scores", "device/forward/parts", "device/forward", "device/cache", "device/backward/parts",
    "device/backward/dq", "device/backward/dkdv", "device/backward",
    "host/types", "host/registry", "host/arguments", "host/plan", "host/launch", "host/calls", "host/api",
    "bindings",
]  # fmt: skip
# Subfolder for code of one platform. It belongs to its parent folder.
WINDOWS = "/windows"
HEADERS = sorted((KERNELS / "device").rglob("*.hpp"))
FILES = [*HEADERS, *sorted(file for each in ("host", "bindings") for file in (KERNELS / each).rglob("*.*"))]
MOST_IN_A_FOLDER = 15


def layer(path):
    return LAYERS.index(path.rpartition("/")[0].removesuffix(WINDOWS))


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(KERNELS)))
def test_a_file_includes_no_higher_layer(file):
    own = file.relative_to(KERNELS).as_posix()
    included = re.findall(r'#include "([^"]+)"', file.read_text())
    written = [path for path in included if not path.startswith(GENERATED)]
    assert all((KERNELS / path).is_file() for path in written)
    assert [path for path in written if layer(path) > layer(own)] == []


@pytest.mark.parametrize("room", ["bindings", "build", "device", "generated", "host", "tables"])
def test_a_folder_has_few_files(room):
    files = Counter(file.parent for file in (KERNELS / room).rglob("*.*") if file.suffix != ".pyc")
    assert [str(folder) for folder, found in files.items() if found > MOST_IN_A_FOLDER] == []


def test_only_current_hpp_looks_at_the_compilers_macros():
    looking = [h.name for h in HEADERS if re.search(r"__gfx\w+__|__amdgcn|__AMDGCN|__HIP", h.read_text())]
    assert looking == ["current.hpp"]


LONGEST = 300
CONFIGS = (KERNELS / "device/call/tiles.hpp",)


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: str(path.relative_to(KERNELS)))
def test_a_header_stays_short(header):
    assert len(header.read_text().splitlines()) < LONGEST


def unnamed(text):
    """Initialisers without field names, in functions that return a config."""
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
