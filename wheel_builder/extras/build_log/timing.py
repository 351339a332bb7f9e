"""Times of a build: how fast it goes, how long it will still take, how many jobs really ran."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from wheel_builder.extras.build_log.ninja import Span

FEWEST = 4
BLOCKS = 12
# Student's t for an interval of 90 %, by degrees of freedom.
T90 = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81, 1.80)


@dataclass(frozen=True)
class Left:
    """Seconds for the rest: the middle, and a 90 % interval.

    Assumes equal cost of done and remaining steps.
    """

    seconds: float
    low: float
    high: float


def rate(times: Sequence[float]) -> float | None:
    """Steps per second between the first completion and the last."""
    took = times[-1] - times[0] if len(times) > 1 else 0.0
    return (len(times) - 1) / took if took > 0 else None


def left(times: Sequence[float], remaining: int) -> Left | None:
    """Time for ``remaining`` more steps, from the end times of finished ones. None for too few.

    Neighbouring steps have similar costs, so the spread is taken between blocks of steps.
    """
    gaps = [after - before for before, after in pairwise(sorted(times))]
    if len(gaps) < FEWEST or remaining <= 0:
        return None
    blocks = min(BLOCKS, len(gaps) // 2)
    size = len(gaps) / blocks
    edges = [round(size * at) for at in range(blocks + 1)]
    means = [sum(gaps[a:b]) / (b - a) for a, b in pairwise(edges)]
    mean = sum(gaps) / len(gaps)
    spread = sum((one - mean) ** 2 for one in means) / (blocks - 1)
    # The variance of the mean itself, and of the remaining steps around it.
    variance = remaining**2 * spread / blocks + remaining * spread * size
    error = T90[min(blocks - 2, len(T90) - 1)] * math.sqrt(variance)
    middle = remaining * mean
    return Left(middle, max(0.0, middle - error), middle + error)


@dataclass(frozen=True)
class Running:
    """How many jobs ran: on average while any ran, and at most."""

    mean: float
    most: int


def running(spans: Iterable[Span]) -> Running | None:
    """How many of the spans overlap."""
    events = sorted((at, step) for span in spans for at, step in ((span.start, 1), (span.end, -1)))
    busy = area = 0.0
    now = most = 0
    for (at, step), (after, _) in pairwise(events):
        now += step
        most = max(most, now)
        if now:
            busy += after - at
            area += now * (after - at)
    return Running(area / busy, most) if busy else None


def lanes(spans: Sequence[Span]) -> list[int]:
    """For each span, in order, the first free lane at its beginning."""
    ends: list[float] = []
    chosen = [0] * len(spans)
    for at in sorted(range(len(spans)), key=lambda at: spans[at].start):
        free = next((lane for lane, end in enumerate(ends) if end <= spans[at].start), len(ends))
        ends[free : free + 1] = [spans[at].end]
        chosen[at] = free
    return chosen
