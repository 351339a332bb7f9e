"""Pairs of instructions on the paths through a kernel, and what lies between them.

A register counts as the result of the last instruction that wrote it: an earlier writer has its own distance
to keep from that one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple

from wheel_builder.static_checks.disassembly import Instruction, Kernel
from wheel_builder.static_checks.operations import Registers, registers

Unit = Literal["wait states", "VALU instructions"]

# The first bit of s_waitcnt_depctr's highest field, which counts VALU results to come.
VA_VDST = 12

# Wait states, more than any rule asks for: counting stops here, or paths around a loop would never repeat a
# distance.
ENOUGH = 64


class Distance(NamedTuple):
    """What lies between two instructions on one path; ``settled``: VALU results were waited for."""

    states: int = 0
    valus: int = 0
    transcendentals: int = 0
    settled: bool = False


def waits_for_valu(instruction: Instruction) -> bool:
    """Whether it waits for all VALU results; the LLVM of ROCm 6.4 prints its fields as one number."""
    if instruction.mnemonic != "s_waitcnt_depctr":
        return False
    counters = instruction.first.operands[0]
    return int(counters, 0) >> VA_VDST == 0 if counters[0].isdigit() else "va_vdst(0)" in instruction.text


@dataclass(frozen=True)
class Need:
    """The required distance of two instructions; ``how`` the second depends on the first, in words."""

    how: str
    required: int
    unit: Unit = "wait states"

    def found(self, distance: Distance) -> int:
        return distance.states if self.unit == "wait states" else distance.valus


@dataclass(frozen=True)
class Pair:
    """Two instructions on a path; ``live`` are the second's registers that nothing between them wrote."""

    first: Instruction
    second: Instruction
    live: Registers
    distance: Distance

    @property
    def passed(self) -> Registers:
        """What the second instruction reads of the first's results."""
        return self.first.writes & self.second.reads & self.live

    @property
    def overwritten(self) -> Registers:
        return self.first.writes & self.second.writes & self.live

    @property
    def passed_vectors(self) -> Registers:
        return frozenset(register for register in self.passed if is_vector(register))

    @property
    def passed_scalars(self) -> Registers:
        return self.passed - self.passed_vectors - {"exec"}


class Reach(NamedTuple):
    """How far an arch's rules reach: nothing as far apart as either number needs more distance.

    ``others``: wait states, likewise, where the first is neither a matrix instruction nor transcendental.
    """

    states: float = inf
    valus: float = inf
    others: float = inf


Rules = Callable[[Pair], Iterator[Need]]


def steps_of(kernel: Kernel) -> tuple[Distance, ...]:
    """What each instruction of ``kernel`` adds to the distance of those around it."""
    return tuple(
        Distance(i.wait_states, i.is_valu, i.is_transcendental, waits_for_valu(i) or i.is_memory)
        for i in kernel.instructions
    )


def pairs_before(kernel: Kernel, steps: Sequence[Distance], number: int, reach: Reach) -> Iterator[Pair]:
    """Instruction ``number`` paired with earlier ones on some path that name one of its live registers.

    ``steps`` is ``steps_of(kernel)``; paths end at ``reach``.
    """
    second = kernel.instructions[number]
    most_states, most_valus, most_others = reach
    begin = (0, 0, 0, False, second.reads | second.writes)
    todo = [(before, *begin) for before in kernel.predecessors[number]]
    met = set(todo)
    while todo:
        at, states, valus, transcendentals, settled, live = todo.pop()
        # Numbers by themselves: all else in these lines takes as long as making a tuple.
        while True:
            first = kernel.instructions[at]
            if not live.isdisjoint(first.touches):
                if states < most_others or first.is_late:
                    yield Pair(first, second, live, Distance(states, valus, transcendentals, settled))
                live -= first.writes
            step = steps[at]
            states = min(states + step[0], ENOUGH)
            valus += step[1]
            transcendentals += step[2]
            settled = settled or step[3]
            if not live or states >= most_states or valus >= most_valus:
                break
            earlier = kernel.predecessors[at]
            if len(earlier) == 1:
                [at] = earlier
                continue
            # Only here can paths meet.
            further = {(each, states, valus, transcendentals, settled, live) for each in earlier} - met
            met |= further
            todo += further
            break


def is_vector(register: str) -> bool:
    """Whether it is a VGPR or an AccVGPR."""
    return register[0] in "va" and register != "vcc"


# A matrix instruction's operands


def result(instruction: Instruction) -> Registers:
    """D of a matrix instruction."""
    return _operand(instruction, 0)


def factors(instruction: Instruction) -> Registers:
    """A and B of a matrix instruction."""
    return _operand(instruction, 1) | _operand(instruction, 2)


def summand(instruction: Instruction) -> Registers:
    """C of a matrix instruction; empty for a number."""
    return _operand(instruction, 3)


def _operand(instruction: Instruction, number: int) -> Registers:
    return frozenset(registers(instruction.first.operands[number]))
