"""Rows that were better on users' GPUs, as data beside the table of tiles: ``evidence.toml``.

``scripts/wheel-builder report merge`` writes the file, and says what other candidates lack. It follows from
the reports in the tree alone, so the evidence of a row stays when tiles.toml has the row.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from wheel_builder.base.durable import ensure
from wheel_builder.extras.timings import regimes
from wheel_builder.extras.timings.merge import LEAST_MACHINES, Key, Timing, Verdict, verdicts
from wheel_builder.extras.tune.rows import toml_row
from wheel_builder.matrix.tuned.candidates import KERNEL, Settings
from wheel_builder.matrix.tuned.tree import signed_tunings
from wheel_builder.tables.archs import arch_named, known_archs
from wheel_builder.tables.row_ids import row_id, rows_used
from wheel_builder.tables.tiles import TILES, Tile, known_tiles

EVIDENCE = Path("kernels/tables/evidence.toml")
HEAD = """\
# Rows measured on users' GPUs. Written by `scripts/wheel-builder report merge`; do not edit.
#   row, replaces   ids of the rows and of those shipped before
#   tiles           the rows as tiles.toml writes them, for one dtype
#   gain, worst     over those shipped before: geometric mean of all bins, and worst bin. 0.02 is 2 % faster
"""
Ids = Mapping[tuple[str, str], str]  # today's rows, by arch and kernel


def merge(checkout: Path) -> str:
    """Write the evidence of all reports in the tree. Returns what to do, in words."""
    reports = signed_tunings(checkout)
    found = verdicts(reports)
    ensure(checkout / EVIDENCE, text_of(found).encode())
    proposed = regimes.words_of(regimes.proposals(reports.values()))
    return "\n".join(filter(None, [words_of(found, ids_of(each.key for each in found)), proposed]))


def text_of(found: Iterable[Verdict]) -> str:
    """The file."""
    return "\n".join([HEAD.rstrip("\n"), *(line for each in found for line in _merged(each))]) + "\n"


def _merged(verdict: Verdict) -> Iterator[str]:
    if verdict.lacking:
        return
    key = verdict.key
    yield from ("", "[[rows]]", f"arch = {_toml(key.arch)}", f"kernel = {_toml(key.kernel)}")
    yield f"row = {_toml(key.row)}"
    yield f"replaces = {_toml(key.shipped)}"
    yield f"changes = {_toml(verdict.changes)}"
    yield f"gain = {verdict.gain:.4f}"
    yield "tiles = ["
    yield from (f"    {_toml(row)}," for row in tile_rows(key, verdict.settings))
    yield "]"
    yield "reports = ["
    yield from (f"    {_report(each)}," for each in verdict.timings)
    yield "]"


def _report(timing: Timing) -> str:
    given = {"file": timing.file, "device": timing.device, "driver": timing.driver, "wheel": timing.wheel}
    words = ", ".join(f"{name} = {_toml(value)}" for name, value in given.items())
    return f"{{ {words}, bins = {timing.bins}, gain = {timing.gain:.4f}, worst = {timing.worst:.4f} }}"


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # TOML has no surrogates


def tile_rows(key: Key, settings: Sequence[Settings]) -> list[str]:
    """The rows as tiles.toml writes them: one, or one for each loop if they differ."""
    parsed = KERNEL.fullmatch(key.kernel)
    if parsed is None:
        raise ValueError(key.kernel)
    loops = ("",) if len({json.dumps(each) for each in settings}) == 1 else ("plain", "featured")
    rows = []
    for loop, each in zip(loops, settings, strict=False):
        given = {**each, "switches": tuple(each.get("switches", ()))}  # type: ignore[arg-type]
        row = Tile(head_dim=int(parsed["head_dim"]), dtype=parsed["dtype"], loop=loop, **given)  # type: ignore[arg-type]
        rows.append(toml_row(parsed["op"], row))
    return rows


def ids_of(keys: Iterable[Key]) -> Ids:
    """Of today's rows, by today's compiler."""
    return {(key.arch, key.kernel): _id(key) for key in keys if key.arch in known_archs()}


def _id(key: Key) -> str:
    parsed = KERNEL.fullmatch(key.kernel)
    if parsed is None:
        return ""
    op, dtype, head_dim = parsed["op"], parsed["dtype"], int(parsed["head_dim"])
    rows = rows_used(known_tiles(), arch_named(key.arch), op, dtype, head_dim)
    return row_id(key.arch, key.kernel, rows) if rows else ""


def words_of(found: Sequence[Verdict], today: Ids) -> str:
    """What was decided, for a terminal."""
    if not found:
        return (
            "no tuning report is in the tree\n"
            f"  a row needs those of {LEAST_MACHINES} machines: scripts/wheel-builder report add FILE"
        )
    lines: list[str] = []
    for of in dict.fromkeys((each.key.arch, each.key.kernel, each.key.shipped) for each in found):
        own = [each for each in found if (each.key.arch, each.key.kernel, each.key.shipped) == of]
        lines += [
            f"{of[0]} {of[1]}, shipped row {of[2]}",
            *(line for each in own for line in _said(each, today)),
        ]
    return "\n".join(lines)


def _said(verdict: Verdict, today: Ids) -> Iterator[str]:
    key = verdict.key
    yield f"  {key.row} {verdict.gain:+.1%} mean of {len(verdict.timings)}: {verdict.changes}"
    yield from (f"    lacking: {words}" for words in verdict.lacking)
    if not verdict.lacking:
        yield f"    {_next(key, today.get((key.arch, key.kernel), ''))}"


def _next(key: Key, today: str) -> str:
    """What a maintainer does with a merged row."""
    if today == key.row:
        return f"{TILES} has it"
    if today != key.shipped:
        return f"its kernel has other rows by now, {today or 'none'}: tune it again"
    isa = arch_named(key.arch).isa
    also = [arch.name for arch in known_archs().values() if arch.isa == isa and arch.name != key.arch]
    shared = f"; {', '.join(also)} read the same rows" if also else ""
    return f"copy its tiles from {EVIDENCE} to {TILES}: docs/dev/tuning.md{shared}"
