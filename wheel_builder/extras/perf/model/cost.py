"""The cost of one mnemonic, independent of its operands."""

import re
from collections.abc import Mapping

from wheel_builder.base.errors import PerfError
from wheel_builder.machine_code.disassembly.operations import MATRIX, TRANSCENDENTAL
from wheel_builder.machine_code.static_checks import cdna
from wheel_builder.tables.archs import Isa, Timing, arch_named

WMMA = re.compile(r"v_wmma_\w+?_(?P<shape>\d+x\d+x\d+)_(?P<bytes>iu8|fp8|bf8)?")
DOT2 = re.compile(r"v_(dual_)?dot2(c|acc)?_f32_(f16|bf16)")
# The names in ``never_coissued`` of isas.toml.
COISSUE = {
    "transcendental": TRANSCENDENTAL,
    "packed": re.compile(r"v_pk_"),
    "dot": re.compile(r"v_dot\d"),
    "cvt_pk": re.compile(r"v_cvt_pk_"),
}
SLOW = re.compile(r"v_(mul_(lo|hi)_[ui]32|mad_(co_)?[ui]64_[ui]32|mul_lo_i32|\w+_f64)$")
CONVERSION = re.compile(r"v_cvt_((pk_)?f32_(fp8|bf8)|(pk|sr)_(fp8|bf8)_f32)$")
LDS_LANE = re.compile(r"ds_(swizzle|permute|bpermute)_b32$")
LDS_WIDTH = re.compile(r"ds_(?P<name>\w+?)_(?P<type>[biuf])(?P<bits>8|16|32|64|96|128)(_|$)")
LDS_TWO = re.compile(r"(read|write|load|store|wrxchg|storexchg)(2|_2addr)")
VMEM_BITS = re.compile(r"_[biuf](8|16|32|64|96|128)(_|$)")
VMEM_DWORDS = re.compile(r"_dword(x(?P<count>[234]|8|16))?$")
VMEM_PARTS = {"byte": 1, "short": 2}


def is_matrix(mnemonic: str) -> bool:
    return MATRIX.match(mnemonic) is not None


def is_dot2(mnemonic: str) -> bool:
    """Whether the mnemonic (or a half of a dual-issue pair) is a two-way dot product with a float sum."""
    return DOT2.search(mnemonic) is not None


def is_exclusive(isa: Isa, mnemonic: str) -> bool:
    """Whether a VALU instruction is exclusive: it never runs during a matrix instruction."""
    return any(COISSUE[kind].match(mnemonic) for kind in isa.never_coissued)


def matrix_clocks(arch: str, mnemonic: str) -> int:
    """Clocks of a matrix instruction on its SIMD's matrix unit. Raises ``PerfError`` when unknown."""
    known = arch_named(arch).isa.matrix_clocks
    wmma = WMMA.match(mnemonic)
    clocks = _wmma_clocks(wmma, known) if wmma else cdna.matrix_clocks(mnemonic, known)
    if clocks is None:
        title = f"no clocks are known for a matrix instruction of {arch}"
        raise PerfError(title, [mnemonic], advice="add them to kernels/tables/isas.toml")
    return clocks


def _wmma_clocks(wmma: re.Match[str], known: Mapping[str, int]) -> int | None:
    """Operands of 8 bits take as long as others, unless the table tells otherwise."""
    shape = wmma["shape"]
    return known.get(f"{shape} 8 bit" if wmma["bytes"] else shape, known.get(shape))


def valu_clocks(machine: Timing, mnemonic: str) -> int:
    """Clocks in the busy bound, where only transcendentals and conversions of 8 bits are slow."""
    if CONVERSION.match(mnemonic):
        return machine.conversion
    return machine.transcendental if TRANSCENDENTAL.match(mnemonic) else machine.valu


def lds_bytes(mnemonic: str) -> int:
    """Bytes per lane of an LDS instruction. Raises ``PerfError`` for an unknown name."""
    if LDS_LANE.match(mnemonic):
        return 4
    if match := LDS_WIDTH.match(mnemonic):
        return int(match["bits"]) // 8 * (2 if LDS_TWO.match(match["name"]) else 1)
    raise _unknown(mnemonic)


def lds_shape(mnemonic: str) -> tuple[int, int]:
    """Dwords of a lane's access at the banks, and the number of accesses. Raises as ``lds_bytes``.

    Accesses below a dword take a whole one. Three dwords take as long as four.
    """
    if LDS_LANE.match(mnemonic):
        return 1, 1
    if match := LDS_WIDTH.match(mnemonic):
        dwords = -(-int(match["bits"]) // 32)
        return 4 if dwords == 3 else dwords, 2 if LDS_TWO.match(match["name"]) else 1
    raise _unknown(mnemonic)


def vmem_bytes(mnemonic: str) -> int:
    """Bytes per lane of a global, buffer or scratch instruction. 0 for cache control."""
    if not re.search(r"_(load|store|atomic)_", mnemonic):
        return 0
    if match := VMEM_DWORDS.search(mnemonic):
        return 4 * int(match["count"] or 1)
    for part, size in VMEM_PARTS.items():
        if part in mnemonic:
            return size
    if match := VMEM_BITS.search(mnemonic):
        return int(match.group(1)) // 8
    if "_atomic_" in mnemonic:
        return 8 if mnemonic.endswith("_x2") else 4
    raise _unknown(mnemonic)


def _unknown(mnemonic: str) -> PerfError:
    title = "the width of a memory instruction is not known"
    return PerfError(title, [mnemonic], advice="add it to perf/model/cost.py")
