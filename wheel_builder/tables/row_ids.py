"""Row ids: short names of the rows that kernels were compiled with.

``explain``, reports from hardware and proposals of ``tune`` name a kernel's rows by them. An id belongs to
one kernel of one arch. It changes with any field of its rows.

No suite's key has the ids (wheel_builder/verify/seen.py). So a changed row of one arch repeats the suites of
that arch only.

Standard library only.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields

from wheel_builder.tables.archs import Arch
from wheel_builder.tables.tiles import DTYPES, FOR, LOOPS, Tile, Tiles, find_row

LENGTH = 8
DEFAULTS = {each.name: each.default for each in fields(Tile) if each.name not in FOR}


def row_id(arch: str, kernel: str, rows: Iterable[Tile]) -> str:
    """The id of a kernel, ``fa_fwd_fp16_d64``, with the rows of its plain and featured loop."""
    return settings_id(arch, kernel, map(settings, rows))


def settings_id(arch: str, kernel: str, rows: Iterable[Mapping[str, object]]) -> str:
    """``row_id`` of rows that are given by their settings."""
    value = [arch, kernel, *rows]
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def settings(row: Tile) -> Mapping[str, object]:
    """The settings of a row that differ from their defaults, without its selectors."""
    found = {name: getattr(row, name) for name, default in DEFAULTS.items() if getattr(row, name) != default}
    return found | {"switches": sorted(row.switches)} if row.switches else found


def rows_used(
    tiles: Tiles, arch: Arch, op: str, dtype: str, head_dim: int, clang: int = 0
) -> tuple[Tile, ...]:
    """The rows of the plain and the featured loop. Empty without any."""
    found = (find_row(tiles, arch, op, dtype, head_dim, loop, clang) for loop in LOOPS)
    return tuple(row for row in found if row is not None)


def name_of(op: str, dtype: str, head_dim: int) -> str:
    """The name of a kernel with a tile."""
    return f"fa_{op}_{dtype}_d{head_dim}"


def ids_json(tiles: Tiles, archs: Mapping[str, Arch]) -> str:
    """The ids for the Python package, by arch and kernel.

    A kernel has a list of pairs: a major version of clang and the id with older ones, at last 0 and the id
    with today's.
    """
    blocks = (
        f' "{arch.name}": {{\n'
        + ",\n".join(f'  "{kernel}": {json.dumps(pairs)}' for kernel, pairs in _ids(tiles, arch))
        + "\n }"
        for arch in archs.values()
    )
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def todays_ids(tiles: Tiles, arch: Arch) -> Mapping[str, str]:
    """The ids of an arch's kernels, with today's compiler."""
    return {kernel: pairs[-1][1] for kernel, pairs in _ids(tiles, arch)}


def _ids(tiles: Tiles, arch: Arch) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    for op, isas in tiles.rows.items():
        rows = isas.get(arch.isa.name, ())
        versions = sorted({row.before_clang for row in rows} - {0})
        for head_dim in dict.fromkeys(row.head_dim for row in rows):
            for dtype in DTYPES:
                if pairs := list(_pairs(tiles, arch, op, dtype, head_dim, versions)):
                    yield name_of(op, dtype, head_dim), pairs


def _pairs(
    tiles: Tiles, arch: Arch, op: str, dtype: str, head_dim: int, versions: Iterable[int]
) -> Iterator[tuple[int, str]]:
    def found(clang: int) -> str:
        rows = rows_used(tiles, arch, op, dtype, head_dim, clang)
        return row_id(arch.name, name_of(op, dtype, head_dim), rows) if rows else ""

    if newest := found(0):
        yield from ((before, older) for before in versions if (older := found(before - 1)) != newest)
        yield 0, newest
