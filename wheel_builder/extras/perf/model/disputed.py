"""Rates that engineers of AMD or Mesa state otherwise than the schedule: a line of figures for each.

A kernel or order counts as better only if it is under all lines.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from wheel_builder.tables.archs import Arch, Timing


@dataclass(frozen=True)
class Dispute:
    """``changes`` of the timing of some ISAs. ``source``: who states them."""

    isas: tuple[str, ...]
    changes: Mapping[str, int]
    source: str


DISPUTES = {
    "two passes": Dispute(
        ("cdna3", "cdna4"),
        {"matrix_issue": 8},
        "a matrix instruction holds the VALU for two passes (LLVM PR 184084, by AMD)",
    ),
    "VALU pairs": Dispute(
        ("cdna4",), {"valu": 2}, "two VALU instructions in four clocks (counter SQ_ACTIVE_INST_VALU2)"
    ),
    "own exponentials": Dispute(
        ("rdna1", "rdna1_0", "rdna2", "rdna3", "rdna3_5", "rdna4"),
        {"exponential_issue": 1},
        "exponentials have a unit of their own (Mesa's ACO, LLVM's GFX10 model)",
    ),
}


def disputed(arch: Arch) -> Mapping[str, Timing]:
    """The timings of an arch's lines, by name."""
    timing = arch.isa.timing
    return {
        name: replace(timing, **dispute.changes)
        for name, dispute in DISPUTES.items()
        if arch.isa.name in dispute.isas
    }
