"""The figures of launches: as accepted, as a printed table, and what they say of the backward's paths."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from wheel_builder.base.words import aligned
from wheel_builder.extras.perf.launch.calls import backward, decode, forward, planned_parts, taller
from wheel_builder.extras.perf.launch.kernels import Kernel, Kernels, dies_of
from wheel_builder.extras.perf.launch.shapes import Shape, packed
from wheel_builder.tables.archs import arch_named

TITLE = """\
Launches on {product} ({arch}), modelled, not measured: all workgroups on all compute units and dies, with
caches and bandwidth (perf/launch), in microseconds. busy: the share of the launch in which the compute units
work at the schedule's full speed. turn: heads start their blocks in turn, those with the most rows first, and
a backward's heads stay on a die. worst: additions leave their die, or take twice as long on GPUs with one.
"""
FORWARD, BACKWARD, DECODE, ROWS = "forward", "backward", "decode", "rows"
MIXED = (4096, 128, 2048, 512, 1024, 256, 3072, 128, 512, 1536, 256, 128, 768, 2560, 384, 640)
FORWARDS = (
    Shape(1024, 1024, 16, 16, causal=True),
    Shape(2048, 2048, 32, 32, causal=True),
    Shape(4096, 4096, 32, 32, causal=True),
    Shape(8192, 8192, 32, 32, causal=True),
    Shape(8192, 8192, 64, 64, causal=True),
    Shape(2048, 2048, 16, 16, batch=8, causal=True),
    Shape(8192, 8192, 32, 8, causal=True, window=1024),
    packed(MIXED, 16),
    Shape(4096, 4096, 24, 24),
)
BACKWARDS = (
    Shape(1024, 1024, 16, 16, causal=True),
    Shape(2048, 2048, 32, 32, causal=True),
    Shape(4096, 4096, 32, 32, causal=True),
    Shape(8192, 8192, 32, 32, causal=True),
    packed(MIXED, 16),
    Shape(4096, 4096, 24, 24),
    Shape(8192, 8192, 32, 32),
)
DECODES = (
    Shape(1, 8192, 32, 8),
    Shape(1, 32768, 32, 8),
    Shape(1, 8192, 32, 8, batch=16),
    Shape(1, 2048, 32, 8, batch=64),
)
PARTS = (1, 2, 4, 8, 16, 32, 64, 128)
NARROW = (Shape(4096, 4096, 24, 24), Shape(2048, 2048, 32, 32), Shape(2048, 2048, 32, 32, causal=True))
TALLER = {"256 rows": 2, "384 rows": 3}
DIMS = (64, 128)
DTYPE = "fp16"
ROWS_OF_ONE_DIE = 1 << 17  # of all heads: longer launches on one die differ little
MIB = 1 << 20
RATIO, WORST = "fused / separate", "worst fused / separate"
LONG = 2048  # keys, from which on the choice between the paths counts


class Row(NamedTuple):
    """The figures of a call: ``table`` is ``FORWARD`` or the like, ``kernel`` "fp16 d64"."""

    table: str
    kernel: str
    launch: str
    figures: Mapping[str, str]


def rows_of(arch: str, kernels: Kernels) -> Iterator[Row]:
    """All figures of an arch."""
    for table, shapes, figures in (
        (FORWARD, FORWARDS, _forward),
        (BACKWARD, BACKWARDS, _backward),
        (DECODE, DECODES, _decode),
        (ROWS, NARROW, _rows),
    ):
        for dim in DIMS:
            for shape in shapes_on(arch, shapes):
                what = f"{DTYPE} d{dim}"
                found = figures(arch, kernels, what, shape)
                if found:
                    yield Row(table, what, shape.name, found)


def shapes_on(arch: str, shapes: Sequence[Shape]) -> Sequence[Shape]:
    """Those with a size that the arch's GPUs are used for."""
    if dies_of(arch_named(arch)) > 1:
        return shapes
    return [
        each for each in shapes if each.queries * each.heads * each.batch <= ROWS_OF_ONE_DIE or each.lengths
    ]


def to_text(rows: Iterable[Row]) -> str:
    """The accepted figures: a line each."""
    file = io.StringIO()
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(("table", "kernel", "launch", "figure", "value"))
    for row in rows:
        lines.writerows((*row[:3], name, value) for name, value in row.figures.items())
    return file.getvalue()


def parse_rows(text: str) -> tuple[Row, ...]:
    """The rows of ``to_text``."""
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for line in csv.DictReader(io.StringIO(text)):
        row = line["table"], line["kernel"], line["launch"]
        found.setdefault(row, {})[line["figure"]] = line["value"]
    return tuple(Row(*key, figures) for key, figures in found.items())


def report(arch: str, kernels: Kernels) -> str:
    """All tables of an arch."""
    rows = [*rows_of(arch, kernels)]
    title = TITLE.format(product=arch_named(arch).model.name, arch=arch).rstrip()
    tables = (["\n".join(aligned(table, left=2))] for table in _tables(rows))
    return "\n\n".join([title, *(text for table in tables for text in table)]) + "\n"


def _tables(rows: Sequence[Row]) -> Iterator[list[tuple[str, ...]]]:
    for name in dict.fromkeys(row.table for row in rows):
        own = [row for row in rows if row.table == name]
        columns = dict.fromkeys(column for row in own for column in row.figures)
        head = (name, "launch", *columns)
        yield [
            head,
            *((row.kernel, row.launch, *(row.figures.get(each, "") for each in columns)) for row in own),
        ]


def fused_wins(arch: str, rows: Iterable[Row], kernel: str) -> bool:
    """Whether the fused backward is the faster one for all long calls, in turn.

    On a GPU of several dies also if additions leave their die: AMD's published rates agree with that, and
    nothing is published of additions that stay.
    """
    column = WORST if dies_of(arch_named(arch)) > 1 else RATIO
    ratios = [
        float(row.figures[column])
        for row in rows
        if (row.table, row.kernel) == (BACKWARD, kernel) and column in row.figures and _is_long(row)
    ]
    return bool(ratios) and min(ratios) >= 1


def _is_long(row: Row) -> bool:
    keys = row.launch.partition(" ")[0]
    return " of " not in row.launch and int(keys) >= LONG


Figures = Mapping[str, str]


def _forward(arch: str, kernels: Kernels, what: str, shape: Shape) -> Figures:
    """Heads one after another, and in turn."""
    kernel = kernels[f"fwd {what}"]
    apart, turn = (forward(arch, kernel, shape, together=each) for each in (False, True))
    return {
        "head after head": _us(apart.seconds), "busy": f"{apart.busy:.2f}",
        "MiB": str(apart.memory_bytes // MIB),
        "turn": _us(turn.seconds), "turn busy": f"{turn.busy:.2f}", "turn MiB": str(turn.memory_bytes // MIB),
        "gain": f"{apart.seconds / turn.seconds - 1:+.0%}",
    }  # fmt: skip


def _backward(arch: str, kernels: Kernels, what: str, shape: Shape) -> Figures:
    """Both paths in both orders."""
    paths = ("separate", "fused") if f"bwd_fused {what}" in kernels else ("separate",)
    found: dict[str, float] = {}
    for path in paths:
        apart, turn = (
            backward(arch, kernels, shape, path, what, together=each).seconds for each in (False, True)
        )
        found |= {path: apart, f"{path} turn": turn}
    figures = {name: _us(seconds) for name, seconds in found.items()}
    if "fused" not in found:
        return figures
    worst = backward(arch, kernels, shape, "fused", what, together=True, worst=True).seconds
    separate = found["separate turn"]
    return figures | {
        "fused worst": _us(worst),
        RATIO: f"{separate / found['fused turn']:.2f}",
        WORST: f"{separate / worst:.2f}",
    }


def _decode(arch: str, kernels: Kernels, what: str, shape: Shape) -> Figures:
    """One part, the planned number, and the fastest."""
    kernel = kernels.get(f"decode {what}")
    if kernel is None:
        return {}
    planned = planned_parts(arch, shape)
    found = {parts: decode(arch, kernel, shape, parts).seconds for parts in {*PARTS, planned}}
    best = min(found, key=lambda parts: (found[parts], parts))
    return {
        "1 part": _us(found[1]), "planned parts": str(planned), "planned": _us(found[planned]),
        "best parts": str(best), "best": _us(found[best]),
    }  # fmt: skip


def _rows(arch: str, kernels: Kernels, what: str, shape: Shape) -> Figures:
    """Workgroups of more rows, as fast as the kernel's own but for what they read; and our tall ones."""
    kernel = kernels[f"fwd {what}"]
    shown: dict[str, Kernel | None] = {f"{kernel.rows} rows": kernel}
    if kernel.rows == 128:
        shown |= {name: taller(kernel, times) for name, times in TALLER.items()}
    shown["tall"] = kernels.get(f"fwd_tall {what}")
    return {
        name: _us(forward(arch, each, shape, together=True).seconds) for name, each in shown.items() if each
    }


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.0f}"
