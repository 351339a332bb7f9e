"""Generates files for C++ and Python from the tables of archs, kinds and tiles and the description of calls.

Run ``python3 -m wheel_builder.tables.generated`` to write them. ``archs.json``, ``kinds.json`` and
``table.toml`` are for kernels/build/instances, independent of wheel_builder. So a change of an unused fact,
such as a GPU's name, rebuilds neither kernels nor wheels.

Standard library only.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from wheel_builder.tables.archs import (
    CHECKOUT,
    cpp_table,
    kernels_archs,
    known_archs,
    known_gpus,
    known_products,
    python_rates,
)
from wheel_builder.tables.call_sources import (
    c_calls,
    cpp_bindings,
    cpp_expected,
    cpp_structs,
    cpp_tensors,
    python_expected,
)
from wheel_builder.tables.calls import known_calls
from wheel_builder.tables.kinds import (
    build_json,
    cpp_kinds,
    cpp_paths,
    known_kinds,
    python_kinds,
    python_paths,
    support_table,
)
from wheel_builder.tables.products import PACKAGED, device_names
from wheel_builder.tables.row_ids import ids_json
from wheel_builder.tables.signatures import stub
from wheel_builder.tables.tiles import cpp_tiles, known_tiles
from wheel_builder.tables.tuning import cpp_tuning, known_tuning, python_tuning

ARCHS = Path("kernels/generated/device/archs.inc")
TILES = Path("kernels/generated/device/tiles")
INSTANCES = Path("kernels/generated/archs.json")
KINDS = Path("kernels/generated/kinds.json")
TABLE = Path("kernels/generated/table.toml")
ROW_IDS = Path("kernels/python/flash_attn_rocm/values/rows.json")
OPS = Path("kernels/generated/device/kinds.inc")
STRUCTS = Path("kernels/generated/device/structs.inc")
C_CALLS = Path("kernels/generated/host/fa_calls.h")
TENSORS = Path("kernels/generated/host/call_tensors.inc")
PATHS = Path("kernels/generated/host/paths.inc")
REGIMES = Path("kernels/generated/host/regimes.inc")
BINDINGS = Path("kernels/generated/host/operators.inc")
EXPECTED = Path("kernels/generated/host/expected.inc")
PYTHON_EXPECTED = Path("kernels/python/flash_attn_rocm/values/expectations.py")
PYTHON_PATHS = Path("kernels/python/flash_attn_rocm/values/paths.py")
INTERFACE = Path("kernels/python/flash_attn_rocm/flash_attn_interface.py")
PYTHON_KINDS = Path("kernels/python/flash_attn_rocm/values/kinds.py")
PYTHON_TUNING = Path("kernels/python/flash_attn_rocm/values/tuning.py")
PYTHON_RATES = Path("kernels/python/flash_attn_rocm/values/rates.py")


def generated() -> Mapping[Path, str]:
    """The texts of the generated files. Raises ``ArchError``, ``TileError``, ``CallError``, ``KindError``,
    ``TuningError``.
    """
    described, kinds = known_calls(), known_kinds()
    products = known_products().values()
    packaged = [each.name for each in products if PACKAGED in device_names(each.elsewhere)]
    return {
        ARCHS: cpp_table(known_gpus()),
        INSTANCES: kernels_archs(known_archs()),
        KINDS: build_json(kinds),
        TABLE: support_table(kinds),
        ROW_IDS: ids_json(known_tiles(), known_archs()),
        OPS: cpp_kinds(kinds),
        **{TILES / name: text for name, text in cpp_tiles(known_tiles()).items()},
        STRUCTS: cpp_structs(described.structs),
        C_CALLS: c_calls(described.calls),
        TENSORS: cpp_tensors(described.calls),
        PATHS: cpp_paths(kinds),
        BINDINGS: cpp_bindings(described.calls, described.makers),
        EXPECTED: cpp_expected(described.expected),
        PYTHON_EXPECTED: python_expected(described.expected),
        PYTHON_PATHS: python_paths(kinds),
        PYTHON_KINDS: python_kinds(kinds),
        REGIMES: cpp_tuning(known_tuning()),
        PYTHON_TUNING: python_tuning(known_tuning()),
        PYTHON_RATES: python_rates(known_gpus(), packaged),
        INTERFACE.with_suffix(".pyi"): stub((CHECKOUT / INTERFACE).read_text(encoding="utf-8")),
    }


def write(checkout: Path = CHECKOUT) -> None:
    """Write changed files and print their names."""
    for name, text in generated().items():
        path = checkout / name
        changed = not path.exists() or path.read_text(encoding="utf-8") != text
        if changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{name}: {'written' if changed else 'nothing to change'}\n")


if __name__ == "__main__":
    write()
