"""What gfx1100 needs between dependent instructions; gfx1030 waits for everything by itself.

WMMA: RDNA3 instruction set manual, WMMA scheduling.  Transcendentals: LLVM's hazard recogniser.
"""

from collections.abc import Iterator

from wheel_builder.static_checks.disassembly import Instruction
from wheel_builder.static_checks.pairs import Need, Pair, factors, result

# A transcendental's result is safe behind so many other VALU instructions.
REACH_GFX1100 = 6


def wmma_fault(instruction: Instruction) -> str:
    """What is wrong with one matrix instruction by itself, in words; empty when nothing is."""
    return "its A or B overlaps its D" if factors(instruction) & result(instruction) else ""


def no_matrix(_: Instruction) -> str:
    """What is wrong with a matrix instruction on gfx1030."""
    return "this arch has no matrix instructions"


def gfx1030(_: Pair) -> Iterator[Need]:
    """Nothing."""
    return iter(())


def gfx1100(pair: Pair) -> Iterator[Need]:
    """What gfx1100 needs between the two."""
    if pair.first.first.is_matrix and pair.second.first.is_matrix and pair.passed & factors(pair.second):
        yield Need("reads as A or B the D of", 1, "VALU instructions")
    # So does a second transcendental behind it, or anything that waits for VALU results.
    safe = pair.distance.settled or pair.distance.transcendentals > 1
    if pair.first.is_transcendental and pair.second.is_valu and pair.passed_vectors and not safe:
        yield Need("reads the transcendental result of", REACH_GFX1100, "VALU instructions")
