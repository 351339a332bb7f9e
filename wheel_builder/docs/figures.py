"""The modelled figures that tests hold the kernels to: tests/perf/golden as data."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from wheel_builder.base.errors import DocsError
from wheel_builder.perf.table import HEAD

COLUMN = "schedule share"  # the column before the figures of the schedule
GAP = re.compile(r" {2,}")


@dataclass(frozen=True)
class Figure:
    """``flop`` are useful ones per clock and compute unit by the schedule; ``maker`` is without its tile."""

    arch: str
    kernel: str
    maker: str
    phases: str
    flop: int


def figures(name: str, text: str) -> tuple[Figure, ...]:
    """The rows of the first table; raises ``DocsError`` when there is none."""
    lines = text.splitlines()
    head = next((at for at, line in enumerate(lines) if line.startswith(HEAD[0]) and COLUMN in line), None)
    try:
        found = tuple(_rows(lines, head)) if head is not None else ()
    except ValueError:
        found = ()
    if not found:
        title = "the modelled figures cannot be read"
        problem = f"{name}: expected a table that begins with {HEAD[0]!r} and has figures below {COLUMN!r}"
        raise DocsError(title, [problem], advice="write them anew: scripts/test --full tests/perf --update")
    return found


def under_the_worse_order(found: Iterable[Figure]) -> dict[tuple[str, str, str], int]:
    """FLOP by arch, kernel and maker, under the order of LDS phases that is worse for it."""
    worst: dict[tuple[str, str, str], int] = {}
    for each in found:
        key = (each.arch, each.kernel, each.maker)
        worst[key] = min(each.flop, worst.get(key, each.flop))
    return worst


def _rows(lines: list[str], head: int) -> Iterator[Figure]:
    # Columns are aligned, and empty cells are only spaces: a column's right edge tells a figure's column.
    end = lines[head].index(COLUMN) + len(COLUMN)
    edge = lines[head].index("FLOP", end) + len("FLOP")
    for line in lines[head + 1 :]:
        if not line:
            return
        arch, kernel, maker, phases, *_ = GAP.split(line)
        flop = line[:edge].split()[-1]
        yield Figure(arch, kernel, maker.partition(",")[0], phases, int(flop))
