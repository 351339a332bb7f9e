"""Which candidates are better on users' GPUs, and what the others lack. Pure."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from wheel_builder.matrix.tuned.candidates import Settings
from wheel_builder.matrix.tuned.form import Bin, KernelTuned, TuningReport
from wheel_builder.matrix.tuned.tree import SignedTuning
from wheel_builder.tables.archs import code_of
from wheel_builder.tables.tuning import known_tuning

LEAST_MACHINES = 2
MERGED, BEATEN = "merged", "another one gains more"


@dataclass(frozen=True)
class Timing:
    """A candidate on one machine: mean gain over the shipped rows, and the worst bin. 0.02 is 2 % faster."""

    file: str
    whose: str
    time: str
    device: str
    driver: str
    wheel: str
    gain: float
    worst: float
    worst_bin: str
    bins: int


@dataclass(frozen=True)
class Fault:
    """A candidate that has no times on a machine, and why."""

    device: str
    words: str


@dataclass(frozen=True)
class Key:
    """A candidate of a kernel of one arch, beside the rows that were shipped."""

    arch: str
    kernel: str
    shipped: str
    row: str


@dataclass(frozen=True)
class Verdict:
    """What became of a candidate. ``lacking`` is empty for one that is merged."""

    key: Key
    changes: str
    settings: tuple[Settings, ...]
    timings: tuple[Timing, ...]
    lacking: tuple[str, ...]

    @property
    def gain(self) -> float:
        """The geometric mean of all machines, 0 without any."""
        return mean(1 + each.gain for each in self.timings) - 1 if self.timings else 0.0


def verdicts(reports: Mapping[str, SignedTuning]) -> tuple[Verdict, ...]:
    """All candidates of the reports, by kernel, the best first. At most one of a kernel is merged."""
    timings, faults, first = _by_candidate(reports)
    found = []
    for key, signed in first.items():
        rows = signed.rows[key.kernel][key.row]
        own = tuple(_last_of_each_machine(timings.get(key, [])))
        lacking = tuple(_lacking(own, faults.get(key, [])))
        found.append(Verdict(key, rows.changes, rows.settings, own, lacking))
    return tuple(_one_of_a_kernel(found))


_Found = tuple[dict[Key, list[Timing]], dict[Key, list[Fault]], dict[Key, SignedTuning]]


def _by_candidate(reports: Mapping[str, SignedTuning]) -> _Found:
    timings: dict[Key, list[Timing]] = {}
    faults: dict[Key, list[Fault]] = {}
    first: dict[Key, SignedTuning] = {}
    for file, signed in sorted(reports.items()):
        report = signed.report
        for name, kernel in report.kernels.items():
            for row, tried in kernel.candidates.items():
                key = Key(code_of(report.gfx), name, kernel.shipped, row)
                first.setdefault(key, signed)
                if tried.state == "timed":
                    timings.setdefault(key, []).append(_timing(file, signed, kernel, row))
                else:
                    faults.setdefault(key, []).append(Fault(report.device, f"{tried.state}: {tried.words}"))
    return timings, faults, first


def _timing(file: str, signed: SignedTuning, kernel: KernelTuned, row: str) -> Timing:
    report: TuningReport = signed.report
    gains = [_gain(each, kernel.shipped, row) for each in kernel.bins]
    least = min(gains)
    worst = kernel.bins[gains.index(least)].words
    return Timing(
        file, report.whose, report.time, report.device, report.driver, signed.wheel,
        mean(gains) - 1, least - 1, worst, len(gains),
    )  # fmt: skip


def _gain(each: Bin, shipped: str, row: str) -> float:
    return each.times[shipped].ms / each.times[row].ms


def mean(ratios: Iterable[float]) -> float:
    """Geometric."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(math.fsum(logs) / len(logs))


def _last_of_each_machine(timings: Iterable[Timing]) -> Iterable[Timing]:
    by_time = sorted(timings, key=lambda each: (each.time, each.file))
    return {each.whose: each for each in by_time}.values()


def _lacking(timings: tuple[Timing, ...], faults: Iterable[Fault]) -> Iterator[str]:
    """The rule: two machines gain enough, no bin of any machine loses too much, no fault anywhere."""
    better = known_tuning().better
    yield from (f"{each.device}: {each.words}" for each in faults)
    enough = [each for each in timings if each.gain >= better.least_gain]
    if len(enough) < LEAST_MACHINES:
        said = ", ".join(f"{each.gain:+.1%} on {each.device}" for each in timings) or "no times"
        yield f"{len(enough)} of {LEAST_MACHINES} machines gain {better.least_gain:.0%} or more: {said}"
    for each in timings:
        if 1 + each.worst < 1 / (1 + better.most_loss):
            yield f"{each.worst:+.1%} on {each.device}: {each.worst_bin}"


def _one_of_a_kernel(found: Iterable[Verdict]) -> Iterator[Verdict]:
    """In order. Of several candidates that lack nothing, the best one stays so."""
    taken: set[tuple[str, str, str]] = set()
    for each in sorted(found, key=_order):
        of = each.key.arch, each.key.kernel, each.key.shipped
        if each.lacking or of not in taken:
            yield each
        else:
            yield Verdict(each.key, each.changes, each.settings, each.timings, (BEATEN,))
        taken |= set() if each.lacking else {of}


def _order(each: Verdict) -> tuple[object, ...]:
    key = each.key
    return key.arch, key.kernel, key.shipped, bool(each.lacking), -each.gain, key.row
