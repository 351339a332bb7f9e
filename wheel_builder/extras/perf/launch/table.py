"""Launches as text: what share of a launch computes at full speed, by the order of its workgroups."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from wheel_builder.base.words import aligned
from wheel_builder.extras.perf.launch.order import as_numbered, heads_in_turn
from wheel_builder.extras.perf.launch.shapes import Shape, forward_works
from wheel_builder.extras.perf.launch.simulate import Die, Outcome, Speed, simulate

TITLE = """\
Launches, modelled: all workgroups on all compute units and dies, with caches and bandwidth (perf/launch).
Shares of the launch in which the compute units work at the schedule's full speed, by order of workgroups:
grid: their numbers.  1: each die has heads of its own, one after another, as in this project's kernels.
2, 4, ...: so many heads start their blocks in turn, those with the most keys first.
MiB: from memory and from the last cache, for 1 and for the last of them."""
TOGETHER = (1, 2, 4, 8, 16, 32)
HEAD = ("arch", "kernel", "launch", "grid", *map(str, TOGETHER), "MiB", "last cache", "MiB", "last cache")
SHAPES = (
    Shape(1024, 1024, 16, 16, causal=True),
    Shape(2048, 2048, 32, 32, causal=True),
    Shape(4096, 4096, 32, 32, causal=True),
    Shape(8192, 8192, 32, 32, causal=True),
    Shape(8192, 8192, 64, 64, causal=True),
    Shape(16384, 16384, 32, 8, causal=True),
    Shape(2048, 2048, 16, 16, batch=8, causal=True),
    Shape(8192, 8192, 32, 32, causal=True, window=1024),
    Shape(4096, 4096, 32, 32),
)
MIB = 1 << 20


class Played(NamedTuple):
    """A launch in the grid's order, and with so many heads in turn."""

    arch: str
    kernel: str
    shape: Shape
    grid: Outcome
    in_turn: Mapping[int, Outcome]


def launches(arch: str, kernel: str, speed: Speed, die: Die, dies: int, rows: int) -> Iterator[Played]:
    """All shapes for a forward with ``rows`` rows in a workgroup."""
    for shape in SHAPES:
        works = tuple(forward_works(shape, rows))
        found = {
            together: simulate(heads_in_turn(together)(works, dies), speed, die)
            for together in TOGETHER
            if is_whole(shape, dies, together)
        }
        yield Played(arch, kernel, shape, simulate(as_numbered(works, dies), speed, die), found)


def is_whole(shape: Shape, dies: int, together: int) -> bool:
    """Whether each die has whole groups of so many heads of a sequence."""
    return together == 1 or not (shape.heads % together or shape.heads * shape.batch % (together * dies))


def report(rows: Iterable[Played]) -> str:
    """The table."""
    return "\n".join([TITLE, "", *aligned([HEAD, *map(_cells, rows)], left=3), ""])


def _cells(row: Played) -> tuple[str, ...]:
    busy = (f"{row.in_turn[n].busy:.2f}" if n in row.in_turn else "" for n in TOGETHER)
    moved = [row.in_turn[n] for n in (min(row.in_turn), max(row.in_turn))]
    return (
        row.arch,
        row.kernel,
        row.shape.name,
        f"{row.grid.busy:.2f}",
        *busy,
        *(str(size // MIB) for each in moved for size in (each.memory_bytes, each.far_bytes)),
    )
