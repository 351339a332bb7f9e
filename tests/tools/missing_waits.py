"""Mutants of kernels that wait less, and the wait check's verdict on each."""

from dataclasses import dataclass

from wheel_builder.machine_code.static_checks.waits import Blocks, Path, early_uses, steps_of

ARRIVED = "all that it waits for has arrived on every path"
UNUSED = "what it waits for is not used before another wait"
FENCE = "a fence before a barrier: for stores and loads of global memory, whose order is not checked"


@dataclass(frozen=True)
class LessWait:
    """A wait without one of its counters (``weaker``: allowing one more operation in flight)."""

    kernel: str
    instruction: str
    counter: str
    weaker: bool
    found: bool
    why_not: str = ""

    def __str__(self):
        how = "weaker" if self.weaker else "gone"
        return f"{self.kernel} {self.instruction} {self.counter} {how}: {self.why_not}"


def less_waits(arch, kernel):
    """Every mutant of the kernel's waits: for each counter of each wait, one without it and one weaker."""
    steps, blocks = steps_of(arch, kernel), Blocks.of(kernel)
    settled = {0: {}}
    assert not early_uses(steps, blocks, settled, [0])
    block_of = {number: block for block in blocks.by_first.values() for number in block}
    for number, step in steps.items():
        for counter, count in step.waits:
            rest = tuple(each for each in step.waits if each[0] != counter)
            for weaker in (False, True):
                waits = (*rest, (counter, count + 1)) if weaker else rest
                mutated = {**steps, number: step._replace(waits=waits)}
                first = block_of[number][0]
                # Operations in flight before the wait are unchanged. Only later instructions can differ.
                found = bool(early_uses(mutated, blocks, dict(settled), [first]))
                why = "" if found else why_not(steps, mutated, block_of[number], number, settled[first])
                yield LessWait(kernel.name, str(step.instruction), counter, weaker, found, why)


def why_not(steps, mutated, block, number, begin):
    """The reason why instructions are safe without the wait at ``number``, by the operations in flight."""

    def left(steps):
        path = Path(begin, {})
        for each in block[: block.index(number) + 1]:
            path.step(each, steps[each])
        return path.in_flight().keys()

    behind = steps.get(number + 1)
    if behind is not None and behind.instruction.mnemonic in ("s_barrier", "s_barrier_signal"):
        return FENCE
    return UNUSED if left(mutated) - left(steps) else ARRIVED
