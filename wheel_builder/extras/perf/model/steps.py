"""A kernel's instructions as the schedule sees them: ports, clocks, registers and wait counters."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from math import ceil

from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.model import cost
from wheel_builder.extras.perf.model.lds import Charge
from wheel_builder.machine_code.disassembly.counters import APART, waited_for
from wheel_builder.machine_code.disassembly.kernels import Instruction
from wheel_builder.machine_code.disassembly.operations import TRANSCENDENTAL, Operation, registers
from wheel_builder.tables.archs import Arch, Timing, arch_named

# By the counters' names on the ISAs. The last one exists only on ISAs with a separate counter for scalars.
COUNTERS = {"vmcnt": 0, "loadcnt": 0, "lgkmcnt": 1, "dscnt": 1, "vscnt": 2, "storecnt": 2, "kmcnt": 3}
LOADS, LDS, STORES, SCALARS = range(4)
WAITED = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
BYTES_STORED = 128  # into LDS, a clock of a compute unit
SLEEP = 64  # clocks of s_sleep's unit
FRONT_END = frozenset(
    {
        "s_nop",
        "s_sleep",
        "s_delay_alu",
        "s_clause",
        "s_setprio",
        "s_inst_prefetch",
        "s_code_end",
        "s_sendmsg",
        "s_barrier_signal",
    }
)


class Port(IntEnum):
    """The issue port held exclusively by an instruction."""

    NONE = 0
    VALU = 1
    MATRIX = 2
    SALU = 3
    LDS = 4
    VMEM = 5
    BARRIER = 6
    END = 7
    EXPONENTIAL = 8


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction. Registers are numbers. Clocks count from its issue.

    - ``busy``: clocks on its port. For an LDS instruction, on the banks.
    - ``hold``: clocks of a matrix instruction or exponential on the VALU's port, of an LDS instruction on the
      way to the LDS (shared by some SIMDs), and of a load past the registers on the LDS's banks.
    - ``pause``: when the wave may issue again.
    - ``result``: when ``writes`` can be read.
    - ``sums``: accumulated registers, forwarded at once from one matrix instruction to the next.
    - ``counter``: the wait counter raised for ``latency`` clocks beyond its turn, or -1.
    - ``waits``: counters, and the number each may still have.
    - ``priority``: the wave's new priority, or -1 to keep it.
    - ``exclusive``: excludes matrix instructions of the SIMD, in the schedule with this rule.
    """

    port: Port
    busy: int = 0
    hold: int = 0
    pause: int = 1
    result: int = 0
    reads: tuple[int, ...] = ()
    sums: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    counter: int = -1
    latency: int = 0
    waits: tuple[tuple[int, int], ...] = ()
    dot2: bool = False
    priority: int = -1
    exclusive: bool = False


def steps(
    arch: str, instructions: Iterable[Instruction], machine: Timing | None = None
) -> Mapping[int, Step]:
    """The steps by address, with the arch's numbers or others. Raises ``PerfError`` for missing numbers."""
    hardware = arch_named(arch)
    reader = _Reader(hardware, machine or hardware.isa.timing, {})
    return {instruction.address: reader.step(instruction) for instruction in instructions}


def charged(step: Step, charge: Charge, *, port: bool) -> Step:
    """An LDS instruction's step with the clocks of one execution, and with those at the port if ``port``."""
    return replace(step, busy=charge.banks, hold=ceil(charge.port) if port else 0)


@dataclass(frozen=True)
class _Reader:
    arch: Arch
    machine: Timing
    registers: dict[str, int]

    def step(self, instruction: Instruction) -> Step:
        operation = instruction.first
        if operation.is_matrix:
            return self._matrix(operation)
        if operation.kind == "valu":
            return self._valu(instruction)
        if operation.kind in ("lds", "vmem", "smem"):
            return self._memory(instruction)
        return self._scalar(instruction)

    def _matrix(self, operation: Operation) -> Step:
        clocks = cost.matrix_clocks(self.arch.name, operation.mnemonic)
        target, first, second, start = operation.operands[:4]
        chained = start == target
        scales = [name for each in operation.operands[4:6] for name in registers(each)]
        factors = [*registers(first), *registers(second), *scales]
        return Step(
            Port.MATRIX,
            busy=clocks,
            hold=self.machine.matrix_issue or clocks,
            pause=self.machine.slot,
            result=clocks + self.machine.matrix_result,
            reads=self._numbered([*factors, *([] if chained else registers(start))]),
            sums=self._numbered(registers(target)),
            writes=self._numbered(registers(target)),
        )

    def _valu(self, instruction: Instruction) -> Step:
        machine, name = self.machine, instruction.mnemonic
        busy, result = machine.valu, machine.valu_result
        if TRANSCENDENTAL.match(name):
            busy, result = machine.transcendental, machine.transcendental_result
        elif cost.SLOW.match(name):
            busy, result = machine.slow, max(machine.slow, machine.valu_result)
        elif cost.CONVERSION.match(name):
            busy, result = machine.conversion, max(machine.conversion, machine.valu_result)
        issue = machine.exponential_issue if TRANSCENDENTAL.match(name) else 0
        return Step(
            Port.EXPONENTIAL if issue else Port.VALU,
            busy=busy,
            hold=issue,
            pause=machine.slot,
            result=result,
            reads=self._numbered(instruction.reads),
            writes=self._numbered(instruction.writes),
            dot2=any(cost.is_dot2(operation.mnemonic) for operation in instruction.operations),
            exclusive=cost.is_exclusive(self.arch.isa, name),
        )

    def _memory(self, instruction: Instruction) -> Step:
        machine, name, kind = self.machine, instruction.mnemonic, instruction.first.kind
        reads = self._numbered(instruction.reads)
        step = partial(Step, pause=machine.slot, reads=reads)
        if kind == "lds":
            busy = -(-cost.lds_bytes(name) * self.arch.isa.wave // machine.lds_bytes)
            return step(Port.LDS, busy=busy, counter=LDS, latency=machine.lds)
        if kind == "smem":
            counter = SCALARS if self.arch.isa.counters.scalars_apart else LDS
            return step(Port.SALU, busy=machine.slot, counter=counter, latency=machine.smem)
        busy = max(-(-cost.vmem_bytes(name) * self.arch.isa.wave // machine.vmem_bytes), machine.slot)
        stores = re.search("_(store|atomic)_", name) and not instruction.writes
        counter = STORES if stores and self.arch.isa.counters.stores_apart else LOADS
        # Loads past the registers are stored at the banks, as wide as reads of 32 banks are.
        past = instruction.first.loads_into_lds
        stored = cost.vmem_bytes(name) * self.arch.isa.wave // BYTES_STORED if past else 0
        return step(Port.VMEM, busy=busy, hold=stored, counter=counter, latency=machine.vmem)

    def _scalar(self, instruction: Instruction) -> Step:
        slot, name = self.machine.slot, instruction.mnemonic
        if name.startswith("s_wait"):
            return Step(Port.NONE, pause=slot, waits=_waits(instruction))
        if name in FRONT_END:
            priority = int(instruction.first.operands[0], 0) if name == "s_setprio" else -1
            return Step(Port.NONE, pause=self._pause(instruction), priority=priority)
        if name in ("s_barrier", "s_barrier_wait"):
            return Step(Port.BARRIER, pause=self.machine.barrier)
        if name == "s_endpgm":
            return Step(Port.END)
        reads, writes = self._numbered(instruction.reads), self._numbered(instruction.writes)
        if name.startswith(("s_cbranch", "s_branch")):
            return Step(Port.NONE, pause=self.machine.branch, reads=reads)
        return Step(Port.SALU, slot, pause=slot, result=self.machine.salu_result, reads=reads, writes=writes)

    def _pause(self, instruction: Instruction) -> int:
        """The delay of the wave's next instruction after one without a port."""
        slot, operands = self.machine.slot, instruction.first.operands
        if instruction.mnemonic == "s_nop":
            return slot * instruction.wait_states
        return max(SLEEP * int(operands[0], 0), slot) if instruction.mnemonic == "s_sleep" else slot

    def _numbered(self, names: Iterable[str]) -> tuple[int, ...]:
        table = self.registers
        return tuple(sorted({table.setdefault(name, len(table)) for name in names}))


def _waits(instruction: Instruction) -> tuple[tuple[int, int], ...]:
    name, text = instruction.mnemonic, instruction.text
    if name == "s_waitcnt":
        return _all_named(instruction, [(COUNTERS[word], int(left)) for word, left in WAITED.findall(text)])
    if name == "s_waitcnt_vscnt":
        return ((STORES, int(instruction.first.operands[-1], 0)),)
    if name in ("s_waitcnt_depctr", "s_wait_alu"):
        return ()
    if name in APART:
        left = waited_for(instruction.first).items()
        return tuple((COUNTERS[counter], count) for counter, count in left if counter in COUNTERS)
    raise _unread(instruction)


def _all_named(instruction: Instruction, found: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    if not found and "expcnt" not in instruction.text:
        raise _unread(instruction)
    return tuple(found)


def _unread(instruction: Instruction) -> PerfError:
    title = "a wait is not written as perf/model/steps.py reads it"
    return PerfError(title, [str(instruction)], advice="add it to disassembly/counters.py")
