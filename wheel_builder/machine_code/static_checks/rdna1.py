"""RDNA 1: dependencies that its hardware does not wait for, and instructions that it gets wrong.

The rules are those of LLVM's hazard recogniser for gfx10.1 (FeatureISAVersion10_1_Common):

- A vector memory or LDS operation reads its scalar registers, M0 and EXEC after its issue. Before the scalar
  unit or a scalar load overwrites one, code has a vector instruction, waits for these reads, or waits for the
  operation. LLVM ignores EXEC written by ``s_and_saveexec``. Mesa's compiler does not, nor does this check.
  Kernels wait by themselves (``late_operands`` of isas.toml).
- Between an LDS operation and a vector memory operation, or the reverse, with a branch between them, code
  waits for all stores: ``s_waitcnt_vscnt null, 0``.
- A scalar load reads its address after its issue. Before the vector unit overwrites it, code has an
  instruction of the scalar unit that computes, or waits for the load.
- ``v_cmpx`` overwrites EXEC before others have read it. A branch over 0x3f dwords goes astray. Instruction
  prefetch stops. A flat access ignores its offset. The compiler writes none of these.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from wheel_builder.machine_code.disassembly.blocks import Blocks
from wheel_builder.machine_code.disassembly.kernels import Instruction, Kernel
from wheel_builder.machine_code.disassembly.operations import Registers
from wheel_builder.machine_code.static_checks.waits import states_before

NEVER = re.compile(r"(?P<cmpx>v_cmpx_)|(?P<prefetch>s_inst_prefetch )|(?P<flat>flat_.* offset:)")
WHY_NEVER = {
    "cmpx": "it may overwrite EXEC before earlier instructions have read it",
    "prefetch": "instruction prefetch can stop the GPU",
    "flat": "the offset of a flat access is ignored",
}
BRANCH = re.compile(r"s_c?branch")
ASTRAY = "0x3f"
# Scalar instructions that compute nothing (LLVM's SOPP), and waits for stores.
IDLE = re.compile(
    r"s_(nop|branch|cbranch\w*|waitcnt\w*|endpgm|barrier|sleep|setprio|sendmsg\w*|sethalt|clause|code_end|version|"
    r"ttracedata\w*|icache_inv|round_mode|denorm_mode|trap|incperflevel|decperflevel|setvskip)$"
)
WAITS_FOR_STORES = re.compile(r"s_waitcnt_vscnt null, (0x)?0$")
VM_VSRC = 0b111 << 2  # the bits of s_waitcnt_depctr's number that are zero where it waits for these reads
SCALAR = re.compile(r"s\d+$|vcc$|m0$|exec$")
# LDS and vector memory operations, and those with a branch behind them, as bits.
KINDS = {"lds": 1, "vmem": 2}
WORDS = {"lds": "an LDS operation", "vmem": "a vector memory operation"}
BRANCHED = 2


class State(NamedTuple):
    """Scalar registers that operations may still read, and the last LDS or vector memory operation.

    ``memory``: read by LDS and vector memory operations, each with the counter of its operation. ``loads``:
    by scalar loads. ``last``: bits of KINDS, and the same shifted by BRANCHED with a branch behind them.
    """

    memory: frozenset[tuple[str, str]] = frozenset()
    loads: Registers = frozenset()
    last: int = 0

    def met(self, other: "State") -> "State":
        return State(self.memory | other.memory, self.loads | other.loads, self.last | other.last)


def unsafe_on_rdna1(kernel: Kernel) -> Iterator[str]:
    """In words, each instruction that RDNA 1 may get wrong.

    Raises ``DeviceCodeError`` for paths it cannot follow.
    """
    code = kernel.instructions
    before = states_before(Blocks.of(kernel), State(), lambda state, number: _after(state, code[number]))
    for number in kernel.reached:
        for problem in (*_never(code[number]), *_problems(before[number], code[number])):
            yield f"{code[number]} {problem}"


def _never(instruction: Instruction) -> Iterator[str]:
    if match := NEVER.match(instruction.text):
        yield f"is never right on this arch: {WHY_NEVER[match.lastgroup or '']}"
    if instruction.target is not None and instruction.first.operands[-1] == str(int(ASTRAY, 16)):
        yield f"jumps over {ASTRAY} dwords, which goes astray on this arch: needs an s_nop more or less"


def _problems(state: State, instruction: Instruction) -> Iterator[str]:
    kind, writes = instruction.first.kind, _scalars(instruction.writes)
    if kind in ("salu", "smem") and (early := writes & {each for _, each in state.memory}):
        yield (
            f"writes {_names(early)}, which an earlier LDS or vector memory operation may still read: "
            "needs s_waitcnt_depctr vm_vsrc(0) between them"
        )
    if kind == "valu" and (early := writes & state.loads):
        yield (
            f"writes {_names(early)}, which an earlier scalar load may still read: "
            "needs s_mov_b32 null, 0 between them"
        )
    other = next((each for each in KINDS if each != kind), "") if kind in KINDS else ""
    if other and state.last & KINDS[other] << BRANCHED:
        yield f"follows {WORDS[other]} behind a branch: needs s_waitcnt_vscnt null, 0 between them"


def _after(state: State, instruction: Instruction) -> State:
    memory, loads, last = state
    kind, reads = instruction.first.kind, _scalars(instruction.reads)
    memory = frozenset() if kind == "valu" or _reads_all(instruction) else memory
    if done := _done(instruction):
        memory = frozenset(each for each in memory if each[0] not in done)
    if _helps_loads(instruction):
        loads = frozenset()
    if WAITS_FOR_STORES.match(instruction.text):
        last = 0
    if BRANCH.match(instruction.mnemonic):
        last |= (last & 0b11) << BRANCHED
        last &= ~0b11
    if kind in KINDS:
        counter = "lgkmcnt" if kind == "lds" else "vscnt" if "_store_" in instruction.mnemonic else "vmcnt"
        memory, last = memory | {(counter, each) for each in reads}, KINDS[kind]
    if kind == "smem":
        loads |= reads
    return State(memory, loads, last)


def _reads_all(instruction: Instruction) -> bool:
    """Whether it waits until all operations have read. LLVM 21 prints its fields as one number."""
    if instruction.mnemonic != "s_waitcnt_depctr":
        return False
    fields = instruction.first.operands[0]
    return not int(fields, 0) & VM_VSRC if fields[0].isdigit() else "vm_vsrc(0)" in instruction.text


def _done(instruction: Instruction) -> tuple[str, ...]:
    """The counters whose operations it waits for."""
    if WAITS_FOR_STORES.match(instruction.text):
        return ("vscnt",)
    if instruction.mnemonic != "s_waitcnt":
        return ()
    return tuple(name for name in ("vmcnt", "lgkmcnt") if f"{name}(0)" in instruction.text)


def _helps_loads(instruction: Instruction) -> bool:
    if instruction.mnemonic == "s_waitcnt":
        return "lgkmcnt(0)" in instruction.text
    return instruction.first.kind == "salu" and not IDLE.match(instruction.mnemonic)


def _scalars(registers: Registers) -> Registers:
    return frozenset(filter(SCALAR.match, registers))


def _names(registers: Registers) -> str:
    return ", ".join(sorted(registers, key=lambda name: (len(name), name)))
