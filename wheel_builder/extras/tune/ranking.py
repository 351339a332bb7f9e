"""Figures of candidates compared: domination, gains over today's rows, and the choice."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

# Figures by the name of a line, such as "fwd causal, port, measured". Larger is better.
Lines = Mapping[str, float]
# A smaller mean gain is not worth a change: the models are further off.
LEAST_GAIN = 0.01
LAUNCH = "launch"


@dataclass(frozen=True)
class Gain:
    """Over today's rows: the mean of the workloads, the worst line and its gain. 0.02 is 2 % faster."""

    mean: float
    worst: float
    line: str

    @property
    def better(self) -> bool:
        """Under all lines, and by enough."""
        return self.worst >= 0 and self.mean >= LEAST_GAIN


def gain_of(lines: Lines, today: Lines) -> Gain:
    """The mean is geometric, with equal weights of workloads. Raises ``KeyError`` for other lines."""
    ratios = {line: lines[line] / figure for line, figure in today.items()}
    worst = min(ratios, key=lambda line: ratios[line])
    return Gain(_mean(ratios) - 1, ratios[worst] - 1, worst)


def _mean(lines: Lines) -> float:
    groups: dict[str, list[float]] = {}
    for line, value in lines.items():
        groups.setdefault(workload_of(line), []).append(math.log(value))
    return math.exp(math.fsum(math.fsum(logs) / len(logs) for logs in groups.values()) / len(groups))


def workload_of(line: str) -> str:
    """Lines of one workload depend on each other: "fwd causal", or "launch" of all launches."""
    return LAUNCH if line.startswith(f"{LAUNCH} ") else line.partition(",")[0]


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
    by_mean = sorted(front, key=lambda name: -_mean(candidates[name]))
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
