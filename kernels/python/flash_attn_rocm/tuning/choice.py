"""Which row wins."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from flash_attn_rocm.values.tuning import LEAST_GAIN, MOST_LOSS

Bins = Sequence[Mapping[str, Any]]


def winner(shipped: str, bins: Bins) -> str:
    """The fastest row by the geometric mean, within the limits of ``values.tuning``. Else the shipped."""
    rows = set.intersection(*(set(each["times"]) for each in bins)) - {shipped} if bins else set()
    good = {row: gain(shipped, row, bins) for row in sorted(rows) if not _loses(shipped, row, bins)}
    best = max(good, key=lambda row: good[row], default=shipped)
    return best if best != shipped and _gains(shipped, best, bins) else shipped


def gain(shipped: str, row: str, bins: Bins) -> float:
    """The shipped row's time divided by a row's: the geometric mean over bins."""
    logs = [math.log(ratio) for ratio in _ratios(shipped, row, bins)]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def _gains(shipped: str, row: str, bins: Bins) -> bool:
    return math.prod(_ratios(shipped, row, bins)) >= (1 + _exact(LEAST_GAIN)) ** len(bins)


def _loses(shipped: str, row: str, bins: Bins) -> bool:
    return any(ratio * (1 + _exact(MOST_LOSS)) <= 1 for ratio in _ratios(shipped, row, bins))


def _ratios(shipped: str, row: str, bins: Bins) -> list[Fraction]:
    every = (each["times"] for each in bins)
    return [_exact(times[shipped]["ms"]) / _exact(times[row]["ms"]) for times in every]


def _exact(value: float) -> Fraction:
    """The decimal number that the report has: as ``report merge`` reads it."""
    return Fraction(repr(value))
