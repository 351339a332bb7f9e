"""Searches whose results are in the repository, ``searches.csv``: figures of each kernel before and after."""

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from wheel_builder.extras.tune.proposal import Search, chosen
from wheel_builder.extras.tune.ranking import Lines
from wheel_builder.extras.tune.rows import NONE, words_of

SEARCHES = Path("wheel_builder/extras/tune/searches.csv")
SCHEDULE = "schedule"


class Line(NamedTuple):
    """A workload of a search. ``changes``: of the chosen rows, empty for today's, and ``gain`` their mean.

    ``before``, ``after``: useful FLOP a clock and compute unit by the schedule, under the worst order of LDS
    phases.
    """

    arch: str
    kernel: str
    candidates: int
    refused: int
    changes: str
    gain: float
    workload: str
    before: int
    after: int


def lines_of(search: Search) -> Iterator[Line]:
    """The workloads of a search, before and after its choice."""
    choice, outcomes = chosen(search), search.outcomes
    gain, found, today = search.gain(choice), outcomes[choice].figures, outcomes[NONE].figures
    if not (gain and found and today):
        return
    for workload, before in _schedules(today.lines).items():
        yield Line(
            search.kernel.arch,
            search.kernel.name,
            len(outcomes) - 1,
            sum(each.refused != "" for each in outcomes.values()),
            "" if choice == NONE else words_of(choice),
            round(gain.mean, 4),
            workload,
            round(before),
            round(_schedules(found.lines)[workload]),
        )


def _schedules(lines: Lines) -> dict[str, float]:
    """By workload, the worst."""
    found: dict[str, float] = {}
    for line, figure in lines.items():
        workload, _, rest = line.partition(", ")
        if rest.startswith(f"{SCHEDULE}, "):
            found[workload] = min(figure, found.get(workload, figure))
    return found


def recorded(text: str, lines: Iterable[Line]) -> str:
    """The file with these lines in place of earlier ones of the same kernels."""
    new = [*lines]
    kernels = {(line.arch, line.kernel) for line in new}
    kept = [line for line in parse_searches(text) if (line.arch, line.kernel) not in kernels]
    return to_text(sorted([*kept, *new], key=lambda line: (line.arch, line.kernel)))


def to_text(lines: Iterable[Line]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([Line._fields, *lines])
    return file.getvalue()


def parse_searches(text: str) -> tuple[Line, ...]:
    """The lines of ``to_text``."""
    numbers = {name: kind for name, kind in Line.__annotations__.items() if kind is not str}
    return tuple(
        Line(**{name: numbers.get(name, str)(value) for name, value in row.items()})
        for row in csv.DictReader(io.StringIO(text))
    )
