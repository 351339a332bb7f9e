"""Required distances of dependent instructions on RDNA 3 and later. RDNA 1 and 2 need none.

WMMA: RDNA3 and RDNA4 instruction set manuals, WMMA scheduling. Transcendentals: LLVM's hazard recogniser,
with a rule for RDNA 3 only.
"""

from collections.abc import Iterator

from wheel_builder.machine_code.disassembly.kernels import Instruction
from wheel_builder.machine_code.static_checks.pairs import Need, Pair, factors, result

# After this many other VALU instructions a transcendental's result can be read.
REACH_RDNA3 = 6
# WMMA's rule alone.
REACH_RDNA3_5 = 1
# All other instructions are waited for.
REACH_OTHERS = 0


def wmma_fault(instruction: Instruction) -> str:
    """The fault of one matrix instruction by itself, in words. Empty for a correct one."""
    return "its A or B overlaps its D" if factors(instruction) & result(instruction) else ""


def no_matrix(_: Instruction) -> str:
    """A matrix instruction is always wrong on RDNA 1 and 2."""
    return "this arch has no matrix instructions"


def rdna2(_: Pair) -> Iterator[Need]:
    """RDNA 1 and 2 need no distance."""
    return iter(())


def rdna3_5(pair: Pair) -> Iterator[Need]:
    """The distance required by RDNA 3.5 and 4 within the pair. Their hardware waits for transcendentals."""
    if pair.first.first.is_matrix and pair.second.first.is_matrix and pair.passed & factors(pair.second):
        yield Need("reads as A or B the D of", 1, "VALU instructions")


def rdna3(pair: Pair) -> Iterator[Need]:
    """The distance required by RDNA 3 within the pair."""
    yield from rdna3_5(pair)
    # A second transcendental after it settles it too, and so does any wait for VALU results.
    safe = pair.distance.settled or pair.distance.transcendentals > 1
    if pair.first.is_transcendental and pair.second.is_valu and pair.passed_vectors and not safe:
        yield Need("reads the transcendental result of", REACH_RDNA3, "VALU instructions")
