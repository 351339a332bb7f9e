"""The numerics rule: an error just above it fails, one just below it passes."""

import math

import pytest

from wheel_builder.machine_code.emulator.rule import tolerances
from wheel_builder.tables.archs import known_archs


def test_outputs_may_err_twice_and_gradients_three_times_what_the_dtype_costs():
    assert tolerances.allowed(0.25, terms=0, largest=9.0) == 0.5
    assert tolerances.allowed(0.25, terms=0, largest=9.0, factor=tolerances.GRADIENT_FACTOR) == 0.75


def test_where_the_plain_computation_is_exact_a_sum_may_lose_one_rounding_of_fp32_for_each_term():
    assert tolerances.allowed(0.0, terms=3, largest=2.0) == 6 * tolerances.FP32_ROUNDING == 6 * 2.0**-24


@pytest.mark.parametrize(("exact", "relative"), [(0.0, 1.0), (-0.5, 1.0), (7.0, 7.0), (-40.0, 40.0)])
def test_a_log_sum_exp_is_held_relatively_and_near_zero_absolutely(exact, relative):
    assert tolerances.lse_allowed(exact, 0.0) == pytest.approx(tolerances.LSE_RELATIVE * relative)
    assert tolerances.lse_allowed(exact, 100.0) == pytest.approx(
        tolerances.LSE_RELATIVE * relative + 100 * 2.0**-24
    )


def test_one_rounding_is_half_a_unit_in_the_last_place():
    one_up = {"fp16": 1 + 2.0**-10, "bf16": 1 + 2.0**-7}
    for dtype, value in one_up.items():
        middle = (1 + value) / 2
        assert (
            tolerances.rounded_once_allowed(middle, dtype, magnitude=0.0, terms=1, largest=0.0) >= middle - 1
        )
        assert tolerances.rounded_once_allowed(value, dtype, magnitude=0.0, terms=1, largest=0.0) < value - 1
    assert tolerances.rounded_once_allowed(0.0, "fp16", magnitude=0.0, terms=1, largest=0.0) == 2.0**-25


def test_a_score_of_many_terms_may_lose_more_roundings_than_one_of_few():
    assert [tolerances.score_roundings(terms) for terms in (9, 81)] == [2.0, 4.0]
    few, many = (
        tolerances.rounded_once_allowed(0.0, "fp16", magnitude=6000.0, terms=terms, largest=4.0)
        for terms in (9, 81)
    )
    assert (many - few) == pytest.approx(2 * 6000 * 4 * tolerances.FP32_ROUNDING)


def test_not_a_number_meets_no_bound():
    assert math.isnan(tolerances.allowed(math.nan, terms=1, largest=1.0))
    assert math.isnan(tolerances.lse_allowed(0.0, math.nan))


def test_a_subnormal_probability_in_fp8_errs_by_half_a_step_beside_the_least_top_of_its_arch():
    """By the factors in kernels/device/mma, *_fp8.hpp, and the least numbers of both formats."""
    found = {
        name: tolerances.fp8_subnormal(arch.isa.fp8_top, fnuz=arch.isa.fp8 == "fnuz")
        for name, arch in known_archs().items()
        if arch.isa.fp8_top
    }
    assert found == {"gfx942": 2.0**-10 / 2 / 16, "gfx950": 2.0**-9 / 2 / 32, "gfx1201": 2.0**-9 / 2 / 56}
    assert tolerances.fp8_allowed(0.0, 10, 3.0, found["gfx950"]) == 10 * 3 * 2.0**-15
