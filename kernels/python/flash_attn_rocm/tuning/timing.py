"""Times of several rows of one kernel, in turn, so that a drift of the clocks meets all of them."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from flash_attn_rocm.tools import this_machine
from flash_attn_rocm.tuning.bins import Call

WARM = 2  # calls after each change of the row
SAMPLE, MOST_CALLS = 0.01, 100  # seconds of a sample, and its calls at most
RUNS = 8  # samples of a row
Clock = Callable[[Call, torch.device], float]


class Times(NamedTuple):
    """Milliseconds of a call: the median, and the least and most of ``runs`` samples."""

    ms: float
    least: float
    most: float
    runs: int


def sample(call: Call, where: torch.device) -> float:
    """Seconds of a call: the mean of calls one after another."""
    once = _together(call, where, 1)
    count = min(MOST_CALLS, max(1, int(SAMPLE / max(once, 1e-9))))
    return _together(call, where, count) if count > 1 else once


def _together(call: Call, where: torch.device, count: int) -> float:
    this_machine.synchronize(where)
    begin = time.perf_counter()
    for _ in range(count):
        call()
    this_machine.synchronize(where)
    return (time.perf_counter() - begin) / count


def compared(
    rows: Sequence[str],
    use: Callable[[str], None],
    call: Call,
    where: torch.device,
    *,
    runs: int = RUNS,
    clock: Clock = sample,
) -> dict[str, Times]:
    """Times of each row, in the order A B B A. ``use`` puts a row in place."""
    found: dict[str, list[float]] = {row: [] for row in rows}
    for turn in range(runs):
        for row in rows if turn % 2 == 0 else tuple(reversed(rows)):
            use(row)
            for _ in range(WARM):
                call()
            found[row].append(1e3 * clock(call, where))
    return {row: times_of(samples) for row, samples in found.items()}


def times_of(samples: Sequence[float]) -> Times:
    """The samples, in milliseconds, in short."""
    return Times(statistics.median(samples), min(samples), max(samples), len(samples))


def median_of(call: Call, where: torch.device, *, runs: int) -> float:
    """The median milliseconds of a call, after warm-up."""
    for _ in range(WARM):
        call()
    return statistics.median(1e3 * sample(call, where) for _ in range(runs))
