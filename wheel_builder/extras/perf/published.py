"""AMD's assembly kernels: published rates of whole launches beside the schedule's rates of a workgroup.

``figures/published/aiter.csv`` has the rates in TFLOP/s, from op_tests/cpp/mha/README.md of ROCm/aiter: bf16,
head dim 128, equal numbers of queries and keys. A backward's include its two small kernels, and it adds up dq
by atomics of bf16 (``a16``) or fp32 (``a32``). ``tests/engine/perf/test_amd_assembly.py`` models the kernels.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wheel_builder.extras.perf.counters import Line, modelled_as, tflops
from wheel_builder.extras.perf.golden import FIGURES
from wheel_builder.tables.archs import known_archs

RATES, ERRORS = FIGURES / "published" / "aiter.csv", FIGURES / "published" / "aiter.txt"
GPUS = ("MI300X", "MI355X")
PRODUCTS = {arch.model.name: name for name, arch in known_archs().items() if arch.model.name in GPUS}
OPS = ("fwd", "bwd_a16", "bwd_a32")
LINES = ("modelled", "port", "exclusive")  # the plain schedule, with the way to the LDS, with exclusive VALU
WIDTHS = (15, *(10, 16) * len(LINES))
HEAD = "".join(map(str.rjust, ("published", *(cell for line in LINES for cell in (line, "error"))), WIDTHS))


@dataclass(frozen=True)
class Rate:
    """A published row: the call, and TFLOP/s on a GPU."""

    product: str
    op: str
    batch: int
    heads: int
    heads_k: int
    seqlen: int
    causal: bool
    tflops: float


@dataclass(frozen=True)
class Kernel:
    """A workgroup's useful FLOP and clocks by keys: by each of ``LINES``."""

    flop: Line
    clocks: tuple[Line, ...]

    def tflops(self, product: str, seqlen: int) -> tuple[float, ...]:
        """With all compute units as fast as this one, at the clock on paper."""
        gpu, flop = modelled_as(product), self.flop.at(seqlen)
        return tuple(tflops(gpu, flop / line.at(seqlen)) for line in self.clocks)


Kernels = Mapping[tuple[str, str, bool], Kernel]  # by product and op, and whether causal


def read_rates(file: Path) -> tuple[Rate, ...]:
    """The published rows, one for each op and GPU."""
    with file.open(newline="", encoding="utf-8") as text:
        rows = list(csv.DictReader(text))
    return tuple(
        Rate(
            product=product,
            op=op,
            batch=int(row["batch"]),
            heads=int(row["heads"]),
            heads_k=int(row["kv_heads"]),
            seqlen=int(row["seqlen"]),
            causal=row["causal"] == "1",
            tflops=float(row[f"{product} {op}"]),
        )
        for op in OPS
        for row in rows
        for product in PRODUCTS
    )


def report(rates: Sequence[Rate], kernels: Kernels) -> str:
    """The ranges of errors by op, GPU, mask and length, the worst first, and then every row."""
    return "\n".join((*_ranges(rates, kernels), "", *_rows(rates, kernels), ""))


def summary(text: str) -> str:
    """The first part of a report."""
    return text.partition("\n\n")[0]


class Row(NamedTuple):
    """A row of an accepted report: TFLOP/s published, and by each of ``LINES``."""

    product: str
    op: str
    causal: bool
    seqlen: int
    published: float
    modelled: float
    port: float
    exclusive: float


def rows_of(text: str) -> Iterator[Row]:
    """The rows of an accepted report, in its order."""
    for line in text.partition("\n\n")[2].splitlines()[1:]:
        product, op, causal, _, _, _, seqlen, published, *cells = line.split()
        modelled, port, exclusive = map(float, cells[::2])
        yield Row(product, op, causal == "yes", int(seqlen), float(published), modelled, port, exclusive)


def _ranges(rates: Sequence[Rate], kernels: Kernels) -> Iterator[str]:
    groups = dict.fromkeys((rate.product, rate.op, rate.causal, rate.seqlen) for rate in rates)
    worst_first = sorted(groups, key=lambda group: -max(_errors(_of(rates, group), kernels, 0)))
    yield f"{'AITER assembly bf16 d128, TFLOP/s':<34}{'GPU':>8}{'seqlen':>8}{HEAD}"
    for product, op, causal, seqlen in worst_first:
        own = _of(rates, (product, op, causal, seqlen))
        published = [rate.tflops for rate in own]
        cells = [f"{min(published):.0f} to {max(published):.0f}"]
        for number, value in enumerate(kernels[product, op, causal].tflops(product, seqlen)):
            errors = _errors(own, kernels, number)
            cells += [f"{value:.0f}", f"{min(errors):+.0%} to {max(errors):+.0%}"]
        name = f"{op} {'causal' if causal else 'all keys'}, {len(own)} shapes"
        yield f"{name:<34}{product:>8}{seqlen:>8}" + "".join(map(str.rjust, cells, WIDTHS))


def _of(rates: Iterable[Rate], group: tuple[str, str, bool, int]) -> list[Rate]:
    return [rate for rate in rates if (rate.product, rate.op, rate.causal, rate.seqlen) == group]


def _errors(rates: Iterable[Rate], kernels: Kernels, number: int) -> list[float]:
    """By the line of ``LINES`` with this number."""
    return [
        kernels[rate.product, rate.op, rate.causal].tflops(rate.product, rate.seqlen)[number] / rate.tflops
        - 1
        for rate in rates
    ]


def _rows(rates: Iterable[Rate], kernels: Kernels) -> Iterator[str]:
    yield f"{'GPU':<8}{'op':>8}{'causal':>8}{'batch':>7}{'heads':>7}{'of k':>6}{'seqlen':>8}{HEAD}"
    for rate in rates:
        causal = "yes" if rate.causal else "no"
        call = f"{rate.op:>8}{causal:>8}{rate.batch:>7}{rate.heads:>7}{rate.heads_k:>6}{rate.seqlen:>8}"
        found = kernels[rate.product, rate.op, rate.causal].tflops(rate.product, rate.seqlen)
        cells = "".join(f"{value:>10.1f}{value / rate.tflops - 1:>+16.0%}" for value in found)
        yield f"{rate.product:<8}{call}{rate.tflops:>15.1f}{cells}"
