"""Whether results that differ from the original's are as exact, by their errors against float64.

A mutant may only round a number in between the other way. Its results are then as right as the original's,
and no test of correctness should find it. Four measured rules have to hold for all calls that differ, each
for every result (out, log-sum-exp, a gradient), else the mutant counts as a survivor:

1. The suite's own check accepts each call.
2. No element moves by more than one step of its dtype, or the original's largest error in that tensor.
3. The errors of the elements that differ do not grow on average: at most by GROWTH, or by chance.
4. The errors of all elements grow by less than OF_ALL on average, also if chance was in favour.

A fault that reaches few elements breaks the second rule, or the first. One that is small in each element is a
bias: it breaks the third. The fourth asks for enough elements. Standard library only.
"""

import math
from dataclasses import dataclass

# Results rounded once differ where the exact number is near the middle of two steps. If all results are
# shifted by a share s of a step, errors of 0.5 - s/2 steps become 0.5 + s/2 on average: 2 s more. So this is
# a shift by 1 % of a step.
GROWTH = 0.02
# Standard errors. Also refuses one in forty mutants that are as exact.
CHANCE = 2.0
OF_ALL = 0.01


@dataclass(frozen=True)
class Compared:
    """One result of one call.

    ``elements``: of those that differ, the errors before and after, the distance between both, and the
    dtype's step. ``count``, ``total`` and ``largest`` are of the original's errors of all elements.
    """

    name: str
    elements: list[tuple[float, float, float, float]]
    count: int
    total: float
    largest: float

    @property
    def mean(self):
        return self.total / self.count


def worse(compared):
    """The words of the first rule that the results break, or none if they are as exact."""
    for name in dict.fromkeys(each.name for each in compared):
        own = [each for each in compared if each.name == name and each.elements]
        if words := _far(own) or _grown(own):
            return f"{name}: {words}"
    return ""


def _far(own):
    """An element that moves too far. NaN is too far."""
    for each in own:
        for *_, moved, step in each.elements:
            if not moved <= max(step, each.largest):
                return f"an element moves by {moved / step:.3g} steps, {moved:.3g}"
    return ""


def _grown(own):
    """Errors that grow. Each is divided by the mean error of its tensor: calls have numbers of all sizes."""
    if any(not each.total > 0 for each in own):
        return "the original is exact"
    pairs = [(before / each.mean, after / each.mean) for each in own for before, after, *_ in each.elements]
    growths = [after - before for before, after in pairs]
    grown, chance = sum(growths), CHANCE * math.hypot(*growths)
    differing, every = sum(before for before, _ in pairs), sum(each.count for each in own)
    if not differing and grown > chance:
        return f"errors of {len(pairs)} exact elements grow"
    if not grown <= max(GROWTH * differing, chance):
        return f"errors of {len(pairs)} elements grow by {grown / differing:.1%}"
    if not grown + chance <= OF_ALL * every:
        return f"errors of all {every} elements may grow by {(grown + chance) / every:.1%}"
    return ""
