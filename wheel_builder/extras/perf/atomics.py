"""The launch model on AMD's assembly backwards, beside AMD's published rates with two kinds of atomics.

``figures/launch/atomics.csv`` has TFLOP/s from op_tests/cpp/mha/README.md of ROCm/aiter: bf16, head dim 128,
no mask, dq added up in 16 bits (``a16``) or in fp32 (``a32``). ``rows``: keys of a workgroup.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wheel_builder.extras.perf.counters import modelled_as
from wheel_builder.extras.perf.golden import FIGURES
from wheel_builder.extras.perf.launch.kernels import die_of, dies_of
from wheel_builder.extras.perf.launch.order import as_numbered
from wheel_builder.extras.perf.launch.shapes import Shape, backward_works
from wheel_builder.extras.perf.launch.simulate import CHUNK, Speed, simulate

ATOMICS = FIGURES / "launch" / "atomics.csv"
HEAD_DIM = 128
START, ROW_BYTES = 5000.0, 520  # of a workgroup, about those of our kernels
CLEARED, CONVERTED = 4, 10  # bytes an element of q: the sums before; in fp32 they are also read and rounded
ROUNDS = 2  # until the modelled rate with 16-bit atomics is the published one


@dataclass(frozen=True)
class Atomics:
    """A published row: TFLOP/s of a backward with each kind of atomics."""

    product: str
    rows: int
    heads: int
    seqlen: int
    a16: float
    a32: float

    @property
    def ratio(self) -> float:
        return self.a32 / self.a16


def read_atomics(file: Path) -> Iterator[Atomics]:
    with file.open(newline="", encoding="utf-8") as text:
        for row in csv.DictReader(text):
            rows, heads, seqlen = (int(row[name]) for name in ("rows", "heads", "seqlen"))
            yield Atomics(row["product"], rows, heads, seqlen, float(row["a16"]), float(row["a32"]))


def modelled_ratio(row: Atomics) -> float:
    """Speed with fp32 atomics over that with 16-bit ones. The published 16-bit rate gives the clocks."""
    gpu = modelled_as(row.product)
    works = [*backward_works(Shape(row.seqlen, row.seqlen, row.heads, row.heads), row.rows)]
    queues = as_numbered(works, dies_of(gpu))

    def seconds(clocks: float, size: int, moved: int) -> float:
        played = simulate(queues, Speed((clocks,), START, ROW_BYTES, HEAD_DIM * size), die_of(gpu.name))
        cast = row.seqlen * row.heads * HEAD_DIM * moved / gpu.model.memory
        return played.clocks / gpu.model.clock + cast

    wanted = 5 * 2 * HEAD_DIM * row.heads * row.seqlen**2 / (row.a16 * 1e12)
    clocks = wanted * gpu.model.clock * gpu.compute_units / (len(works) * row.seqlen / CHUNK)
    for _ in range(ROUNDS):
        clocks *= wanted / seconds(clocks, 2, CLEARED)
    return seconds(clocks, 2, CLEARED) / seconds(clocks, 4, CLEARED + CONVERTED)
