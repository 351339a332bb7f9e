"""Candidates: today's rows with one, two or three fields changed, the most promising first."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest

from wheel_builder.extras.tune.rows import NONE, Change, Changes, Kernel, Rows, changed, joined
from wheel_builder.extras.tune.rules import STEPS, refusal, steps_of, unit_of
from wheel_builder.tables.archs import Arch
from wheel_builder.tables.tiles import CHOICES, SETS, SWITCHES, Tile

MOST_CHANGES = 3
MOST_ROWS = 128  # of a tile
ROWS = ("keys", "queries")
# How far from today's value.
NEAR = {"waves_per_simd": 2, **dict.fromkeys(STEPS, 2)}
VALUES = {
    "waves": (1, 2, 4, 8, 16),
    "pairs": (1, 2, 4, 8),
    "column_blocks": (0, 1, 2),
    "tiles_at_once": (1, 2),
    "steps_at_once": (0, 1, 2, 4),
    "prefetch": (0, 1, 2, 3),
    "value_lanes": (1, 2, 4, 8),
    "compares_at_once": (1, 2, 4, 8),
}
# These fields change most, so they are tried first.
EARLY = ("waves_per_simd", "schedule", *ROWS, "prefetch", "waves", "pairs", *STEPS)
# Choices of the kernel's features, or of the host's plan.
NEVER = ("slices", "features", "preferred")
# A change without figures: refused alone, and maybe possible with another. Below those that gain.
UNKNOWN_GAIN = -0.02
# Changes that cost more than this share alone are not tried with others.
HOPELESS = -0.1

Gains = Mapping[Changes, float | None]  # log of the mean gain over today's rows; None: refused


def single_changes(kernel: Kernel, arch: Arch, rows: Rows) -> Iterator[Change]:
    """All changes of one field, possible or not, the most promising fields first."""
    own = [name for name in SETS[kernel.op] if name not in NEVER]
    fields = [*(name for name in EARLY if name in own), *(name for name in own if name not in EARLY)]
    for name in fields:
        if name in SWITCHES:
            yield Change(name, name not in rows.plain.switches)
        else:
            today, values = getattr(rows.plain, name), _values(name, kernel, arch, rows.plain)
            yield from (Change(name, each) for each in values if each != today)


def _values(name: str, kernel: Kernel, arch: Arch, row: Tile) -> tuple[int | str, ...]:
    if name == "schedule":
        return CHOICES["schedule"]
    if name in ROWS:
        step = max(unit_of(arch, row).rows, 16)
        return tuple(range(step, MOST_ROWS + 1, step))
    most = {"waves_per_simd": arch.isa.waves_per_simd, **steps_of(kernel, arch)}
    if name in most:
        today = getattr(row, name)
        near = {*range(today - NEAR[name], today + NEAR[name] + 1)}
        ends = {0, most[name]} if name in STEPS else set()
        least = name == "waves_per_simd"
        return tuple(sorted(each for each in near | ends if least <= each <= most[name]))
    return VALUES.get(name, ())


def next_candidates(kernel: Kernel, arch: Arch, rows: Rows, gains: Gains, limit: int) -> list[Changes]:
    """Up to ``limit`` candidates without a gain yet. Empty at the end of the neighbourhood.

    First today's rows, then single changes, then further changes of known candidates by the sum of gains.
    """
    singles = [joined([each]) for each in single_changes(kernel, arch, rows)]

    def untried(candidates: Iterable[Changes]) -> list[Changes]:
        new = (each for each in candidates if each not in gains and _possible(kernel, arch, rows, each))
        return list(islice(new, limit))

    return untried([NONE, *singles]) or untried(_by_promise(singles, gains))


def spread(kernel: Kernel, arch: Arch, rows: Rows) -> list[Changes]:
    """All possible single changes: of each field the one nearest to today's value, then their second ones."""
    by_field: dict[str, list[tuple[Change]]] = {}
    for each in single_changes(kernel, arch, rows):
        if _possible(kernel, arch, rows, (each,)):
            by_field.setdefault(each.field, []).append((each,))
    fields = (sorted(every, key=lambda each: _distance(rows, *each)) for every in by_field.values())
    return [each for each in chain(*zip_longest(*fields)) if each is not None]


def _distance(rows: Rows, change: Change) -> int:
    today = getattr(rows.plain, change.field, 0)
    return abs(change.value - today) if isinstance(change.value, int) and isinstance(today, int) else 0


def combined(kernel: Kernel, arch: Arch, rows: Rows, gains: Gains, limit: int) -> list[Changes]:
    """Up to ``limit`` candidates that join those with gains, by the sums of these."""
    singles: list[Changes] = [each for each in gains if len(each) == 1 and gains[each] is not None]
    new = (each for each in _by_promise(singles, gains) if each not in gains)
    return [*islice((each for each in new if _possible(kernel, arch, rows, each)), limit)]


def _possible(kernel: Kernel, arch: Arch, rows: Rows, changes: Changes) -> bool:
    return not refusal(kernel, arch, changed(rows, changes))


def _by_promise(singles: Sequence[Changes], gains: Gains) -> list[Changes]:
    """Known candidates with one more change, by the sum of their gains, the largest first."""

    def gain(changes: Changes) -> float:
        found = gains.get(changes)
        return UNKNOWN_GAIN * len(changes) if found is None else found

    bases = [each for each in {*gains, *singles} if 0 < len(each) < MOST_CHANGES and gain(each) > HOPELESS]
    promising = [each for each in singles if gain(each) > HOPELESS]
    sums: dict[Changes, float] = {}
    for base in bases:
        fields = {change.field for change in base}
        for [more] in promising:
            if more.field not in fields:
                changes = joined([*base, more])
                sums[changes] = max(sums.get(changes, -1e9), gain(base) + gain((more,)))
    return sorted(sums, key=lambda changes: (-sums[changes], len(changes), str(changes)))
