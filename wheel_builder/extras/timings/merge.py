"""Which candidates are better on users' GPUs, and what the others lack. Pure."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from wheel_builder.matrix.tuned.calls import Call, calls_of, words_of
from wheel_builder.matrix.tuned.candidates import Settings
from wheel_builder.matrix.tuned.form import KernelTuned, TuningReport
from wheel_builder.matrix.tuned.tree import SignedTuning
from wheel_builder.tables.archs import code_of
from wheel_builder.tables.tuning import known_tuning

LEAST_MACHINES = 2
MERGED, BEATEN = "merged", "another one gains more"


@dataclass(frozen=True)
class Timing:
    """A candidate on one machine: mean gain over the shipped rows, and the worst bin. 0.02 is 2 % faster.

    Only the calls of tuning.toml count. ``missing``: those without times. ``enough``, ``loses``: whether it
    gains what a row has to, and is too slow in a bin, by exact numbers.
    """

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
    missing: tuple[str, ...]
    enough: bool
    loses: bool


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
                    timings.setdefault(key, []).append(_timing(file, signed, name, row))
                else:
                    faults.setdefault(key, []).append(Fault(report.device, f"{tried.state}: {tried.words}"))
    return timings, faults, first


def _timing(file: str, signed: SignedTuning, name: str, row: str) -> Timing:
    report: TuningReport = signed.report
    better, kernel, calls = known_tuning().better, report.kernels[name], calls_of(name)
    gains = {call: gain for call, gain in _gains(kernel, row) if call in calls}
    missing = tuple(words_of(call) for call in calls if call not in gains)
    ratios, worst = [*gains.values()], min(gains, key=lambda call: gains[call], default=None)
    least = gains[worst] if worst else Fraction(1)
    return Timing(
        file, report.whose, report.time, report.device, report.driver, signed.wheel,
        mean(ratios) - 1, float(least - 1), words_of(worst) if worst else "", len(ratios), missing,
        better.gained(ratios), better.lost(least),
    )  # fmt: skip


def _gains(kernel: KernelTuned, row: str) -> Iterator[tuple[Call, Fraction]]:
    yield from ((each.call, each.speedup(kernel.shipped, row)) for each in kernel.bins)


def mean(ratios: Iterable[Fraction | float]) -> float:
    """Geometric, 1 without any."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(math.fsum(logs) / max(1, len(logs)))


def _last_of_each_machine(timings: Iterable[Timing]) -> Iterable[Timing]:
    by_time = sorted(timings, key=lambda each: (each.time, each.file))
    return {each.whose: each for each in by_time}.values()


def _lacking(timings: tuple[Timing, ...], faults: Iterable[Fault]) -> Iterator[str]:
    """The rule: two machines gain enough, no bin of any machine loses too much, no fault anywhere."""
    better = known_tuning().better
    yield from (f"{each.device}: {each.words}" for each in faults)
    enough = [each for each in timings if each.enough and not each.missing]
    if len(enough) < LEAST_MACHINES:
        said = ", ".join(f"{each.gain:+.1%} on {each.device}" for each in timings) or "no times"
        yield f"{len(enough)} of {LEAST_MACHINES} machines gain {better.least_gain:.0%} or more: {said}"
        yield from (_missing_words(each) for each in timings if each.missing)
    for each in timings:
        if each.loses:
            yield f"{each.worst:+.1%} on {each.device}: {each.worst_bin}"


def _missing_words(timing: Timing) -> str:
    calls = timing.bins + len(timing.missing)
    found = f"expected times of {calls} calls, found {timing.bins} on {timing.device}"
    return f"{found}, and none of {timing.missing[0]}: it is no evidence for a row"


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
