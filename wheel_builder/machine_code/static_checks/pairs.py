"""Pairs of instructions on the paths through a kernel, and the code between them.

A register counts as the result of its last writer. An earlier writer has its own distance to keep from the
last one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple

from wheel_builder.machine_code.disassembly.kernels import Instruction, Kernel
from wheel_builder.machine_code.disassembly.operations import Registers, registers

Unit = Literal["wait states", "VALU instructions"]

# The first bit of s_waitcnt_depctr's highest field, the count of pending VALU results.
VA_VDST = 12

# Wait states, above every rule: counting stops here, so distances around a loop repeat.
ENOUGH = 64


class Distance(NamedTuple):
    """The distance of two instructions on one path. ``settled``: VALU results were waited for."""

    states: int = 0
    valus: int = 0
    transcendentals: int = 0
    settled: bool = False


def waits_for_valu(instruction: Instruction) -> bool:
    """Whether it waits for all VALU results. The LLVM of ROCm 6.4 prints its fields as one number."""
    if instruction.mnemonic != "s_waitcnt_depctr":
        return False
    counters = instruction.first.operands[0]
    return int(counters, 0) >> VA_VDST == 0 if counters[0].isdigit() else "va_vdst(0)" in instruction.text


def settles(instruction: Instruction) -> bool:
    """Whether the hardware issues it after all VALU results only. Scalar loads do not wait for them."""
    return instruction.first.kind in ("vmem", "lds") or waits_for_valu(instruction)


@dataclass(frozen=True)
class Need:
    """The required distance of two instructions.

    ``how`` describes the dependency of the second on the first.
    """

    how: str
    required: int
    unit: Unit = "wait states"

    def found(self, distance: Distance) -> int:
        return distance.states if self.unit == "wait states" else distance.valus


class Pair(NamedTuple):
    """Two instructions on a path. ``live``: the first's registers, unwritten in between.

    ``passed``: results of the first read by the second.
    """

    first: Instruction
    second: Instruction
    live: Registers
    distance: Distance
    passed: Registers

    @property
    def overwritten(self) -> Registers:
        return self.first.writes & self.second.writes & self.live

    @property
    def passed_vectors(self) -> Registers:
        return frozenset(filter(is_vector, self.passed))

    @property
    def passed_scalars(self) -> Registers:
        return self.passed - self.passed_vectors - {"exec"}


class Reach(NamedTuple):
    """The reach of an arch's rules: instructions as far apart as either number are far enough.

    ``others``: wait states, likewise, if the first is neither a matrix instruction nor transcendental.
    """

    states: float = inf
    valus: float = inf
    others: float = inf


Rules = Callable[[Pair], Iterator[Need]]


class Step(NamedTuple):
    """An instruction on a path: its registers, and its part in the distance of its neighbours.

    ``is_second``: rules make it depend on others.
    """

    uses: Registers
    writes: Registers
    states: int
    valus: int
    transcendentals: int
    settles: bool
    is_second: bool


class Steps(NamedTuple):
    """A kernel's steps, and the number of each one's only successor, or -1 where paths fork or join."""

    steps: Sequence[Step]
    followers: Sequence[int]


def steps_of(kernel: Kernel) -> Steps:
    """The steps of a kernel's instructions, as needed for pairs."""
    known: dict[str, Step] = {}
    for i in kernel.instructions:
        if i.text not in known:
            known[i.text] = Step(
                i.uses, i.writes, i.wait_states, i.is_valu, i.is_transcendental,
                settles(i), i.is_valu or i.is_memory,
            )  # fmt: skip
    before = kernel.predecessors
    followers = [
        after[0] if len(after) == 1 and len(before[after[0]]) == 1 else -1 for after in kernel.successors
    ]
    return Steps([known[i.text] for i in kernel.instructions], followers)


def pairs_after(kernel: Kernel, code: Steps, number: int, reach: Reach) -> Iterator[Pair]:
    """Instruction ``number`` paired with later ones on some path: dependent ones, and writers of its sources.

    ``code`` is ``steps_of(kernel)``. Paths end at ``reach``. Registers only read by both need no rule.
    """
    first = kernel.instructions[number]
    most_states = reach.states if first.is_late else min(reach.states, reach.others)
    most_valus, (steps, followers) = reach.valus, code
    if most_states <= 0 or not first.touches:
        return
    todo = [(after, 0, 0, 0, False, first.touches) for after in kernel.successors[number]]
    met: set[tuple[int, int, int, int, bool, Registers]] = set()
    while todo:
        at, states, valus, transcendentals, settled, live = todo.pop()
        # Plain numbers: all other work in these lines takes as long as making a tuple.
        while True:
            uses, writes, more_states, more_valus, more_transcendentals, settles, is_second = steps[at]
            if not live.isdisjoint(uses):
                if is_second:
                    second = kernel.instructions[at]
                    passed = first.writes & second.reads & live
                    if passed or not live.isdisjoint(writes):
                        yield Pair(
                            first, second, live, Distance(states, valus, transcendentals, settled), passed
                        )
                live -= writes
            states += more_states
            valus += more_valus
            transcendentals += more_transcendentals
            settled = settled or settles
            if not live or states >= most_states or valus >= most_valus:
                break
            if followers[at] >= 0:
                at = followers[at]
                continue
            # Only here can paths meet.
            states = min(states, ENOUGH)
            now = states, valus, transcendentals, settled, live
            further = {(each, *now) for each in kernel.successors[at]}
            further -= met
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
    """A and B of a matrix instruction, and their scales."""
    operands = instruction.first.operands
    return frozenset(name for each in (*operands[1:3], *operands[4:6]) for name in registers(each))


def summand(instruction: Instruction) -> Registers:
    """C of a matrix instruction. Empty for a number."""
    return _operand(instruction, 3)


def _operand(instruction: Instruction, number: int) -> Registers:
    return frozenset(registers(instruction.first.operands[number]))
