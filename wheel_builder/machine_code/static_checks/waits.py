"""Missing waits: a memory operation's result must stay unused until its counter reports its arrival.

Every path through a kernel is checked, loops included. For each register in flight the check counts the later
operations of its queue. Once the number still in flight is no larger than this count, the register has
arrived. At joins of paths, the smaller count holds.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from typing import NamedTuple, Protocol, Self, TypeVar

from wheel_builder.machine_code.disassembly.blocks import Blocks
from wheel_builder.machine_code.disassembly.counters import (
    HIGH,
    LDS_BYTES,
    LOADED_LDS_BYTES,
    LOW,
    Flight,
    Queue,
    flights,
    half_used,
    is_inert,
    waited_for,
)
from wheel_builder.machine_code.disassembly.kernels import Instruction, Kernel
from wheel_builder.machine_code.disassembly.operations import Registers
from wheel_builder.machine_code.static_checks.findings import Finding
from wheel_builder.tables.archs import arch_named

CHECK = "waits"
# A wave's arrival at a barrier. Of a barrier in two halves, the first one.
ARRIVES = re.compile(r"s_barrier(_signal\w*)?$")

# Above the range of every counter: counting stops here, so numbers around a loop repeat.
ENOUGH = 64
HALVES = (LOW, HIGH)
S = TypeVar("S", bound="State")


class Flown(NamedTuple):
    """The number of later operations in its queue, and the number of the issuing instruction."""

    later: int
    origin: int


class Use(NamedTuple):
    """The numbers of an instruction using something in flight, and of the one that put it in flight."""

    second: int
    first: int
    counter: str


class Step(NamedTuple):
    """One instruction: its waits by counter, the registers it uses, and those it leaves in flight."""

    instruction: Instruction
    waits: tuple[tuple[str, int], ...]
    uses: Registers
    flights: tuple[Flight, ...]


InFlight = Mapping[tuple[Queue, str], Flown]
Early = dict[Use, tuple[int, Registers]]


def check_waits(arch: str, kernel: Kernel) -> tuple[Finding, ...]:
    """Every use of something possibly in flight on some path.

    Raises ``DeviceCodeError`` for paths it cannot follow, for instructions with an unknown effect on the
    counters, and for an arch without rules.
    """
    early = early_uses(steps_of(arch, kernel), Blocks.of(kernel), {0: {}}, [0])
    texts = [_words(kernel, use, *early[use]) for use in sorted(early)]
    return tuple(Finding(CHECK, arch, kernel.name, text) for text in texts)


def steps_of(arch: str, kernel: Kernel) -> dict[int, Step]:
    """The reachable instructions by number. Raises ``ArchError`` for an arch without rules."""
    arch_named(arch)
    return {number: _step(arch, kernel.instructions[number]) for number in kernel.reached}


def _step(arch: str, instruction: Instruction) -> Step:
    uses = instruction.uses
    if is_inert(instruction.mnemonic):
        return Step(instruction, (), uses, ())
    flying = flights(arch, instruction.first)
    arrives = ARRIVES.match(instruction.mnemonic) is not None
    if arrives or any(LDS_BYTES in f.results for f in flying):
        uses |= {LDS_BYTES}
    if arrives:
        uses |= {LOADED_LDS_BYTES}
    if instruction.mnemonic.startswith("s_cbranch_vcc"):
        uses |= {"vcc"}
    return Step(instruction, tuple(waited_for(instruction.first).items()), uses, flying)


class State(Protocol):
    """What is known on a path. ``met``: where it joins another."""

    def met(self, other: Self) -> Self: ...


def states_before(blocks: Blocks, begin: S, after: Callable[[S, int], S]) -> Mapping[int, S]:
    """The state before each instruction on any path, by its number. ``after``: the state behind it."""
    entry: dict[int, S] = {0: begin}
    found: dict[int, S] = {}
    todo = [0]
    while todo:
        block = blocks.by_first[heappop(todo)]
        state = entry[block[0]]
        for number in block:
            found[number] = state
            state = after(state, number)
        for successor in blocks.after[block[-1]]:
            met = entry[successor].met(state) if successor in entry else state
            if met != entry.get(successor):
                entry[successor] = met
                if successor not in todo:
                    heappush(todo, successor)
    return found


def early_uses(
    steps: Mapping[int, Step], blocks: Blocks, before: dict[int, InFlight], todo: list[int]
) -> Early:
    """For each early use, the count required of the wait, and the registers.

    ``before`` holds the registers possibly in flight at the start of each block, by its first instruction. It
    grows until it holds for every path from the blocks ``todo`` on.
    """
    early: Early = {}
    while todo:
        block = blocks.by_first[heappop(todo)]
        path = Path(before[block[0]], early)
        for number in block:
            path.step(number, steps[number])
        left = path.in_flight()
        for successor in blocks.after[block[-1]]:
            met = _worst(before[successor], left) if successor in before else left
            if met != before.get(successor):
                before[successor] = met
                if successor not in todo:
                    heappush(todo, successor)
    return early


class Path:
    """The registers in flight along one path. Early uses are added to ``early``."""

    def __init__(self, begin: InFlight, early: Early) -> None:
        self.early = early
        self.issued: Counter[Queue] = Counter()
        # By queue and register: the operation's position in its queue, and its number in the kernel.
        self.flying: dict[Queue, dict[str, tuple[int, int]]] = {}
        # Names of halves in flight somewhere on the path.
        self.halves: set[str] = set()
        for (queue, register), flown in begin.items():
            self.flying.setdefault(queue, {})[register] = -flown.later, flown.origin
            if register.endswith(HALVES):
                self.halves.add(register)

    def in_flight(self) -> InFlight:
        return {
            (queue, register): Flown(min(self.issued[queue] - place, ENOUGH), origin)
            for queue, flying in self.flying.items()
            for register, (place, origin) in flying.items()
        }

    def step(self, number: int, step: Step) -> None:
        """Pass one instruction."""
        for counter, count in step.waits:
            self._wait(counter, count)
        for queue, flying in self.flying.items():
            if self.halves or not flying.keys().isdisjoint(step.uses):
                self._use(number, step, queue, flying)
        for flight in step.flights:
            self.issued[flight.queue] += 1
            place = self.issued[flight.queue], number
            self.flying.setdefault(flight.queue, {}).update(dict.fromkeys(flight.results, place))
            self.halves.update(name for name in flight.results if name.endswith(HALVES))

    def _use(self, number: int, step: Step, queue: Queue, flying: Mapping[str, object]) -> None:
        for register in self._met(flying, step):
            # With ordered writes a later result comes later, even to the same register.
            ordered = queue.writes_in_order and any(
                flight.queue == queue and register in flight.results for flight in step.flights
            )
            if not ordered or register in step.instruction.reads:
                self._note(number, queue, register)

    def _met(self, flying: Mapping[str, object], step: Step) -> Iterable[str]:
        """Registers in flight used by ``step``. For one arriving by halves, only the matching half."""
        met = flying.keys() & step.uses
        for name in flying.keys() & self.halves:
            register, half = name[:-2], name[-2:]
            if register in step.uses:
                used = half_used(step.instruction.operations, register)
                met |= {name} if used in ("", half) else set()
        return met

    def _wait(self, counter: str, count: int) -> None:
        for queue in [queue for queue in self.flying if queue.counter == counter]:
            if queue.in_order or count == 0:
                done = self.issued[queue] - count
                left = {register: at for register, at in self.flying[queue].items() if at[0] > done}
                self.flying[queue] = left
                if not left:
                    del self.flying[queue]

    def _note(self, number: int, queue: Queue, register: str) -> None:
        place, origin = self.flying[queue][register]
        use = Use(number, origin, queue.counter)
        count = self.issued[queue] - place if queue.in_order else 0
        least, registers = self.early.get(use, (count, frozenset()))
        self.early[use] = min(least, count), registers | {register}


def _worst(one: InFlight, other: InFlight) -> InFlight:
    """The registers in flight where two paths meet. The nearer operation counts."""
    both = dict(one)
    for key, flown in other.items():
        both[key] = min(flown, both.get(key, flown))
    return both


def _words(kernel: Kernel, use: Use, count: int, registers: Iterable[str]) -> str:
    first, *more = sorted(registers, key=lambda name: (len(name), name))
    what = f"{first} and {len(more)} more" if more else first
    return (
        f"{kernel.instructions[use.second]} needs {what} of {kernel.instructions[use.first]}: "
        f"{use.counter}({count}) must be waited for on every path between them"
    )
