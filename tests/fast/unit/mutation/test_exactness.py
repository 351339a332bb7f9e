"""Which differences from the original's results are as exact, and which faults are not.

Results are those of a kernel in small: exact numbers, with the errors of numbers in between, rounded to the
steps of fp16 near 1. A mutant as exact has other errors in between, of the same size.
"""

import math
import random

import pytest

from tests.tools.mutation.exactness import Compared, worse

STEP = 2.0**-10
COUNT, CALLS = 1000, 4
# Errors before the last rounding, in steps: of fp32 alone, and of weights in 16 bits.
SINGLE, ROUNDED = 0.004, 0.5


def rounded(x):
    return round(x / STEP) * STEP


def exact_numbers(rng, size):
    return [size * rng.uniform(1, 1.9) for _ in range(COUNT)]


def original(x, error, size=1.0):
    return size * rounded(x / size + error * STEP)


def compared(exact, before, after, name="out"):
    errors = [abs(one - x) for one, x in zip(before, exact, strict=True)]
    elements = [
        (abs(one - x), abs(other - x), abs(one - other), STEP * 2.0 ** math.floor(math.log2(abs(x))))
        for x, one, other in zip(exact, before, after, strict=True)
        if one != other
    ]
    return Compared(name, elements, len(exact), sum(errors), max(errors))


def calls(fault, *, noise, seed=1, sizes=(1.0,)):
    """Calls of a mutant: ``fault`` gives a result of exact number, original result and error in between."""
    rng, found = random.Random(seed), []
    for n in range(CALLS):
        size = sizes[n % len(sizes)]
        exact = exact_numbers(rng, size)
        errors = [rng.gauss(0, noise) for _ in exact]
        before = [original(x, error, size) for x, error in zip(exact, errors, strict=True)]
        after = [fault(rng, *each, size) for each in zip(exact, before, errors, strict=True)]
        found.append(compared(exact, before, after))
    return found


def other_rounding(rng, x, _, error, size):
    return original(x, error + rng.gauss(0, SINGLE), size)


@pytest.mark.parametrize("noise", [SINGLE, ROUNDED])
@pytest.mark.parametrize("sizes", [(1.0,), (1.0, 1024.0)])
def test_other_roundings_in_between_are_as_exact(noise, sizes):
    found = calls(other_rounding, noise=noise, sizes=sizes)
    assert any(each.elements for each in found), "nothing differs: the test shows nothing"
    assert worse(found) == ""


def test_results_without_a_difference_are_as_exact():
    assert worse([Compared("out", [], 10, 1.0, 0.2)]) == ""


def of_a_few(fault):
    """The fault in one element of 200."""
    return lambda rng, x, before, *more: fault(rng, x, before, *more) if rng.random() < 0.005 else before


def shifted(by):
    return lambda _, x, __, error, size: original(x, error + by, size)


def truncated(_, x, __, error, size):
    return size * math.floor(x / size / STEP + error) * STEP


def lost_term(_, x, before, *__):
    return before - 0.004 * x


def two_steps(_, __, before, ___, size):
    return before + 2 * STEP * size


def one_step(rng, _, before, __, size):
    return before + rng.choice((-1, 1)) * STEP * size


def worse_in_between(rng, x, _, error, size):
    return original(x, error + rng.gauss(0, ROUNDED), size)


FAULTS = {
    "a shift by 1/20 of a step": (shifted(0.05), SINGLE),
    "a shift by a quarter": (shifted(-0.25), ROUNDED),
    "truncation": (truncated, SINGLE),
    "truncation of rounded weights": (truncated, ROUNDED),
    "truncation of a few": (of_a_few(truncated), SINGLE),
    "a lost term in a few": (of_a_few(lost_term), ROUNDED),
    "two steps in a few": (of_a_few(two_steps), SINGLE),
    "a step in a few": (of_a_few(one_step), SINGLE),
    "a step in a few, rounded weights": (of_a_few(one_step), ROUNDED),
    "larger errors in between": (worse_in_between, ROUNDED),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_not_as_exact(name, seed):
    fault, noise = FAULTS[name]
    assert worse(calls(fault, noise=noise, seed=seed, sizes=(1.0, 64.0)))


@pytest.mark.parametrize(
    ("elements", "count", "total", "words"),
    [
        ([(0.4, 0.6, 2.5, 1.0)], 10, 2.0, "out: an element moves by 2.5 steps"),
        ([(0.4, math.nan, math.nan, 1.0)], 10, 2.0, "out: an element moves by nan steps"),
        ([(0.0, 1.0, 1.0, 1.0)], 10, 0.0, "out: the original is exact"),
        ([(0.4, 0.6, 1.0, 1.0)] * 10, 1000, 200.0, "out: errors of 10 elements grow by 50.0%"),
        ([(0.5, 0.6, 1.0, 1.0), (0.6, 0.5, 1.0, 1.0)] * 20, 50, 25.0, "out: errors of all 50 elements may"),
    ],
)
def test_the_broken_rule_is_named(elements, count, total, words):
    assert worse([Compared("out", elements, count, total, 0.6)]).startswith(words)


def test_each_result_is_judged_by_itself():
    """An error of delta is no part of dq's, whose elements are many."""
    right = [Compared("dq", [(0.5, 0.5, 1.0, 1.0)] * 500, 50000, 12500.0, 0.5)]
    wrong = [Compared("delta", [(0.2, 0.8, 1.0, 1.0)] * 10, 100, 25.0, 0.5)]
    assert worse(right) == ""
    assert worse([*right, *wrong]).startswith("delta: ")


def test_exact_elements_that_all_err_are_worse():
    """There is no share of no errors: the comparison ended with a division by zero."""
    elements = [(0.0, STEP, STEP, STEP)] * 9
    words = worse([Compared("out", elements, COUNT, COUNT * STEP / 4, STEP)])
    assert words == "out: errors of 9 exact elements grow"
