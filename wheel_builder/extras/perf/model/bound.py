"""The busy bound: minimum clocks of a compute unit's matrix units, VALUs and LDS for one workgroup.

Ignores latency, waiting, memory traffic and scalar instructions: a ceiling, always labelled modelled.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from wheel_builder.extras.perf.model import cost
from wheel_builder.extras.perf.model.lds import PORTS, Charge
from wheel_builder.tables.archs import arch_named


class Executed(Protocol):
    """How often a mnemonic was executed: wave-instructions, and the sum of their active lanes."""

    @property
    def executed(self) -> int: ...

    @property
    def lanes(self) -> int: ...


@dataclass(frozen=True)
class Bound:
    """Clocks per compute unit of one workgroup. ``dot2`` is a part of ``valu``.

    ``banks`` and ``port`` belong to the LDS, ``conflicts`` is a part of ``banks``.
    """

    matrix: float
    valu: float
    banks: float
    conflicts: float
    port: float
    dot2: float
    coexecution: bool

    @property
    def alu(self) -> float:
        return max(self.matrix, self.valu) if self.coexecution else self.matrix + self.valu

    @property
    def clocks(self) -> float:
        return max(self.alu, self.banks, self.port)

    @property
    def matrix_busy(self) -> float:
        return self.matrix / self.clocks

    @property
    def dot2_busy(self) -> float:
        return self.dot2 / self.clocks


def busy_bound(arch: str, counts: Mapping[str, Executed], lds: Iterable[tuple[Charge, int]] = ()) -> Bound:
    """The bound from the executed instructions of one full workgroup.

    ``counts`` by mnemonic. ``lds``: the costs of LDS accesses with their counts. A dual-issue pair counts as
    one mnemonic, ``a :: b``. Raises ``PerfError`` for an arch, a matrix instruction or an LDS instruction
    without numbers.
    """
    isa = arch_named(arch).isa
    matrix = valu = dot2 = 0
    for name, count in counts.items():
        if cost.is_matrix(name):
            matrix += count.executed * cost.matrix_clocks(arch, name)
        elif name.startswith("v_"):
            clocks = count.executed * cost.valu_clocks(isa.timing, name)
            valu += clocks
            dot2 += clocks if cost.is_dot2(name) else 0
    charges = list(lds)
    # A workgroup of a workgroup processor (RDNA) uses the LDS of both compute units, and both are one's
    # clocks.
    return Bound(
        matrix=matrix / isa.simds,
        valu=valu / isa.simds,
        banks=sum(charge.banks * count for charge, count in charges),
        conflicts=sum(charge.extra * count for charge, count in charges),
        port=sum(charge.port * count for charge, count in charges) / PORTS,
        dot2=dot2 / isa.simds,
        coexecution=isa.matrix_coexecution,
    )
