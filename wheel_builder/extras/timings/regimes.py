"""Which kernels a regime of forward calls takes, by users' reports: rows for tuning.toml.

Reports time the usual forward and the one with tall workgroups in the same calls. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from wheel_builder.extras.timings.merge import LEAST_MACHINES, mean
from wheel_builder.matrix.tuned.calls import Call, calls_of
from wheel_builder.matrix.tuned.form import Bin, KernelTuned
from wheel_builder.matrix.tuned.tree import SignedTuning
from wheel_builder.tables.archs import code_of
from wheel_builder.tables.tuning import TUNING, Better, Tuning, choice_of, exact, known_tuning, regime_of

TALL, WHOLE = "tall", "whole"
OPS = {WHOLE: "fa_fwd_", TALL: "fa_fwd_tall_"}


@dataclass(frozen=True)
class Place:
    """Calls of one regime on one arch, by the ids of the rows that were shipped for both kernels."""

    arch: str
    regime: str
    dtype: str
    head_dim: int
    shipped: tuple[str, str]


@dataclass(frozen=True)
class Compared:
    """Times of the usual kernels over those of tall ones on a machine, one for each call."""

    device: str
    ratios: tuple[Fraction, ...]


@dataclass(frozen=True)
class Proposal:
    """Other kernels for a regime, and their mean gain on each machine."""

    place: Place
    kernels: str
    gains: tuple[tuple[str, float], ...]


def proposals(reports: Iterable[SignedTuning], rules: Tuning | None = None) -> tuple[Proposal, ...]:
    """Where other kernels than the table's are better, by the rule for rows."""
    rules = rules or known_tuning()
    found: dict[Place, dict[str, Compared]] = {}
    for signed in sorted(reports, key=lambda each: each.report.time):  # the last one of a machine counts
        for place, compared in _compared(signed, rules):
            found.setdefault(place, {})[signed.report.whose] = compared
    return tuple(each for place, machines in found.items() for each in _proposed(place, machines, rules))


def _compared(signed: SignedTuning, rules: Tuning) -> Iterator[tuple[Place, Compared]]:
    report = signed.report
    for name, usual in report.kernels.items():
        tall = report.kernels.get(name.replace(OPS[WHOLE], OPS[TALL], 1))
        if name.startswith(OPS[TALL]) or not name.startswith(OPS[WHOLE]) or tall is None:
            continue
        gains, ids = _gains(usual, tall), (usual.shipped, tall.shipped)
        for regime, calls in _by_regime(calls_of(name), rules).items():
            if gains.keys() >= {*calls}:  # a report without some of its calls says nothing about a regime
                place = Place(code_of(report.gfx), regime, calls[0].dtype, calls[0].head_dim, ids)
                yield place, Compared(report.device, tuple(gains[call] for call in calls))


def _gains(usual: KernelTuned, tall: KernelTuned) -> Mapping[Call, Fraction]:
    others: Mapping[Call, Bin] = {each.call: each for each in tall.bins}
    return {
        each.call: exact(each.times[usual.shipped].ms) / exact(others[each.call].times[tall.shipped].ms)
        for each in usual.bins
        if each.call in others
    }


def _by_regime(calls: Iterable[Call], rules: Tuning) -> Mapping[str, list[Call]]:
    found: dict[str, list[Call]] = {}
    for call in calls:
        regime = regime_of(rules, call.length, call.length, call.width, causal=call.causal)
        found.setdefault(regime, []).append(call)
    return found


def _proposed(place: Place, machines: Mapping[str, Compared], rules: Tuning) -> Iterator[Proposal]:
    today = choice_of(rules, place.regime, place.arch, place.dtype, place.head_dim).kernels
    for kernels, power in ((TALL, 1), (WHOLE, -1)) if today in OPS else ():  # no report has the others
        gains = [[ratio**power for ratio in each.ratios] for each in machines.values()]
        if kernels != today and _better(gains, rules.better):
            devices = (each.device for each in machines.values())
            means = tuple((device, mean(own) - 1) for device, own in zip(devices, gains, strict=True))
            yield Proposal(place, kernels, means)


def _better(machines: Sequence[Sequence[Fraction]], better: Better) -> bool:
    """The rule of ``merge``, for calls of one regime."""
    enough = sum(better.gained(each) for each in machines)
    return enough >= LEAST_MACHINES and not any(better.lost(ratio) for each in machines for ratio in each)


def words_of(found: Iterable[Proposal]) -> str:
    """What a maintainer does with them."""
    return "\n".join(line for each in found for line in _lines(each))


def _lines(each: Proposal) -> Iterator[str]:
    place, gains = each.place, ", ".join(f"{gain:+.1%} on {device}" for device, gain in each.gains)
    what = f"{place.arch} {place.dtype} d{place.head_dim}, regime {place.regime}"
    yield f"{what}: {each.kernels} is better: {gains}"
    yield f"  put this before the other choices of {TUNING}:"
    yield "    [[choices]]"
    yield f'    kernels = "{each.kernels}"'
    for name in ("regimes", "archs", "dtypes"):
        yield f'    {name} = ["{getattr(place, name.removesuffix("s"))}"]'
    yield f"    head_dims = [{place.head_dim}]"
    yield f'    evidence = "{len(each.gains)} reports"'
