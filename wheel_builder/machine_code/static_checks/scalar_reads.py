"""Scalar registers on RDNA 4: reads too early, after a read by the VALU and a later write.

RDNA4 instruction set manual, data dependency resolution: once a VALU instruction has read any part of an
aligned pair of SGPRs, the hardware no longer waits for later writes to this pair. Before the next read of it,

- by the scalar or vector unit after a write by the scalar unit, code waits for ``sa_sdst(0)``;
- by the vector unit after a write by the vector unit, for ``va_sdst(0)``, or ``va_vcc(0)`` for VCC.

A scalar or buffer memory instruction waits for all of them. A scalar instruction reading such a pair waits
for the vector unit's writes (LLVM's AMDGPUWaitSGPRHazards, which inserts the compiler's waits).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from typing import NamedTuple

from wheel_builder.machine_code.disassembly.blocks import Blocks
from wheel_builder.machine_code.disassembly.kernels import Instruction, Kernel
from wheel_builder.machine_code.static_checks.waits import states_before

VCC = 106
VCC_BITS, EVEN = 0b11 << VCC, int("01" * 64, 2)
# Bits of s_wait_alu's number, zero when it waits for all results of this kind.
FIELDS = {"va_vcc": 1 << 1, "sa_sdst": 1 << 0, "va_sdst": 0b111 << 9}
NAMED = re.compile(r"(va_vcc|sa_sdst|va_sdst)\(0\)")
SETTLES_ALL = re.compile(r"t?buffer_(load|store|atomic)_")
# Scalar instructions with an implicit read of VCC.
READS_VCC = re.compile(r"s_cbranch_vcc")
# Those reading their destination, left out of ``Operation.reads``: no other rule asks what scalar
# instructions read, and all archs' modelled figures would change, whose loops have ``s_mulk`` and ``s_addk``.
MERGES = re.compile(r"s_(addk|mulk|cmovk?|bitset[01]|fmac)_")


class State(NamedTuple):
    """Registers as bits: pairs read by the vector unit, and later writes to them by each unit.

    ``vcc``: writes to VCC by the vector unit.
    """

    tracked: int = 0
    by_salu: int = 0
    by_valu: int = 0
    vcc: int = 0

    def met(self, other: "State") -> "State":
        return State(*(mine | its for mine, its in zip(self, other, strict=True)))


@dataclass(frozen=True)
class Effect:
    """The effect of an instruction: the fields it waits for, and the bits of its reads and writes."""

    unit: str  # "valu", "salu" or "" for all others
    settles: tuple[str, ...]
    reads: int
    writes: int


def stale_scalar_reads(kernel: Kernel) -> Iterator[str]:
    """In words, each instruction with a possible read of a scalar register before its last write is done.

    Raises ``DeviceCodeError`` for paths it cannot follow.
    """
    effects = {number: _effect(kernel.instructions[number]) for number in kernel.reached}
    before = states_before(Blocks.of(kernel), State(), lambda state, number: _after(state, effects[number]))
    for number, effect in effects.items():
        for field, stale in _stale(before[number], effect).items():
            if stale:
                instruction = kernel.instructions[number]
                yield (
                    f"{instruction} reads {_names(stale)}, written since the vector unit has read it: "
                    f"needs s_wait_alu with {field}(0) before it"
                )


def _stale(state: State, effect: Effect) -> Mapping[str, int]:
    """The registers read too early, by the field to wait for."""
    valu = effect.reads if effect.unit == "valu" else 0
    scalar = effect.reads if effect.unit in ("valu", "salu") else 0
    return {
        "sa_sdst": state.by_salu & scalar,
        "va_sdst": state.by_valu & valu,
        "va_vcc": state.vcc & valu,
    }


def _after(state: State, effect: Effect) -> State:
    tracked, by_salu, by_valu, vcc = state
    if "sa_sdst" in effect.settles:
        by_salu = 0
    if "va_sdst" in effect.settles:
        by_valu = 0
    if "va_vcc" in effect.settles:
        vcc = 0
    if effect.unit == "salu":
        # The scalar unit's reads of tracked registers wait for the vector unit.
        vcc = 0 if effect.reads & tracked & VCC_BITS else vcc
        by_valu = 0 if effect.reads & tracked & ~VCC_BITS else by_valu
    if effect.unit == "valu":
        tracked |= _pairs(effect.reads)
    written = effect.writes & tracked
    both = written & VCC_BITS
    if effect.unit == "salu":
        by_salu |= written
        vcc &= ~both
    if effect.unit == "valu":
        by_valu |= written & ~VCC_BITS
        vcc |= both
        by_salu &= ~both
    return State(tracked, by_salu, by_valu, vcc)


def _effect(instruction: Instruction) -> Effect:
    kind = instruction.first.kind
    if instruction.mnemonic == "s_wait_alu":
        return Effect("", _fields(instruction), 0, 0)
    if kind == "smem" or SETTLES_ALL.match(instruction.mnemonic):
        return Effect("", tuple(FIELDS), 0, 0)
    if kind not in ("valu", "salu"):
        return Effect("", (), 0, 0)
    reads, writes = (
        _or(_bits(register) for register in named) for named in (instruction.reads, instruction.writes)
    )
    reads |= VCC_BITS if READS_VCC.match(instruction.mnemonic) else 0
    reads |= writes if MERGES.match(instruction.mnemonic) else 0
    return Effect(kind, (), reads, writes)


def _fields(instruction: Instruction) -> tuple[str, ...]:
    """The fields s_wait_alu waits for. LLVM prints them as one number, or the waiting ones by name."""
    first = instruction.first.operands[0]
    if first[0].isdigit():
        return tuple(name for name, bits in FIELDS.items() if not int(first, 0) & bits)
    return tuple(NAMED.findall(instruction.text))


@cache
def _bits(register: str) -> int:
    """A scalar register as a bit. EXEC and M0 are outside of the rule."""
    if register == "vcc":
        return VCC_BITS
    return 1 << int(register[1:]) if register[0] == "s" else 0


def _pairs(bits: int) -> int:
    """Both registers of each aligned pair with one set bit."""
    even = (bits | bits >> 1) & EVEN
    return even | even << 1


def _names(bits: int) -> str:
    named = ["vcc"] if bits & VCC_BITS else []
    return ", ".join([*(f"s{number}" for number in range(VCC) if bits >> number & 1), *named])


def _or(bits: Iterable[int]) -> int:
    return reduce(or_, bits, 0)
