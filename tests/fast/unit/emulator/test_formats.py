"""16-bit numbers: rounding to nearest even, and values without a midpoint."""

import math

import pytest

from wheel_builder.machine_code.emulator.formats import decode, encode, rounded


@pytest.mark.parametrize(
    ("value", "stored"),
    [(1.0, 1.0), (1 + 2**-8, 1.0), (1 + 3 * 2**-8, 1 + 2**-6), (1 + 2**-8 + 2**-20, 1 + 2**-7), (-0.0, -0.0)],
)
def test_bf16_rounds_to_nearest_and_ties_to_even(value, stored):
    (found,) = rounded([value], "bf16")
    assert (found, math.copysign(1, found)) == (stored, math.copysign(1, stored))


def test_bf16_beyond_its_range_is_infinite():
    assert rounded([3.4e38, -3.4e38], "bf16") == (math.inf, -math.inf)


def test_nan_stays_nan_even_when_all_its_bits_are_in_the_lower_half():
    assert math.isnan(decode(encode([math.nan], "bf16"), "bf16")[0])


def test_fp16_rounds_to_nearest_and_refuses_what_is_too_large():
    assert rounded([1 + 2**-11, 1 + 3 * 2**-11], "fp16") == (1.0, 1 + 2**-9)
    with pytest.raises(OverflowError):
        encode([70000.0], "fp16")
