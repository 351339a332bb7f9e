"""Mutants of kernels that wait less, and the wait check's verdict on each."""

from dataclasses import dataclass

from tests.tools.queues import Queues
from wheel_builder.machine_code.static_checks.waits import Blocks, early_uses, steps_of


@dataclass(frozen=True)
class LessWait:
    """A wait without one of its counters (``weaker``: allowing one more operation in flight).

    ``verdict``: NEEDED, or the reason why it need not be found, of tests/tools/queues.py.
    """

    kernel: str
    instruction: str
    counter: str
    weaker: bool
    found: bool
    verdict: str

    def __str__(self):
        how = "weaker" if self.weaker else "gone"
        return f"{self.kernel} {self.instruction} {self.counter} {how}: {self.verdict}"


def less_waits(arch, kernel):
    """Every mutant of the kernel's waits: for each counter of each wait, one without it and one weaker."""
    steps, blocks = steps_of(arch, kernel), Blocks.of(kernel)
    settled = {0: {}}
    assert not early_uses(steps, blocks, settled, [0])
    block_of = {number: block for block in blocks.by_first.values() for number in block}
    queues = Queues(arch, kernel)
    for number, step in steps.items():
        for counter, count in step.waits:
            rest = tuple(each for each in step.waits if each[0] != counter)
            for weaker in (False, True):
                waits = (*rest, (counter, count + 1)) if weaker else rest
                mutated = {**steps, number: step._replace(waits=waits)}
                first = block_of[number][0]
                # Operations in flight before the wait are unchanged. Only later instructions can differ.
                found = bool(early_uses(mutated, blocks, dict(settled), [first]))
                verdict = queues.verdict(number, dict(waits))
                yield LessWait(kernel.name, str(step.instruction), counter, weaker, found, verdict)
