"""How each kernel divides its work: the rows of ``kernels/tables/tiles.toml``, whose head explains them.

Standard library only.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import TileError
from wheel_builder.tables.archs import CHECKOUT, Arch, Isa, known_archs
from wheel_builder.tables.kinds import BACKWARD, MANY_QUERIES, PACKED, answering, known_kinds
from wheel_builder.tables.rows import read_row, read_tables

TILES = Path("kernels/tables/tiles.toml")
DTYPES = ("fp16", "bf16")
LOOPS = ("plain", "featured")


@dataclass(frozen=True)
class Tile:
    """One row: its selectors, then its settings. Empty and 0 mean both loops, both dtypes, any."""

    head_dim: int
    waves_per_simd: int
    loop: str = ""
    dtype: str = ""
    vgprs: int = 0
    before_clang: int = 0
    waves: int = 0
    pairs: int = 0
    column_blocks: int = 0
    keys: int = 0
    queries: int = 0
    query_steps: int = 0
    own_steps: int = 0
    q_steps: int = 0
    dout_steps: int = 0
    schedule: str = ""
    steps_at_once: int = 0
    prefetch: int = 0
    value_lanes: int = 1
    slices: int = 1
    tiles_at_once: int = 1
    compares_at_once: int = 1
    switches: tuple[str, ...] = ()


FOR = ("head_dim", "loop", "dtype", "vgprs", "before_clang")
# The fields that rows of each ``tile`` of kinds.toml set. Those of ``SWITCHES`` are switches of a row.
FORWARD = (
    *("waves", "keys", "waves_per_simd", "query_steps", "schedule", "steps_at_once", "prefetch"),
    *("value_lanes", "compares_at_once", "padded_tiles", "dual_issue", "scalar_scale"),
    *("identity_shortcuts", "buffer_stores", "half_stores", "short_prologue"),
    *("out_first", "plain_exponents", "two_sums"),
)
BY_KEYS = (
    *("pairs", "queries", "waves_per_simd", "column_blocks", "own_steps", "steps_at_once", "padded_tiles"),
    *("prefetch", "overlaid", "early_rows", "ping_pong", "row_major", "early_operands", "kept_zeros"),
    *("kept_priority", "bit_masks", "by_element", "staggered", "tiles_at_once"),
)
BY_QUERIES = (
    *("waves", "keys", "waves_per_simd", "q_steps", "dout_steps", "steps_at_once", "padded_tiles"),
    *("prefetch", "early_rows", "interleaved", "short_prologue", "row_major", "late_numbers", "direct"),
)
FIELDS = {"forward": FORWARD, "dkdv": BY_KEYS, "dq": BY_QUERIES}
SETS: Mapping[str, tuple[str, ...]] = {
    op: (*(kind.only or FIELDS[kind.tile]), *kind.also) for op, kind in known_kinds().items() if kind.tile
}
# The fields that kernels/host reads, itself or by a tile function of kernels/device/call.
HOST = (
    *("waves", "keys", "waves_per_simd", "slices", "column_blocks", "pairs", "features", "preferred"),
    *("narrow_steps", "schedule"),  # which give a step's columns
)
SWITCHES = (
    *("padded_tiles", "dual_issue", "scalar_scale", "identity_shortcuts", "buffer_stores", "half_stores"),
    *("overlaid", "early_rows", "ping_pong", "early_operands", "early_numbers", "kept_zeros", "bit_masks"),
    *(
        "kept_priority",
        "by_element",
        "tight_registers",
        "features",
        "preferred",
        "interleaved",
        "short_prologue",
    ),
    *("row_major", "early_mask", "out_first", "plain_exponents", "two_sums", "staggered"),
    *("late_numbers", "direct", "mask_loops", "late_mask", "narrow_steps"),
)
CHOICES = {
    "loop": LOOPS,
    "dtype": DTYPES,
    "schedule": (
        *("two_stages", "one_stage", "pipelined", "two_tiles", "two_tiles_in_turn"),
        *("direct", "direct_slots", "eager", "slots_in_turn", "own_keys"),
    ),
    "switches": SWITCHES,
}
# Switches, and the fields required with each.
WITH = {
    "interleaved": ("prefetch",),
    "early_operands": ("ping_pong", "prefetch"),
    **dict.fromkeys(("early_numbers", "kept_zeros", "kept_priority", "tight_registers"), ("ping_pong",)),
    "staggered": ("ping_pong", "row_major", "prefetch"),
    "late_numbers": ("interleaved",),
    "direct": ("row_major",),
}
# Fields required in every row.
NEEDED = ("waves", "pairs", "keys", "queries", "schedule", "slices")
# Of a step with narrow_steps: NarrowLayout of mma/layout.hpp. With own_keys a lane of gfx906 has all columns.
NARROW_COLUMNS = {"mfma": 16, "dot2": 4, "dot2_64": 8}
OWN_KEYS_COLUMNS = {**NARROW_COLUMNS, "dot2_64": 4}
BACKWARDS = answering(known_kinds(), BACKWARD)  # the kernel of each path
FUSED = BACKWARDS["fused"]
HEAD = """\
// Generated from kernels/tables/tiles.toml by `python3 -m wheel_builder.tables.generated`; do not edit.
"""
ROWS_HEAD = f"""\
{HEAD}\
// FA_TILE(isa, dtype, head_dim, loop, VGPRs of a SIMD and lane, 0 for any, fields of the config)
// A device pass reads the rows of its own ISA only, with FA_SEES_<isa> of archs.inc: a sixth less time.
"""
WORKGROUPS_HEAD = f"""\
{HEAD}\
// FA_WORKGROUP(kernel, rows, threads): of kernels that are the same for every ISA and head dim
// FA_FUSED_HEAD_DIM(head_dim): of {FUSED}, by ISA. Likewise FA_SEPARATE_HEAD_DIM
"""


@dataclass(frozen=True)
class Workgroup:
    """Rows (queries, keys or packed rows) and threads of one workgroup."""

    rows: int
    threads: int


@dataclass(frozen=True)
class Tiles:
    """The table: kernel -> ISA -> rows, the first match counts. Also the kernels with built-in tiles."""

    rows: Mapping[str, Mapping[str, tuple[Tile, ...]]]
    workgroups: Mapping[str, Workgroup]


@cache
def known_tiles() -> Tiles:
    """The checkout's rows. Raises ``TileError`` for an unreadable table."""
    isas = {arch.isa.name for arch in known_archs().values()}
    return parse_tiles((CHECKOUT / TILES).read_text(encoding="utf-8"), isas)


def tile_of(arch: Arch, kernel: str, dtype: str, head_dim: int, loop: str = "plain") -> Tile:
    """The row used by today's compiler. Raises ``TileError`` for a missing row."""
    row = find_row(known_tiles(), arch, kernel, dtype, head_dim, loop)
    if row is None:
        title = f"no tile for {kernel} of {arch.name}, {dtype}, head dim {head_dim}, {loop} loop"
        raise TileError(title, [], advice=f"add a row to {TILES}")
    return row


def find_row(
    tiles: Tiles, arch: Arch, kernel: str, dtype: str, head_dim: int, loop: str, clang: int = 0
) -> Tile | None:
    """The first matching row, as in C++. ``clang``: the compiler's major version, 0 for today's."""
    for row in tiles.rows.get(kernel, {}).get(arch.isa.name, ()):
        fits = row.dtype in ("", dtype) and row.loop in ("", loop) and row.vgprs in (0, arch.vgprs)
        compiled = not row.before_clang or 0 < clang < row.before_clang
        if row.head_dim == head_dim and fits and compiled:
            return row
    return None


def tall_tiles(arch: Arch) -> tuple[Tile, ...]:
    """The rows of kernels with tall workgroups, present for a few archs."""
    [op] = (op for op, kind in known_kinds().items() if kind.rows == MANY_QUERIES)
    return known_tiles().rows[op].get(arch.isa.name, ())


def workgroup_of(arch: Arch, kernel: str, dtype: str, head_dim: int) -> Workgroup:
    """The workgroup launched by the host (``forward_tile`` and others in C++). Raises ``TileError``.

    A wave has the columns of a matrix step, a pair of waves the columns of all its blocks. All waves of
    packed rows share the same columns.
    """
    if kernel in known_tiles().workgroups:
        return known_tiles().workgroups[kernel]
    return workgroup_of_row(arch.isa, kernel, tile_of(arch, kernel, dtype, head_dim))


def workgroup_of_row(isa: Isa, kernel: str, tile: Tile) -> Workgroup:
    """As ``workgroup_of``, of any row of a kernel."""
    columns = tile.pairs * max(tile.column_blocks, 1) or tile.waves // tile.slices
    if known_kinds()[kernel].rows == PACKED:
        columns = max(tile.column_blocks, 1)
    return Workgroup(columns * columns_of_step(isa, tile), waves_of(tile) * isa.wave)


def waves_of(tile: Tile) -> int:
    """Waves of a workgroup."""
    return 2 * tile.pairs or tile.waves


def columns_of_step(isa: Isa, tile: Tile) -> int:
    """Columns of a matrix step of a row's kernel."""
    if "narrow_steps" not in tile.switches:
        return isa.step_columns
    return (OWN_KEYS_COLUMNS if tile.schedule == "own_keys" else NARROW_COLUMNS)[isa.unit]


def parse_tiles(text: str, isas: set[str]) -> Tiles:
    """The rows of a text.

    Raises ``TileError`` with all problems: an unknown kernel, ISA or field, a field unknown to the kernel, a
    missing required field, a switch without effect, a row hidden by an earlier one.
    """
    problems: list[str] = []
    found: dict[str, dict[str, tuple[Tile, ...]]] = {}
    tables_of = dict(read_tables(text, TILES.name, problems))
    workgroups = {
        kernel: read_row(Workgroup, row, f"{TILES.name}: workgroups.{kernel}", problems, {})
        for kernel, row in tables_of.pop("workgroups", {}).items()
    }
    for kernel, tables in tables_of.items():
        if kernel not in SETS:
            problems.append(f"{TILES.name}: no kernel {kernel}; known: {', '.join(SETS)}")
            continue
        for isa, rows in tables.items():
            where = f"{TILES.name}: {kernel}.{isa}"
            if isa not in isas:
                problems.append(f"{where}: no such ISA; known: {', '.join(sorted(isas))}")
            every = _own_and_taken(tables, rows, where, problems)
            found.setdefault(kernel, {})[isa] = _rows(kernel, every, where, problems)
    if problems:
        title = "the table of tiles cannot be read"
        raise TileError(title, problems, advice=f"the head of {TILES.name} says what its fields are")
    return Tiles(found, workgroups)


def _own_and_taken(tables: Mapping[str, Any], rows: Any, where: str, problems: list[str]) -> Any:  # noqa: ANN401
    """The rows of an ISA derived from another: its own rows, then the other's up to a head dim."""
    if isinstance(rows, str):
        rows = {"like": rows, "rows": []}
    if not isinstance(rows, dict):
        return rows
    own, taken = rows.get("rows"), tables.get(str(rows.get("like")))
    most = rows.get("up_to", math.inf)
    if {*rows} - {"up_to"} != {"like", "rows"} or not isinstance(own, list) or not isinstance(taken, list):
        problems.append(f"{where}: expected a list, or the ISA of a list to take: like, rows")
        return []
    replaced = [_place(row) for row in own]
    taken = [row for row in taken if not isinstance(row, dict) or row.get("head_dim", 0) <= most]
    return [*own, *(row for row in taken if _place(row) not in replaced)]


def _place(row: Any) -> tuple[Any, ...]:  # noqa: ANN401
    return tuple(row.get(name) for name in FOR) if isinstance(row, dict) else (row,)


def _rows(kernel: str, rows: Any, where: str, problems: list[str]) -> tuple[Tile, ...]:  # noqa: ANN401
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        problems.append(f"{where}: expected a list of rows")
        return ()
    found: list[Tile] = []
    for number, row in enumerate(rows, start=1):
        place = f"{where}: row {number}"
        tile = read_row(Tile, row, place, problems, CHOICES)
        if tile is not None:
            problems += [f"{place}: {problem}" for problem in _problems(kernel, row, tile, found)]
            found.append(tile)
    return tuple(found)


def _problems(kernel: str, row: Mapping[str, Any], tile: Tile, before: Sequence[Tile]) -> Iterator[str]:
    sets = SETS[kernel]
    given = [name for name in row if name not in (*FOR, "switches")]
    yield from (f"{kernel} has no {name}" for name in (*given, *tile.switches) if name not in sets)
    yield from (f"no {name}" for name in NEEDED if name in sets and name not in row)
    yield from (
        f"{switch} without {other}"
        for switch, others in WITH.items()
        for other in others
        if switch in tile.switches and not (other in tile.switches or row.get(other))
    )
    if {"ping_pong", "early_rows"} <= {*tile.switches}:
        yield "ping_pong and early_rows: choose one loop"
    for other in before:
        same = other.head_dim == tile.head_dim and other.vgprs in (0, tile.vgprs)
        same = same and other.dtype in ("", tile.dtype) and other.loop in ("", tile.loop)
        if same and other.before_clang in (0, tile.before_clang):
            yield "another row before it is for the same"
            return


def cpp_tiles(tiles: Tiles) -> Mapping[str, str]:
    """The texts of the files of rows by name: one file per struct for the host, and one file per head dim.

    A kernel's translation unit includes its head dim's file only. A changed row recompiles only its head dim.
    The host's rows have what the host reads, so tuning leaves its machine code as it is.
    """
    of_tile: dict[str, list[str]] = {}
    for kernel in tiles.rows:
        of_tile.setdefault(known_kinds()[kernel].tile, []).append(kernel)
    found = {"workgroups.inc": _cpp_workgroups(tiles)}
    for tile, kernels in of_tile.items():
        rows = (_cpp_rows(each, _plain(tiles.rows[each]), host=True) for each in kernels)
        found[f"host/{tile}.inc"] = ROWS_HEAD + "".join(rows)
    for kernel, isas in tiles.rows.items():
        for head_dim in sorted({row.head_dim for rows in isas.values() for row in rows}):
            own = {isa: [row for row in rows if row.head_dim == head_dim] for isa, rows in isas.items()}
            found[file_of(kernel, head_dim)] = cpp_head_dim(kernel, own)
    return found


def _plain(isas: Mapping[str, Sequence[Tile]]) -> Mapping[str, Sequence[Tile]]:
    """The rows of the plain loop. The featured loop has the same workgroups."""
    return {
        isa: [replace(row, loop="plain") for row in rows if row.loop != "featured"]
        for isa, rows in isas.items()
    }


def cpp_head_dim(kernel: str, isas: Mapping[str, Sequence[Tile]]) -> str:
    """The text of a file of rows with one head dim."""
    return ROWS_HEAD + _cpp_rows(kernel, isas)


def file_of(kernel: str, head_dim: int) -> str:
    """The name of the file of rows that a kernel's translation unit includes."""
    return f"{kernel}/d{head_dim}.inc"


def _cpp_rows(kernel: str, isas: Mapping[str, Sequence[Tile]], *, host: bool = False) -> str:
    names = [name for name in SETS[kernel] if not host or name in HOST]
    blocks = (_block(isa, "".join(_lines(isa, row, names) for row in rows)) for isa, rows in isas.items())
    return f"if (op == Op::{kernel}) {{\n{''.join(blocks)}}}\n"


def _cpp_workgroups(tiles: Tiles) -> str:
    fixed = "".join(
        f"FA_WORKGROUP({kernel.removeprefix('bwd_').capitalize()}, {each.rows}, {each.threads})\n"
        for kernel, each in tiles.workgroups.items()
    )
    head_dims = "".join(
        _cpp_head_dims(f"FA_{path.upper()}_HEAD_DIM", tiles.rows.get(BACKWARDS[path], {}))
        for path in ("fused", "separate")
    )
    return f"{WORKGROUPS_HEAD}#ifdef FA_WORKGROUP\n{fixed}#endif\n{head_dims}"


def _cpp_head_dims(macro: str, isas: Mapping[str, Sequence[Tile]]) -> str:
    blocks = (
        _block(isa, "".join(f"{macro}({each})\n" for each in dict.fromkeys(row.head_dim for row in rows)))
        for isa, rows in isas.items()
    )
    return f"#ifdef {macro}\n{''.join(blocks)}#endif\n"


def _block(isa: str, lines: str) -> str:
    return f"#ifdef FA_SEES_{isa}\n{lines}#endif\n" if lines else ""


def _lines(isa: str, row: Tile, names: Iterable[str]) -> str:
    sets = ", ".join(f".{name} = {_cpp(row, name)}" for name in names if _differs(row, name))
    dtype, loop = row.dtype or "any_dtype", row.loop or "any_loop"
    line = f"FA_TILE({isa}, {dtype}, {row.head_dim}, {loop}, {row.vgprs}, {sets})\n"
    if not row.before_clang:
        return line
    return f"#if defined(__clang_major__) && __clang_major__ < {row.before_clang}\n{line}#endif\n"


def _differs(row: Tile, name: str) -> bool:
    """Whether a row differs from C++'s default."""
    if name in SWITCHES:
        return name in row.switches
    return bool(getattr(row, name) != Tile.__dataclass_fields__[name].default)


def _cpp(row: Tile, name: str) -> str:
    if name in SWITCHES:
        return "true"
    return f"Schedule::{row.schedule}" if name == "schedule" else str(getattr(row, name))
