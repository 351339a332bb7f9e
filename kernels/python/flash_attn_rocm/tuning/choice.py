"""Which row wins."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from flash_attn_rocm.values.tuning import LEAST_GAIN, MOST_LOSS

Bins = Sequence[Mapping[str, Any]]


def winner(shipped: str, bins: Bins) -> str:
    """The fastest row by the geometric mean, within the limits of ``values.tuning``. Else the shipped."""
    rows = set.intersection(*(set(each["times"]) for each in bins)) - {shipped} if bins else set()
    good = {row: gain(shipped, row, bins) for row in sorted(rows) if not _loses(shipped, row, bins)}
    best = max(good, key=lambda row: good[row], default=shipped)
    return best if good.get(best, 1.0) >= 1.0 + LEAST_GAIN else shipped


def gain(shipped: str, row: str, bins: Bins) -> float:
    """The shipped row's time divided by a row's: the geometric mean over bins."""
    logs = [math.log(_ms(each, shipped) / _ms(each, row)) for each in bins]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def _loses(shipped: str, row: str, bins: Bins) -> bool:
    return any(_ms(each, row) > (1.0 + MOST_LOSS) * _ms(each, shipped) for each in bins)


def _ms(each: Mapping[str, Any], row: str) -> float:
    return float(each["times"][row]["ms"])
