"""Wait states of CDNA 1 to CDNA 4.

Numbers: required independent instructions and required software-inserted wait states in each instruction set
manual. If LLVM's hazard recogniser asks for more, LLVM's numbers.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from wheel_builder.machine_code.disassembly.kernels import Instruction
from wheel_builder.machine_code.disassembly.operations import Registers, registers
from wheel_builder.machine_code.static_checks.pairs import Need, Pair, Rules, factors, result, summand

SHAPE = re.compile(r"v_mfma_(?:scale_)?[fi]32_(?P<shape>(?P<tile>\d+x\d+)x\d+(?:_\d+b)?)_?[a-z]\w*$")
CLOCKS_OF_PASS = 4
REACH_CDNA1 = 18
REACH_CDNA2 = 19
REACH_CDNA3 = 19
REACH_CDNA4 = 20
# Of instructions other than matrix instructions.
REACH_OTHERS = 5
# CDNA 1: passes of a matrix instruction -> wait states before its successor.
MFMA_TO_ACC_READ = {2: 4, 8: 10, 16: 18}
MFMA_TO_ACC_WRITE = {2: 1, 8: 7, 16: 15}
MFMA_C_TO_ACC_WRITE = {2: 0, 8: 5, 16: 13}
ACC_READ, ACC_WRITE = "v_accvgpr_read_b32", "v_accvgpr_write_b32"
READS_LANE = ("v_readlane_b32", "v_readfirstlane_b32")
LANES = (*READS_LANE, "v_writelane_b32")
# The last operand is the lane.
SELECTS_LANE = ("v_readlane_b32", "v_writelane_b32")
SWAPS_LANES = re.compile(r"v_permlane\d+_swap_")
HALF_BY_SDWA = re.compile(r"\bdst_sel:(?!DWORD\b)")
OP_SEL = re.compile(r"\bop_sel:\[(?P<bits>[01,]+)\]")
# Conversions into a half or a byte of a register. Two bits of op_sel are a byte's number.
INTO_PART = re.compile(r"v_cvt_(scalef32_)?(pk|sr)_(fp8|bf8)_|v_cvt_sr_b?f16_f32|v_cvt_scalef32_f16_")
INTO_BYTE = re.compile(r"v_cvt_(scalef32_)?sr_(fp8|bf8)_")


def mfma_fault(clocks: Mapping[str, int]) -> Callable[[Instruction], str]:
    """The fault of one matrix instruction by itself, in words. Empty for a correct one."""

    def fault(instruction: Instruction) -> str:
        written = result(instruction)
        if _passes(instruction, clocks) is None:
            return "no wait states are known for this instruction; add its passes to isas.toml"
        if summand(instruction) != written and summand(instruction) & written:
            return "its SrcC overlaps its result without being the same registers"
        # Up to four result registers are written after A and B have been read, more of them during the reads.
        if len(written) > 4 and factors(instruction) & written:
            return "its SrcA or SrcB overlaps its result"
        return ""

    return fault


def cdna0(pair: Pair) -> Iterator[Need]:
    """The wait states required by Vega 20 within a pair: those of CDNA 1 without matrix instructions."""
    yield from _rules({}, lambda *_: iter(()), lambda _: iter(()), after_store=1)(pair)


def cdna1(clocks: Mapping[str, int]) -> Rules:
    """The wait states required by CDNA 1 within a pair."""
    return _rules(clocks, _cdna1_after_mfma, _cdna1_after_valu, after_store=1)


def cdna2(clocks: Mapping[str, int]) -> Rules:
    """The wait states required by CDNA 2 within a pair."""
    return _rules(clocks, _cdna2_after_mfma, _cdna2_after_valu, after_store=1)


def cdna3(clocks: Mapping[str, int]) -> Rules:
    """The wait states required by CDNA 3 within a pair."""
    return _rules(clocks, partial(_cdna3_after_mfma, late=0), _cdna3_after_valu, after_store=2)


def cdna4(clocks: Mapping[str, int]) -> Rules:
    """The wait states required by CDNA 4 within a pair: by LLVM, one more after most 16-bit products."""
    return _rules(clocks, partial(_cdna3_after_mfma, late=1), _cdna3_after_valu, after_store=2)


def _rules(
    clocks: Mapping[str, int],
    after_mfma: Callable[[Pair, int | None], Iterator[Need]],
    after_valu: Callable[[Pair], Iterator[Need]],
    *,
    after_store: int,
) -> Rules:
    def rules(pair: Pair) -> Iterator[Need]:
        if pair.first.first.is_matrix:
            yield from after_mfma(pair, _passes(pair.first, clocks))
        elif pair.first.is_valu:
            yield from _gfx9_after_valu(pair)
            yield from after_valu(pair)
        elif pair.second.first.loads_into_lds and "m0" in pair.passed:
            yield Need("reads the M0 of", 1)
        elif pair.second.is_valu and _stored(pair.first) & pair.second.writes & pair.live:
            yield Need("overwrites the data of", after_store)

    return rules


def _stored(instruction: Instruction) -> Registers:
    """The data registers of a store of three or more. The next instruction may overwrite them too early."""
    operation = instruction.first
    if operation.kind != "vmem" or "_store_" not in operation.mnemonic:
        return frozenset()
    is_buffer = "buffer_" in operation.mnemonic
    if is_buffer and registers(operation.operands[-1]):
        return frozenset()  # an offset in an SGPR takes a further clock
    data = frozenset(registers(operation.operands[0 if is_buffer else 1]))
    return data if len(data) > 2 else frozenset()


def matrix_clocks(mnemonic: str, clocks: Mapping[str, int]) -> int | None:
    """Clocks of an MFMA, by its whole shape or its tile. None if unknown."""
    match = SHAPE.match(mnemonic)
    return (clocks.get(match["shape"]) or clocks.get(match["tile"])) if match else None


def _passes(instruction: Instruction, clocks: Mapping[str, int]) -> int | None:
    found = matrix_clocks(instruction.mnemonic, clocks)
    return found // CLOCKS_OF_PASS if found else None


def _gfx9_after_valu(pair: Pair) -> Iterator[Need]:
    second = pair.second
    if second.first.kind == "vmem" and pair.passed_scalars:
        yield Need("reads the SGPR of", 5)
    if second.mnemonic.startswith("v_div_fmas_") and "vcc" in pair.passed:
        yield Need("reads the VCC of", 4)
    if second.mnemonic in SELECTS_LANE and pair.passed_scalars & {*registers(second.first.operands[-1])}:
        yield Need("selects a lane by the SGPR of", 4)
    if "_dpp" in second.text and pair.passed_vectors:
        yield Need("reads lanes of the VGPR of", 2)
    if "_dpp" in second.text and "exec" in pair.passed:
        yield Need("reads lanes under the EXEC of", 5)


def _cdna1_after_mfma(pair: Pair, passes: int | None) -> Iterator[Need]:
    if passes is None:
        return  # a fault of its own
    second = pair.second
    if second.first.is_matrix:
        if pair.passed & factors(second):
            yield Need("reads as SrcA or SrcB the result of", 4)
        if pair.passed & summand(second) and summand(second) != result(pair.first):
            yield Need("reads as SrcC a part of the result of", 2)
    elif second.mnemonic == ACC_READ and pair.passed_vectors:
        yield Need("reads the result of", MFMA_TO_ACC_READ[passes])
    elif second.mnemonic == ACC_WRITE:
        if pair.overwritten:
            yield Need("overwrites the result of", MFMA_TO_ACC_WRITE[passes])
        if summand(pair.first) & second.writes & pair.live:
            yield Need("overwrites the SrcC of", MFMA_C_TO_ACC_WRITE[passes])


def _cdna1_after_valu(pair: Pair) -> Iterator[Need]:
    second, acc_written = pair.second, pair.first.mnemonic == ACC_WRITE
    if second.first.is_matrix or second.mnemonic == ACC_WRITE:
        if "exec" in pair.passed:
            yield Need("runs under the EXEC of", 4)
        if any(register[0] == "v" for register in pair.passed_vectors):
            yield Need("reads the VGPR of", 2)
    if acc_written and second.first.is_matrix:
        if pair.passed & factors(second):
            yield Need("reads as SrcA or SrcB the AccVGPR of", 3)
        if pair.passed & summand(second):
            yield Need("reads as SrcC the AccVGPR of", 1)
    if acc_written and second.mnemonic == ACC_READ and pair.passed_vectors:
        yield Need("reads the AccVGPR of", 3)
    if second.is_memory and pair.first.mnemonic == ACC_READ and pair.passed_vectors:
        yield Need("reads the VGPR of", 2)


def _cdna2_after_mfma(pair: Pair, passes: int | None) -> Iterator[Need]:
    if passes is None:
        return  # a fault of its own
    second = pair.second
    if second.first.is_matrix:
        if pair.passed & factors(second):
            yield Need("reads as SrcA or SrcB the result of", passes + 3)
        if pair.passed & summand(second) and summand(second) != result(pair.first):
            yield Need("reads as SrcC a part of the result of", passes)
        return
    if pair.passed:
        yield Need("reads the result of", passes + 3)
    if pair.overwritten:
        yield Need("overwrites the result of", passes + 3)
    if summand(pair.first) & second.writes & pair.live:
        yield Need("overwrites the SrcC of", passes - 1)


def _cdna2_after_valu(pair: Pair) -> Iterator[Need]:
    second = pair.second
    if second.first.is_matrix:
        if "exec" in pair.passed:
            yield Need("runs under the EXEC of", 4)
        if pair.passed_vectors:
            yield Need("reads the VGPR of", 2)
        return
    is_dot, same = pair.first.mnemonic.startswith("v_dot"), second.mnemonic == pair.first.mnemonic
    if is_dot and second.is_valu and pair.passed_vectors and not same:
        yield Need("reads the dot product of", 3)


def _cdna3_after_mfma(pair: Pair, passes: int | None, late: int) -> Iterator[Need]:
    if passes is None:
        return  # a fault of its own
    second, single = pair.second, _is_single(pair.first)
    done = passes + (2 if single else 3 if passes == 2 else 3 + late)
    if second.first.is_matrix:
        if pair.passed & factors(second):
            yield Need("reads as SrcA or SrcB the result of", done)
        if pair.passed & summand(second):
            yield from _cdna3_chained(pair, passes, late)
        return
    if pair.passed:
        yield Need("reads the result of", done)
    if pair.overwritten:
        yield Need("overwrites the result of", done)
    if summand(pair.first) & second.writes & pair.live and not single:
        yield Need("overwrites the SrcC of", passes - 1)


def _cdna3_chained(pair: Pair, passes: int, late: int) -> Iterator[Need]:
    if summand(pair.second) == result(pair.first):
        if passes == 2:
            yield Need("adds to the result of", 2)
    elif not _is_single(pair.first):
        early = passes == 2 and _is_single(pair.second)
        yield Need("reads as SrcC a part of the result of", passes + 1 + (0 if early else late))
    elif _is_single(pair.second):
        yield Need("reads as SrcC a part of the result of", passes)


def _is_single(instruction: Instruction) -> bool:
    """Whether the factors are single precision: such instructions have a pipeline of their own."""
    return instruction.mnemonic.endswith("_f32")


def _writes_half(instruction: Instruction) -> bool:
    """Whether it keeps a part of its result's register: by SDWA, or by op_sel's bit of the result."""
    if HALF_BY_SDWA.search(instruction.text):
        return True
    op_sel = OP_SEL.search(instruction.text)
    if not op_sel:
        return False
    bits = op_sel["bits"].split(",")
    if INTO_BYTE.match(instruction.mnemonic):
        return "1" in bits[2:]
    # Packed and mixed instructions have bits for their sources only.
    return len(bits) == len(instruction.first.operands) and bits[-1] == "1"


def _cdna3_after_valu(pair: Pair) -> Iterator[Need]:
    second = pair.second
    if second.first.is_matrix:
        if "exec" in pair.passed:
            yield Need("runs under the EXEC of", 4)
        if pair.passed_vectors:
            yield Need("reads the VGPR of", 2)
    elif second.is_valu:
        yield from _cdna3_between_valus(pair)


def _cdna3_between_valus(pair: Pair) -> Iterator[Need]:
    second = pair.second
    if pair.passed_scalars:
        yield Need("reads the SGPR of", 2)
    # Overwriting counts, too: an instruction keeping the other half reads it.
    if _writes_half(pair.first) and (pair.passed_vectors or pair.overwritten):
        yield Need("reads or overwrites the half register of", 1)
    # LLVM keeps no distance here: the manuals ask for it (CDNA 3's 7.2, CDNA 4's 7.3).
    parts = INTO_PART.match(pair.first.mnemonic) and INTO_PART.match(second.mnemonic)
    if parts and pair.overwritten and not _writes_half(pair.first):
        yield Need("converts into another part of the register of", 1)
    if pair.first.is_transcendental and not second.is_transcendental and pair.passed_vectors:
        yield Need("reads the transcendental result of", 1)
    if second.mnemonic in READS_LANE and pair.passed_vectors:
        yield Need("reads a lane of the VGPR of", 1)
    if second.mnemonic in LANES and "exec" in pair.passed:
        yield Need("runs under the EXEC of", 4)
    if SWAPS_LANES.match(second.mnemonic) and pair.passed_vectors:
        yield Need("swaps lanes of the VGPR of", 2)
