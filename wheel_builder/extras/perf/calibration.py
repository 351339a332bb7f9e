"""The launch model on AMD's assembly forwards, beside AMD's published rates of the same launches.

The speeds of the kernels follow from the accepted rates of one workgroup at two lengths
(``figures/published/aiter.txt``, by the schedule with exclusive instructions). One workgroup of 256 rows fits
on a compute unit. A causal one has a block from the end and one from the beginning, so all have equal work.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from wheel_builder.extras.perf.counters import modelled_as
from wheel_builder.extras.perf.golden import FIGURES
from wheel_builder.extras.perf.launch.calls import LAUNCH
from wheel_builder.extras.perf.launch.kernels import die_of, dies_of
from wheel_builder.extras.perf.launch.order import as_numbered
from wheel_builder.extras.perf.launch.shapes import Shape, Work, forward_works
from wheel_builder.extras.perf.launch.simulate import CHUNK, Speed, simulate
from wheel_builder.extras.perf.power import Line, clock
from wheel_builder.extras.perf.published import OPS, Rate, rows_of
from wheel_builder.tables.archs import Arch, arch_named

CALIBRATED = FIGURES / "launch" / "published.csv"
FORWARD = OPS[0]
ROWS, HEAD_DIM = 256, 128
LENGTHS = (1024, 2048)  # of the rates that give a speed
LONGEST, BATCH = 8192, 1  # of the launches that are played
ROW_BYTES = 2 * 2 * HEAD_DIM


class Calibrated(NamedTuple):
    """TFLOP/s of a launch: published, by the schedule, by the launch model, and at the clock of its power."""

    product: str
    causal: str
    heads: int
    seqlen: int
    published: float
    schedule: float
    launch: float
    power: float


Schedules = Mapping[tuple[str, bool, int], float]  # TFLOP/s by product, causal and length


def schedules_of(text: str) -> Schedules:
    """The exclusive schedule's rates of forwards in an accepted report of ``published.py``."""
    return {
        (row.product, row.causal, row.seqlen): row.exclusive for row in rows_of(text) if row.op == FORWARD
    }


def speed_of(gpu: Arch, product: str, schedules: Schedules, *, causal: bool) -> Speed:
    """From the clocks of a workgroup at two lengths. A causal one sees a key more than a whole row has."""
    clocks = []
    for seqlen in LENGTHS:
        pairs = ROWS * seqlen * (seqlen + 1) / seqlen if causal else ROWS * seqlen
        rate = schedules[product, causal, seqlen] * 1e12 / gpu.model.clock / gpu.compute_units
        clocks.append(4 * HEAD_DIM * pairs / rate)
    step = (clocks[1] - clocks[0]) / (LENGTHS[1] - LENGTHS[0])
    return Speed((CHUNK * step,), max(0.0, clocks[0] - step * LENGTHS[0]), ROW_BYTES)


def works_of(shape: Shape) -> tuple[Work, ...]:
    """A causal workgroup reads the keys of both of its blocks, about those of a whole row."""
    works = tuple(forward_works(replace(shape, causal=False), ROWS))
    if not shape.causal:
        return works
    half = shape.queries // ROWS // 2
    return tuple(work for work in works if work.block < half)


def calibrated(
    rates: Iterable[Rate], schedules: Schedules, lines: Mapping[str, Line]
) -> Iterator[Calibrated]:
    """The forwards' launches of one sequence. ``lines``: of power, by product."""
    for rate in rates:
        if (rate.op, rate.batch) == (FORWARD, BATCH) and rate.seqlen <= LONGEST:
            yield _calibrated(rate, schedules, lines)


def _calibrated(rate: Rate, schedules: Schedules, lines: Mapping[str, Line]) -> Calibrated:
    gpu = modelled_as(rate.product)
    shape = Shape(rate.seqlen, rate.seqlen, rate.heads, rate.heads_k, causal=rate.causal)
    clocks = _clocks(gpu.name, shape, speed_of(gpu, rate.product, schedules, causal=rate.causal))
    flop = 4 * HEAD_DIM * shape.pairs
    launch = flop / (clocks / gpu.model.clock + LAUNCH) / 1e12
    power = 0.0
    if rate.product in lines:
        hertz = clock(gpu, lines[rate.product], flop / clocks / gpu.compute_units)
        power = flop / (clocks / hertz + LAUNCH) / 1e12
    return Calibrated(
        rate.product, "causal" if rate.causal else "all keys", rate.heads, rate.seqlen, round(rate.tflops, 1),
        schedules[rate.product, rate.causal, rate.seqlen], round(launch, 1), round(power, 1),
    )  # fmt: skip


@cache
def _clocks(arch: str, shape: Shape, speed: Speed) -> float:
    queues = as_numbered(works_of(shape), dies_of(arch_named(arch)))
    return simulate(queues, speed, die_of(arch)).clocks


def to_text(rows: Iterable[Calibrated]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([Calibrated._fields, *rows])
    return file.getvalue()


def parse_calibrated(text: str) -> tuple[Calibrated, ...]:
    return tuple(
        Calibrated(
            row["product"], row["causal"], int(row["heads"]), int(row["seqlen"]),
            *(float(row[name]) for name in Calibrated._fields[4:]),
        )
        for row in csv.DictReader(io.StringIO(text))
    )  # fmt: skip
