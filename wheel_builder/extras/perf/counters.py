"""The schedule against published hardware counters and rates: the model's error.

Published: rocprof's MfmaUtil on an MI300X, causal forwards of 16 batches and 16 heads at 1024 and 16384
queries and keys (attn-dsl-bench, counters_v1.csv). Modelled: this checkout's own Triton forward at the same
tile sizes. Their kernel is a different one.

Clocks of a causal workgroup grow by the same amount with each tile of queries, so two tiles give the line.
The GPU assigns workgroups, in order, to the first free slot.

Published rates are of whole launches of other kernels. Modelled rates assume all compute units of the GPU,
each as fast as in the schedule, at the engine clock on paper.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

from wheel_builder.tables.archs import Arch, known_archs

COUNTED = "MI300X"  # the GPU whose counters were published
BATCH_HEADS = 16 * 16


@dataclass(frozen=True)
class Published:
    """MfmaUtil as a share, by sequence length."""

    what: str
    head_dim: int
    util: tuple[tuple[int, float], ...]


PUBLISHED = (
    Published("Triton", 128, ((1024, 0.14), (16384, 0.34))),
    Published("PyTorch SDPA (AOTriton)", 128, ((1024, 0.16), (16384, 0.31))),
    Published("PyTorch SDPA (AOTriton)", 64, ((1024, 0.13), (16384, 0.27))),
)
# Assembly. The rates of the head dim in a released wheel are compared in published.py.
NOT_MODELLED = (
    Published("AITER", 128, ((1024, 0.42), (16384, 0.72))),
    Published("AITER", 64, ((1024, 0.19), (16384, 0.42))),
)


# By the plain schedule, and by the schedule with exclusive VALU instructions: some never run during a matrix
# instruction.
COLUMNS = f"{'modelled':>10}{'error':>8}{'exclusive':>11}{'error':>8}"


@dataclass(frozen=True)
class Line:
    """A causal workgroup's quantity: ``first`` for tile 0, and ``step`` more for each tile of queries."""

    first: float
    step: float

    def at(self, tile: int) -> float:
        return self.first + self.step * tile


def through(near: tuple[int, float], far: tuple[int, float]) -> Line:
    """The line through two (tile, value) points."""
    step = (far[1] - near[1]) / (far[0] - near[0])
    return Line(near[1] - step * near[0], step)


@dataclass(frozen=True)
class Causal:
    """A causal forward: ``clocks`` of a workgroup in its slot, with ``matrix`` clocks on each SIMD."""

    rows: int
    resident: int
    clocks: Line
    matrix: Line


def modelled_as(product: str) -> Arch:
    """The arch modelled as this product."""
    [arch] = [arch for arch in known_archs().values() if arch.model.name == product]
    return arch


def tflops(gpu: Arch, flop: float) -> float:
    """TFLOP/s of all compute units of a modelled GPU at the clock on paper, each with ``flop`` a clock."""
    return flop * gpu.model.clock * gpu.compute_units / 1e12


def device_busy(kernel: Causal, seqlen: int) -> float:
    """The share of the MI300X's matrix clocks used by a whole launch."""
    compute_units = modelled_as(COUNTED).compute_units
    tiles = [*range(seqlen // kernel.rows)] * BATCH_HEADS
    free = [0.0] * (compute_units * kernel.resident)
    heapify(free)
    for tile in tiles:
        heapreplace(free, free[0] + kernel.clocks.at(tile))
    used = sum(kernel.matrix.at(tile) for tile in tiles)
    return used / (compute_units * max(free))


@dataclass(frozen=True)
class Both:
    """A kernel by the plain and by the exclusive schedule."""

    plain: Causal
    exclusive: Causal


def comparison(published: Sequence[Published], modelled: Mapping[tuple[str, int], Both]) -> str:
    """Published and modelled shares and the model's error, a line each. ``modelled`` by kernel and head dim.

    Entries missing from ``modelled`` are listed with the published share only.
    """
    title = f"MfmaUtil on {COUNTED}, causal"
    lines = [f"{title:<32}{'seqlen':>8}{'published':>11}{COLUMNS}"]
    for entry in published:
        both = modelled.get((entry.what, entry.head_dim))
        for seqlen, share in entry.util:
            name = f"{entry.what} d{entry.head_dim}"
            kernels = (both.plain, both.exclusive) if both else ()
            found = [device_busy(kernel, seqlen) for kernel in kernels]
            lines.append(f"{name:<32}{seqlen:>8}{share:>11.2f}{_errors(found, share, 2)}")
    return "\n".join([*lines, ""])


def _errors(found: Sequence[float], published: float, digits: int) -> str:
    """Both modelled figures, each with its error. The second is optional."""
    cells = [(f"{each:.{digits}f}", f"{each / published - 1:+.0%}") for each in found]
    plain, exclusive = [*cells, ("-", "-"), ("-", "-")][:2]
    return f"{plain[0]:>10}{plain[1]:>8}{exclusive[0]:>11}{exclusive[1]:>8}"


@dataclass(frozen=True)
class Rate:
    """A published rate of a forward in TFLOP/s. ``op`` as in the table. ``of`` names the source."""

    what: str
    of: str
    gpu: str
    op: str
    head_dim: int
    seqlen: int
    tflops: float


RATES = (
    Rate("Triton, tuned", "aiter PR 2397", "RX 7900 XTX", "fwd", 128, 8192, 60.8),
    Rate("Triton, tuned", "aiter PR 2397", "Radeon 8060S", "fwd", 128, 8192, 18.1),
    Rate("Triton, tuned", "aiter PR 2397", "RX 9070 XT", "fwd", 128, 8192, 83.2),
    Rate("Triton's tutorial, 2024", "aotriton issue 16", "RX 7900 XTX", "fwd", 64, 16384, 25.5),
    Rate("PyTorch SDPA, 2024", "aotriton issue 16", "RX 7900 XTX", "fwd causal", 128, 2048, 9.4),
    Rate("Triton", "attn-dsl-bench", "MI300X", "fwd causal", 64, 16384, 301),
    Rate("Triton", "attn-dsl-bench", "MI300X", "fwd causal", 128, 16384, 364),
)
# Kernels unavailable here, and GPUs whose arch lacks the kernel.
RATES_NOT_MODELLED = (
    Rate("Composable Kernel", "ROCm/flash-attention PR 180", "MI100", "fwd", 128, 32768, 63),
    Rate("PyTorch SDPA", "PyTorch issue 152595", "RX 7900 XTX", "fwd", 256, 4360, 23),
)


def rates(published: Sequence[Rate], modelled: Mapping[tuple[str, str, int], Sequence[float]]) -> str:
    """Published and modelled TFLOP/s and the model's error, the worst first.

    ``modelled``: FLOP per clock and compute unit by arch, op and head dim: by the plain schedule, then by the
    exclusive one if different.
    """
    title = f"{'TFLOP/s of fp16 forwards':<40}{'GPU':>12}{'seqlen':>8}{'published':>11}{COLUMNS}"
    known = {rate: _modelled(rate, modelled) for rate in published}
    worst_first = sorted(published, key=lambda rate: -max(known[rate], default=0) / rate.tflops)
    return "\n".join([title, *(_rate(rate, known[rate]) for rate in worst_first), ""])


def _modelled(rate: Rate, modelled: Mapping[tuple[str, str, int], Sequence[float]]) -> Sequence[float]:
    gpu = modelled_as(rate.gpu)
    flop = modelled.get((gpu.name, rate.op, rate.head_dim), ())
    return [tflops(gpu, each) for each in flop]


def _rate(rate: Rate, found: Sequence[float]) -> str:
    name = f"{rate.what} {rate.op.removeprefix('fwd').strip()} d{rate.head_dim}".replace("  ", " ")
    line = f"{name:<40}{rate.gpu:>12}{rate.seqlen:>8}{rate.tflops:>11.1f}"
    return f"{line}{_errors(found, rate.tflops, 1)}"
