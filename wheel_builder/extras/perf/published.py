"""AMD's assembly forwards: published rates of whole launches beside the schedule's rates of a workgroup.

``figures/aiter.csv`` has the rates in TFLOP/s, from op_tests/cpp/mha/README.md of ROCm/aiter: bf16, head dim
128, equal numbers of queries and keys. ``tests/engine/perf/test_amd_assembly.py`` models the kernels.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheel_builder.extras.perf.counters import Line, modelled_as, tflops
from wheel_builder.extras.perf.golden import FIGURES
from wheel_builder.tables.archs import known_archs

RATES, ERRORS = FIGURES / "aiter.csv", FIGURES / "aiter.txt"
GPUS = ("MI300X", "MI355X")
PRODUCTS = {arch.model.name: name for name, arch in known_archs().items() if arch.model.name in GPUS}
HEAD = f"{'published':>15}{'modelled':>10}{'error':>16}{'exclusive':>11}{'error':>16}"


@dataclass(frozen=True)
class Rate:
    """A published row: the call, and TFLOP/s on a GPU."""

    product: str
    batch: int
    heads: int
    heads_k: int
    seqlen: int
    causal: bool
    tflops: float


@dataclass(frozen=True)
class Kernel:
    """A workgroup's useful FLOP and clocks by keys: by the plain schedule, and by the exclusive one."""

    flop: Line
    clocks: tuple[Line, ...]

    def tflops(self, product: str, seqlen: int) -> tuple[float, ...]:
        """With all compute units as fast as this one, at the clock on paper."""
        gpu, flop = modelled_as(product), self.flop.at(seqlen)
        return tuple(tflops(gpu, flop / line.at(seqlen)) for line in self.clocks)


Kernels = Mapping[tuple[str, bool], Kernel]  # by product, and whether causal


def read_rates(file: Path) -> tuple[Rate, ...]:
    """The published rows, one for each GPU."""
    with file.open(newline="", encoding="utf-8") as text:
        rows = list(csv.DictReader(text))
    return tuple(
        Rate(
            product=product,
            batch=int(row["batch"]),
            heads=int(row["heads"]),
            heads_k=int(row["kv_heads"]),
            seqlen=int(row["seqlen"]),
            causal=row["causal"] == "1",
            tflops=float(row[product]),
        )
        for row in rows
        for product in PRODUCTS
    )


def report(rates: Sequence[Rate], kernels: Kernels) -> str:
    """The ranges of errors by GPU, mask and length, the worst first, and then every row."""
    return "\n".join((*_ranges(rates, kernels), "", *_rows(rates, kernels), ""))


def summary(text: str) -> str:
    """The first part of a report."""
    return text.partition("\n\n")[0]


def _ranges(rates: Sequence[Rate], kernels: Kernels) -> Iterator[str]:
    groups = dict.fromkeys((rate.product, rate.causal, rate.seqlen) for rate in rates)
    worst_first = sorted(groups, key=lambda group: -max(_errors(_of(rates, group), kernels, 0)))
    yield f"{'AITER assembly bf16 d128, TFLOP/s':<34}{'GPU':>8}{'seqlen':>8}{HEAD}"
    for product, causal, seqlen in worst_first:
        own = _of(rates, (product, causal, seqlen))
        published = [rate.tflops for rate in own]
        cells = [f"{min(published):.0f} to {max(published):.0f}"]
        for number, value in enumerate(kernels[product, causal].tflops(product, seqlen)):
            errors = _errors(own, kernels, number)
            cells += [f"{value:.0f}", f"{min(errors):+.0%} to {max(errors):+.0%}"]
        name = f"{'causal' if causal else 'all keys'}, {len(own)} shapes"
        widths = (15, 10, 16, 11, 16)
        yield f"{name:<34}{product:>8}{seqlen:>8}" + "".join(map(str.rjust, cells, widths))


def _of(rates: Iterable[Rate], group: tuple[str, bool, int]) -> list[Rate]:
    return [rate for rate in rates if (rate.product, rate.causal, rate.seqlen) == group]


def _errors(rates: Iterable[Rate], kernels: Kernels, number: int) -> list[float]:
    """Of the plain schedule (0) or the exclusive one (1)."""
    return [
        kernels[rate.product, rate.causal].tflops(rate.product, rate.seqlen)[number] / rate.tflops - 1
        for rate in rates
    ]


def _rows(rates: Iterable[Rate], kernels: Kernels) -> Iterator[str]:
    yield f"{'GPU':<8}{'causal':>8}{'batch':>7}{'heads':>7}{'of k':>6}{'seqlen':>8}{HEAD}"
    for rate in rates:
        causal = "yes" if rate.causal else "no"
        call = f"{causal:>8}{rate.batch:>7}{rate.heads:>7}{rate.heads_k:>6}{rate.seqlen:>8}"
        found = kernels[rate.product, rate.causal].tflops(rate.product, rate.seqlen)
        cells = "".join(
            f"{value:>{width}.1f}{value / rate.tflops - 1:>+16.0%}"
            for value, width in zip(found, (10, 11), strict=True)
        )
        yield f"{rate.product:<8}{call}{rate.tflops:>15.1f}{cells}"
