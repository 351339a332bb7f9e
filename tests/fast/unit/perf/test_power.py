"""The power line: clocks from published pairs of matrix-busy share and rate."""

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.extras.perf.power import PAIRS, Line, clock, fitted, peak_flop, read_pairs
from wheel_builder.tables.archs import arch_named


def test_a_power_is_found_again():
    line = Line(1000.0, 0.5)
    found = fitted([(busy, line.tflops(busy)) for busy in (0.2, 0.5, 1.0)])
    assert (found.whole, found.exponent) == (pytest.approx(1000), pytest.approx(0.5))


def test_published_rates_grow_less_than_the_busy_share():
    (pairs,) = read_pairs(CHECKOUT / PAIRS).values()
    line = fitted(pairs)
    assert line.exponent == pytest.approx(0.6, abs=0.05)
    for busy, tflops in pairs:
        assert line.tflops(busy) == pytest.approx(tflops, rel=0.05)


def test_matrix_units_have_their_rate_on_paper():
    """MI355X: 2.5 PFLOP/s, MI300X: 1.3 PFLOP/s, both of 16-bit numbers."""
    assert peak_flop(arch_named("gfx950")) == 4096
    assert peak_flop(arch_named("gfx942")) == 2048


def test_a_busier_kernel_has_a_lower_clock():
    arch, line = arch_named("gfx950"), Line(1300.0, 0.5)
    assert clock(arch, line, 4096) * 256 * 4096 == pytest.approx(1300e12)
    assert clock(arch, line, 4096) < clock(arch, line, 2048) < arch.model.clock
    assert clock(arch, line, 100) == arch.model.clock
