"""The schedule compared with published hardware counters: how far off it is.

Published: rocprof's MfmaUtil on an MI300X, causal forwards of 16 batches and 16 heads at 1024 and 16384
queries and keys (attn-dsl-bench, counters_v1.csv).  Modelled: this checkout's own Triton forward, which is
not the kernel that they ran, at their known tile sizes.

Clocks of a causal workgroup grow by the same amount with each tile of queries, so two tiles give the line.
The GPU assigns workgroups, in order, to whichever slot is free first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

COMPUTE_UNITS = 304  # of an MI300X
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
# Their kernels cannot be run here: they are another project's assembly.
NOT_MODELLED = (
    Published("AITER", 128, ((1024, 0.42), (16384, 0.72))),
    Published("AITER", 64, ((1024, 0.19), (16384, 0.42))),
)


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
    """A causal forward: ``clocks`` that a workgroup holds its slot, ``matrix`` clocks of it on each SIMD."""

    rows: int
    resident: int
    clocks: Line
    matrix: Line


def device_busy(kernel: Causal, seqlen: int) -> float:
    """The share of an MI300X's matrix clocks that a whole launch uses."""
    tiles = [*range(seqlen // kernel.rows)] * BATCH_HEADS
    free = [0.0] * (COMPUTE_UNITS * kernel.resident)
    heapify(free)
    for tile in tiles:
        heapreplace(free, free[0] + kernel.clocks.at(tile))
    used = sum(kernel.matrix.at(tile) for tile in tiles)
    return used / (COMPUTE_UNITS * max(free))


def comparison(published: Sequence[Published], modelled: Mapping[tuple[str, int], Causal]) -> str:
    """Published and modelled shares and the model's error, a line each; ``modelled`` by kernel and head dim.

    Entries missing from ``modelled`` are listed with the published share only.
    """
    lines = [f"{'MfmaUtil on MI300X, causal':<32}{'seqlen':>8}{'published':>11}{'modelled':>10}{'error':>8}"]
    for entry in published:
        kernel = modelled.get((entry.what, entry.head_dim))
        for seqlen, share in entry.util:
            name = f"{entry.what} d{entry.head_dim}"
            lines.append(f"{name:<32}{seqlen:>8}{share:>11.2f}{_error(kernel, seqlen, share)}")
    return "\n".join([*lines, ""])


def _error(kernel: Causal | None, seqlen: int, share: float) -> str:
    if kernel is None:
        return f"{'-':>10}{'-':>8}"
    found = device_busy(kernel, seqlen)
    return f"{found:>10.2f}{found / share - 1:>+8.0%}"
