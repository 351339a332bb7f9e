"""Power: the clock of a GPU whose matrix units are busy for some share of their time. Modelled.

``figures/published/power.csv`` has published pairs of busy share and TFLOP/s, of 16-bit forwards on one GPU
(AMD's note on FlashAttention-3 for gfx950). Rates grow as a power of the busy share below 1, because the
clock falls. Other GPUs lack such pairs.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheel_builder.extras.perf.golden import FIGURES
from wheel_builder.tables.archs import Arch

PAIRS = FIGURES / "published" / "power.csv"
CLOCKS_FOR = "32x32x{k}"  # the matrix instruction with the most products a clock


@dataclass(frozen=True)
class Line:
    """TFLOP/s by busy share: ``whole * busy ** exponent``."""

    whole: float
    exponent: float

    def tflops(self, busy: float) -> float:
        return self.whole * math.pow(busy, self.exponent)


def read_pairs(file: Path) -> Mapping[str, Sequence[tuple[float, float]]]:
    """Busy share and TFLOP/s, by product."""
    found: dict[str, list[tuple[float, float]]] = {}
    with file.open(newline="", encoding="utf-8") as text:
        for row in csv.DictReader(text):
            found.setdefault(row["gpu"], []).append((float(row["busy"]), float(row["tflops"])))
    return found


def fitted(pairs: Sequence[tuple[float, float]]) -> Line:
    """The line of least squares through the logarithms."""
    points = [(math.log(busy), math.log(tflops)) for busy, tflops in pairs]
    middle_x, middle_y = (sum(each) / len(points) for each in zip(*points, strict=True))
    slope = sum((x - middle_x) * (y - middle_y) for x, y in points) / sum(
        (x - middle_x) ** 2 for x, _ in points
    )
    return Line(math.exp(middle_y - slope * middle_x), slope)


def peak_flop(arch: Arch) -> float:
    """16-bit FLOP a clock and compute unit of the matrix units alone."""
    k = arch.isa.fp16_k
    clocks = arch.isa.matrix_clocks[CLOCKS_FOR.format(k=k)]
    return arch.isa.simds * 2 * 32 * 32 * k / clocks


def clock(arch: Arch, line: Line, flop: float) -> float:
    """Hz at which a kernel runs that reaches ``flop`` a clock and compute unit: at most the clock on paper.

    At a clock f it has ``f * flop``, and the line gives the rate that power allows at its busy share.
    """
    allowed = line.tflops(flop / peak_flop(arch)) * 1e12
    return min(arch.model.clock, allowed / (flop * arch.compute_units))
