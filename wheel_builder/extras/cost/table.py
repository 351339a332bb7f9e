"""Costs as text: totals by arch, operation, head dim and dtype, and changes.

The share of a row is the saving from removing it.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wheel_builder.base.words import aligned
from wheel_builder.build.budget import Costs, KernelCost

TITLE = """\
What kernels cost.  seconds: CPU-seconds of the compiler; they vary with the machine, their shares hardly.
MiB: the most that one compiler took.  KiB: machine code, the same everywhere.  share: of all; what would go
without the row."""
HEAD = ("kernels", "seconds", "share", "MiB", "KiB", "share")
NAME = re.compile(r"fa_(?P<op>\w+?)_(?P<dtype>fp16|bf16)(?:_d(?P<dim>\d+))?")
SHOWN = 12


@dataclass(frozen=True)
class Row:
    """One kernel for one arch."""

    arch: str
    name: str
    cost: KernelCost

    def part(self, group: str) -> str:
        """Its operation, dtype or head dim ("any" for kernels of every head dim)."""
        found = NAME.fullmatch(self.name)
        return (found[group] if found else self.name) or "any"


AXES: Mapping[str, Callable[[Row], str]] = {
    "arch": lambda row: row.arch,
    "operation": lambda row: row.part("op"),
    "head dim": lambda row: row.part("dim"),
    "dtype": lambda row: row.part("dtype"),
}


def rows_of(archs: Mapping[str, Costs]) -> tuple[Row, ...]:
    return tuple(Row(arch, name, cost) for arch, costs in archs.items() for name, cost in costs.items())


def report(archs: Mapping[str, Costs], phases: Mapping[str, Mapping[str, float]]) -> str:
    """All tables. ``phases`` are measured seconds by phase for each arch."""
    rows = rows_of(archs)
    parts = [TITLE, *(_axis(name, key, rows) for name, key in AXES.items()), _largest(rows)]
    return "\n\n".join([*parts, *([_phases(phases)] if phases else [])]) + "\n"


def _axis(title: str, key: Callable[[Row], str], rows: Sequence[Row]) -> str:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    lines = [(name, *_sums(group, rows)) for name, group in sorted(groups.items(), key=_natural)]
    return "\n".join(aligned([(title, *HEAD), *lines, ("all", *_sums(rows, rows))], left=1))


def _natural(item: tuple[str, object]) -> tuple[int, str]:
    digits = re.sub(r"\D", "", item[0])
    return (int(digits) if digits else 0, item[0])


def _sums(group: Sequence[Row], rows: Sequence[Row]) -> tuple[str, ...]:
    seconds, code = _seconds(group), _bytes(group)
    most = max((row.cost.peak_mib for row in group), default=0)
    shares = (_share(seconds, _seconds(rows)), _share(code, _bytes(rows)))
    return (str(len(group)), f"{seconds:.1f}", shares[0], str(most), f"{code / 1024:.1f}", shares[1])


def _seconds(rows: Sequence[Row]) -> float:
    return sum(row.cost.cpu_seconds for row in rows)


def _bytes(rows: Sequence[Row]) -> int:
    return sum(row.cost.code_bytes for row in rows)


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _largest(rows: Sequence[Row]) -> str:
    largest = sorted(rows, key=lambda row: -row.cost.code_bytes)[:SHOWN]
    lines = [
        (row.arch, row.name, f"{row.cost.cpu_seconds:.2f}", f"{row.cost.code_bytes / 1024:.1f}")
        for row in largest
    ]
    return "\n".join(aligned([("arch", f"largest {len(lines)} kernels", "seconds", "KiB"), *lines], left=2))


def _phases(archs: Mapping[str, Mapping[str, float]]) -> str:
    names = list(dict.fromkeys(name for phases in archs.values() for name in phases))
    lines = []
    for arch, phases in archs.items():
        whole = sum(phases.values())
        lines.append((arch, *(_share(phases.get(name, 0.0), whole) for name in names)))
    return "\n".join(aligned([("compiler phases", *names), *lines], left=1))


def changes(before: Mapping[str, Costs], now: Mapping[str, Costs], name: str) -> str:
    """Kernels added, removed, or with other machine code than in ``name``."""
    lines = list(_changes(before, now))
    head = ("arch", f"kernel, against {name}", "KiB before", "KiB now", "times")
    return (
        "\n".join(aligned([head, *lines], left=2)) + "\n"
        if lines
        else f"no kernel has changed against {name}\n"
    )


def _changes(before: Mapping[str, Costs], now: Mapping[str, Costs]) -> Iterator[tuple[str, ...]]:
    for arch in now:
        old, new = before.get(arch, {}), now[arch]
        for kernel in sorted(old.keys() | new.keys()):
            was, is_ = old.get(kernel), new.get(kernel)
            if was is None or is_ is None:
                cells = (_kib(was), _kib(is_), "new" if was is None else "gone")
                yield (arch, kernel, *cells)
            elif was.code_bytes != is_.code_bytes:
                yield (arch, kernel, _kib(was), _kib(is_), f"{is_.code_bytes / was.code_bytes:.2f}")


def _kib(cost: KernelCost | None) -> str:
    return f"{cost.code_bytes / 1024:.1f}" if cost else "-"
