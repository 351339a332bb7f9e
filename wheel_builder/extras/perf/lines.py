"""The accepted figures under disputed rates, ``figures/disputed.csv``: forwards of fp16 with 512 keys."""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from wheel_builder.extras.perf.golden import FIGURES
from wheel_builder.extras.perf.measure import Modelled

LINES = FIGURES / "disputed.csv"
PLAIN = "plain"


class Figure(NamedTuple):
    """Useful FLOP a clock and compute unit under a line of ``model/disputed.py``, or ``PLAIN``."""

    arch: str
    kernel: str
    line: str
    flop: int


def figures_of(rows: Iterable[Modelled]) -> Iterator[Figure]:
    """Under the worst order of LDS phases, as all accepted figures."""
    for row in rows:
        name = f"{row.op} {row.dtype} d{row.head_dim}"
        lines = {PLAIN: [charged.schedule for charged in row.charged]}
        for line in row.charged[0].disputed:
            lines[line] = [charged.disputed[line] for charged in row.charged]
        for line, schedules in lines.items():
            slowest = max(schedule.clocks_per_workgroup for schedule in schedules)
            yield Figure(row.arch, name, line, round(row.flop / slowest))


def to_text(figures: Iterable[Figure]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([Figure._fields, *figures])
    return file.getvalue()


def parse_lines(text: str) -> tuple[Figure, ...]:
    rows = csv.DictReader(io.StringIO(text))
    return tuple(Figure(row["arch"], row["kernel"], row["line"], int(row["flop"])) for row in rows)
