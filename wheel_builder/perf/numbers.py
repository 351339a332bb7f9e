"""The models' numbers for each arch: rates for the busy bound, and latencies for the schedule.

Everything is in clocks.  Where a number comes from:

- Rates of MFMA, WMMA, VALU and transcendentals, LDS bytes a clock, and what may run beside what: the
  CDNA1, CDNA3 and RDNA3 instruction set manuals and AMD's matrix instruction calculator.
- ``matrix_result``: the manuals' dependency wait states (CDNA3 table of required independent
  instructions, CDNA1 of software-inserted wait states) plus one slot, which agrees with LLVM's scheduling
  model.
- RDNA ``valu_result``, ``salu_result``, ``lds`` and ``branch`` latencies: published measurements on a
  Radeon PRO W7900 (gfx1100; Hardcode84's calibration notes: dependent VALU 3.9 to 5, SALU 3.1, LDS load
  47, branch 12). gfx1030 is assumed to be the same.
- gfx9 ``valu_result`` and ``salu_result``: the issue slot of four clocks (GCN and CDNA manuals).
- ``transcendental_result`` on RDNA, ``vmem`` (80 slots on gfx908, 320 clocks on RDNA): LLVM's scheduling
  models.  gfx942's ``vmem`` is the one number that was fitted: with 800 clocks the schedule comes near the
  utilisation that an MI300X's counters had for Triton at head dim 128 and 16384 keys
  (tests/perf/golden/counters.txt).
- Assumed, without a source: gfx9 ``lds`` (64) and ``branch`` (16), ``smem`` (200), ``barrier`` (two slots
  on gfx9), ``vmem_bytes`` (64 a clock and compute unit, the L1's width on gfx9), how WMMAs chain without
  a bubble.
- ``depth``: the width of the wait counters in ``s_waitcnt`` (memory, LDS and scalar, stores).

The LDS's banks and port are in ``lds.py``; ``lds_bytes`` is for the schedule without them.

Left out: bank conflicts of registers, instruction fetch, cache misses beyond one latency, clocks, memory
bandwidth of the GPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from wheel_builder.base.errors import PerfError


@dataclass(frozen=True)
class Numbers:
    """One arch's rates and latencies; its numbers of units are in the kernels' table of archs.

    ``slot``: clocks between two issue slots of a wave.
    """

    slot: int
    valu: int
    transcendental: int
    slow: int  # a 32-bit integer multiplication
    overlap: bool  # matrix instructions run beside VALU instructions of other waves
    matrix_issue: int  # clocks of the VALU's port that a matrix instruction takes; 0: all of its own
    matrix_result: int  # clocks after a matrix instruction until anything but its own sum can read the result
    valu_result: int
    transcendental_result: int
    salu_result: int
    lds: int
    vmem: int
    smem: int
    branch: int
    barrier: int
    depth: tuple[int, int, int]
    lds_bytes: int = 128
    vmem_bytes: int = 64


def _gfx9(matrix_issue: int, matrix_result: int, vmem: int) -> Numbers:
    return Numbers(
        slot=4,
        valu=4,
        transcendental=16,
        slow=16,
        overlap=True,
        matrix_issue=matrix_issue,
        matrix_result=matrix_result,
        valu_result=4,
        transcendental_result=16,
        salu_result=4,
        lds=64,
        vmem=vmem,
        smem=200,
        branch=16,
        barrier=8,
        depth=(63, 15, 63),
    )


def _rdna(*, overlap: bool) -> Numbers:
    return Numbers(
        slot=1,
        valu=1,
        transcendental=4,
        slow=4,
        overlap=overlap,
        matrix_issue=0,
        matrix_result=5,
        valu_result=5,
        transcendental_result=10,
        salu_result=3,
        lds=47,
        vmem=320,
        smem=200,
        branch=12,
        barrier=2,
        depth=(63, 63, 63),
    )


# 16 passes and 18 wait states on gfx908, 8 and 11 on gfx942: (wait states + 1 - passes) slots of four clocks.
NUMBERS: Mapping[str, Numbers] = {
    "gfx908": _gfx9(matrix_issue=8, matrix_result=12, vmem=320),
    "gfx942": _gfx9(matrix_issue=4, matrix_result=16, vmem=800),
    "gfx1030": _rdna(overlap=True),  # no matrix instructions at all
    "gfx1100": _rdna(overlap=False),
}


def numbers(arch: str) -> Numbers:
    """The arch's row; raises ``PerfError`` for another arch."""
    if arch not in NUMBERS:
        title = f"no model for {arch}"
        raise PerfError(title, [f"known: {', '.join(NUMBERS)}"], advice="add it to perf/numbers.py")
    return NUMBERS[arch]
