"""Gradients by their formula against differences of the output, which have none."""

import math
import random
from dataclasses import replace

import pytest

from wheel_builder.extras.tune.exact import Given, attention
from wheel_builder.machine_code.emulator.reference import attend

STEP = 1e-5


@pytest.fixture
def given():
    draw = random.Random(3)

    def rows(count, width):
        return [[draw.gauss(0.0, 1.0) for _ in range(width)] for _ in range(count)]

    biases = [[-math.inf if draw.random() < 0.3 else draw.gauss(0, 1) for _ in range(5)] for _ in range(4)]
    return Given(rows(4, 3), rows(5, 3), rows(5, 2), rows(4, 2), biases, 0.7)


def loss(given):
    out = attention(given).out
    return sum(a * b for rows in zip(out, given.dout, strict=True) for a, b in zip(*rows, strict=True))


@pytest.mark.parametrize(("tensor", "gradient"), [("q", "dq"), ("k", "dk"), ("v", "dv")])
def test_gradients_are_differences(given, tensor, gradient):
    found = getattr(attention(given), gradient)
    for row, elements in enumerate(getattr(given, tensor)):
        for at in range(len(elements)):
            both = []
            for step in (STEP, -STEP):
                moved = [[*each] for each in getattr(given, tensor)]
                moved[row][at] += step
                both.append(loss(replace(given, **{tensor: moved})))
            assert found[row][at] == pytest.approx((both[0] - both[1]) / (2 * STEP), abs=1e-7)


def test_without_biases_it_is_the_emulators_attention(given):
    found = attention(replace(given, biases=[[0.0] * 5] * 4))
    for row, query in enumerate(given.q):
        one = attend(query, given.k, [*zip(*given.v, strict=True)], given.scale)
        assert found.out[row] == pytest.approx(one.out)
        assert found.lse[row] == pytest.approx(one.lse)


def test_a_row_without_keys_is_zero(given):
    found = attention(replace(given, biases=[[-math.inf] * 5, *given.biases[1:]]))
    assert (found.out[0], found.dq[0], found.lse[0]) == ([0, 0], [0, 0, 0], math.inf)


def test_a_dtype_rounds(given):
    assert attention(given, "bf16").out[0] != attention(given).out[0]
    assert attention(given, "bf16").out[0] == pytest.approx(attention(given).out[0], abs=0.05)
