"""Measured times of users' reports over the launch model's, and what would correct the model: ``errors.csv``.

``scripts/wheel-builder report calibrate`` writes the file from the reports in the tree. Nothing reads its
coefficients: they say how far off the model is.
"""

import csv
import io
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from wheel_builder.base.durable import ensure
from wheel_builder.base.words import aligned
from wheel_builder.extras.perf.launch import calls
from wheel_builder.extras.perf.launch.kernels import SPEEDS, Kernels, parse_speeds
from wheel_builder.extras.perf.launch.shapes import Shape
from wheel_builder.extras.timings.evidence import Ids, ids_of
from wheel_builder.extras.timings.merge import Key
from wheel_builder.matrix.tuned.candidates import KERNEL
from wheel_builder.matrix.tuned.form import Bin, TuningReport
from wheel_builder.matrix.tuned.tree import SignedTuning, signed_tunings
from wheel_builder.tables.archs import arch_named, code_of, known_archs

ERRORS = Path("wheel_builder/extras/timings/errors.csv")
MOST_BLOCKS = 1 << 18  # of a modelled launch: more take minutes
LEAST_ROWS = 16  # of a workgroup, for that limit
PATHS = {"bwd_dkdv": "separate", "bwd_dq": "separate", "bwd_fused": "fused"}
NONE = "No tuning report exists yet: errors on users' GPUs are unknown."
UNUSED = (
    "None of {reports} tuning reports has a time to compare: expected one of the wheel's row, in a call of "
    "the launch model, on a GPU with the compute units of the modelled one."
)
NEXT = (
    "  python -m flash_attn_rocm tune writes one on a GPU, scripts/wheel-builder report add FILE takes it in"
)
HEADS = (
    "gfx arch", "calls", "GPUs", "bins", "measured / modelled", "least to most", "scale (range of GPUs)",
    "start, µs (range of GPUs)",
)  # fmt: skip


class Pair(NamedTuple):
    """A bin on a GPU, in seconds."""

    arch: str
    calls: str
    whose: str
    measured: float
    modelled: float


class Error(NamedTuple):
    """``ratio``: measured / modelled, the median of all bins.

    Of each GPU, measured = start + scale * modelled, with the start in µs: the medians of the GPUs, and their
    ranges.
    """

    arch: str
    calls: str
    machines: int
    bins: int
    ratio: float
    ratio_least: float
    ratio_most: float
    scale: float
    scale_least: float
    scale_most: float
    start: float
    start_least: float
    start_most: float


def calibrate(checkout: Path) -> str:
    """Write the errors of all reports in the tree. Returns them as a table."""
    found = errors_of(checkout)
    ensure(checkout / ERRORS, to_text(found).encode())
    if found:
        return "\n".join(aligned(table(found), left=2))
    return f"{words_without(len(signed_tunings(checkout)))}\n{NEXT}"


def words_without(reports: int) -> str:
    """Why there are no errors."""
    return UNUSED.format(reports=reports) if reports else NONE


def errors_of(checkout: Path) -> tuple[Error, ...]:
    """Of all reports in the tree, by the accepted speeds of kernels."""
    reports = signed_tunings(checkout)
    speeds = parse_speeds(SPEEDS.name, (checkout / SPEEDS).read_text("utf-8"))
    keys = {
        Key(code_of(each.report.gfx), name, "", "")
        for each in reports.values()
        for name in each.report.kernels
    }
    return tuple(errors(pairs(reports.values(), speeds, ids_of(keys))))


def pairs(reports: Iterable[SignedTuning], speeds: Mapping[str, Kernels], today: Ids) -> Iterator[Pair]:
    """The bins that have a modelled time.

    The speeds are those of today's rows on the arch's modelled product. Left out are other rows and GPUs with
    other numbers of compute units.
    """
    for report in (each.report for each in reports):
        code = code_of(report.gfx)
        if code in known_archs() and report.compute_units == arch_named(code).compute_units:
            yield from _pairs(report, code, speeds.get(code, {}), today)


def _pairs(report: TuningReport, code: str, kernels: Kernels, today: Ids) -> Iterator[Pair]:
    for name, kernel in report.kernels.items():
        if kernel.shipped != today.get((code, name)):
            continue
        for each in kernel.bins:
            if modelled := modelled_seconds(code, name, each, kernels):
                measured = each.times[kernel.shipped].ms / 1e3
                yield Pair(code, each.kind, report.whose, measured, modelled)


def modelled_seconds(arch: str, name: str, each: Bin, kernels: Kernels) -> float:
    """By the launch model, 0 for calls that it lacks: masks, other dtypes, gradients of shared keys."""
    parsed = KERNEL.fullmatch(name)
    queries = 1 if each.kind == "decode" else each.length
    if parsed is None or each.mask or each.batch * each.heads * -(-queries // LEAST_ROWS) > MOST_BLOCKS:
        return 0.0
    op, what = parsed["op"], f"{parsed['dtype']} d{parsed['head_dim']}"
    causal = each.causal and queries > 1
    shape = Shape(queries, each.length, each.heads, each.heads // each.width, each.batch, causal=causal)
    kernel = kernels.get(f"{op} {what}")
    if kernel is None or (each.kind == "backward" and (each.width > 1 or op not in PATHS)):
        return 0.0
    if each.kind == "backward":
        return calls.backward(arch, kernels, shape, PATHS[op], what, together=True).seconds
    if each.kind == "decode":
        return calls.decode(arch, kernel, shape, calls.planned_parts(arch, shape)).seconds
    return calls.forward(arch, kernel, shape, together=True).seconds


def errors(found: Iterable[Pair]) -> Iterator[Error]:
    """By arch and kind of call."""
    groups: dict[tuple[str, str], list[Pair]] = {}
    for pair in found:
        groups.setdefault((pair.arch, pair.calls), []).append(pair)
    for (arch, kind), own in sorted(groups.items()):
        ratios = [pair.measured / pair.modelled for pair in own]
        of = {whose: [pair for pair in own if pair.whose == whose] for whose in {pair.whose for pair in own}}
        fits = [fitted(each) for each in of.values()]
        scales, starts = [fit[1] for fit in fits], [1e6 * fit[0] for fit in fits]
        figures = (*_middle(ratios), *_middle(scales), *_middle(starts))
        yield Error(arch, kind, len(of), len(own), *(round(figure, 3) for figure in figures))


def _middle(values: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(values), min(values), max(values)


def fitted(own: Sequence[Pair]) -> tuple[float, float]:
    """Start and scale with the least squares of relative errors. Without a start if it would be negative."""
    x, y = [pair.modelled / pair.measured for pair in own], [1 / pair.measured for pair in own]
    xx, xy, yy = (
        sum(a * b for a, b in zip(one, other, strict=True)) for one, other in ((x, x), (x, y), (y, y))
    )
    determinant = xx * yy - xy * xy
    start = (xx * sum(y) - xy * sum(x)) / determinant if determinant > 1e-9 * xx * yy else 0.0
    if start <= 0:
        return 0.0, sum(x) / xx
    return start, (sum(x) - start * xy) / xx


def to_text(found: Iterable[Error]) -> str:
    """The file."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([Error._fields, *found])
    return file.getvalue()


def parse_errors(text: str) -> tuple[Error, ...]:
    """The errors of ``to_text``."""
    kinds = Error.__annotations__
    return tuple(
        Error(**{name: kinds[name](value) for name, value in row.items()})
        for row in csv.DictReader(io.StringIO(text))
    )


def table(found: Iterable[Error]) -> list[tuple[str, ...]]:
    """A row for each arch and kind of call, below its heads."""
    return [
        HEADS,
        *(
            (
                each.arch, each.calls, str(each.machines), str(each.bins), f"{each.ratio:.2f}",
                f"{each.ratio_least:.2f} to {each.ratio_most:.2f}",
                f"{each.scale:.2f} ({each.scale_least:.2f} to {each.scale_most:.2f})",
                f"{each.start:.1f} ({each.start_least:.1f} to {each.start_most:.1f})",
            )
            for each in found
        ),
    ]  # fmt: skip
