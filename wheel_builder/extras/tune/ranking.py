"""Figures of candidates compared: domination, gains over today's rows, and the choice."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

# Useful work a clock by the name of a line, such as "512 causal, port". Larger is better.
Lines = Mapping[str, float]
# A smaller mean gain is not worth a change: the models are further off.
LEAST_GAIN = 0.01


@dataclass(frozen=True)
class Gain:
    """Over today's rows: the mean of all lines, the worst line and its gain. 0.02 is 2 % faster."""

    mean: float
    worst: float
    line: str

    @property
    def better(self) -> bool:
        """Under all lines, and by enough."""
        return self.worst >= 0 and self.mean >= LEAST_GAIN


def gain_of(lines: Lines, today: Lines) -> Gain:
    """The mean is geometric. Raises ``KeyError`` for other lines than today's."""
    ratios = {line: lines[line] / figure for line, figure in today.items()}
    worst = min(ratios, key=lambda line: ratios[line])
    mean = math.exp(math.fsum(map(math.log, ratios.values())) / len(ratios))
    return Gain(mean - 1, ratios[worst] - 1, worst)


def dominates(one: Lines, other: Lines) -> bool:
    """Whether ``one`` is as good under every line, and better under some."""
    return all(one[line] >= figure for line, figure in other.items()) and any(
        one[line] > figure for line, figure in other.items()
    )


def dominated(candidates: Mapping[str, Lines]) -> Mapping[str, str]:
    """The dominated candidates, each with its best dominator, which is dominated by none."""
    front = [
        name
        for name, lines in candidates.items()
        if not any(dominates(other, lines) for other in candidates.values())
    ]
    by_mean = sorted(front, key=lambda name: -math.fsum(map(math.log, candidates[name].values())))
    return {
        name: next(each for each in by_mean if dominates(candidates[each], lines))
        for name, lines in candidates.items()
        if name not in front
    }


def ranked(candidates: Mapping[str, Lines], today: str) -> list[str]:
    """The candidates that are better than today's rows and not dominated, by their mean gain."""
    gains = {name: gain_of(lines, candidates[today]) for name, lines in candidates.items()}
    better = [name for name in candidates if gains[name].better and name not in dominated(candidates)]
    return sorted(better, key=lambda name: (-gains[name].mean, name))
