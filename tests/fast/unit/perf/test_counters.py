"""The schedule against published counters: the arithmetic of whole launches."""

from dataclasses import replace

import pytest

from wheel_builder.extras.perf.counters import (
    BATCH_HEADS,
    COUNTED,
    Both,
    Causal,
    Line,
    Published,
    Rate,
    comparison,
    device_busy,
    modelled_as,
    rates,
    through,
)


def test_a_line_goes_through_both_points():
    line = through((1, 30.0), (3, 50.0))
    assert (line.at(0), line.at(1), line.at(3)) == (20, 30, 50)


def test_equal_workgroups_leave_the_last_round_half_empty():
    kernel = Causal(rows=128, resident=1, clocks=Line(100, 0), matrix=Line(50, 0))
    workgroups = 8 * BATCH_HEADS  # 2048 on 304 compute units: 7 rounds
    assert device_busy(kernel, 1024) == pytest.approx(
        workgroups * 50 / (modelled_as(COUNTED).compute_units * 700)
    )


def test_residents_share_a_compute_unit():
    one = Causal(rows=128, resident=1, clocks=Line(100, 0), matrix=Line(50, 0))
    two = Causal(rows=128, resident=2, clocks=Line(200, 0), matrix=Line(50, 0))
    assert device_busy(two, 16384) == pytest.approx(device_busy(one, 16384), rel=0.01)


def test_the_error_is_printed_with_its_sign():
    kernel = Causal(rows=128, resident=1, clocks=Line(100, 0), matrix=Line(50, 0))
    both = Both(kernel, replace(kernel, clocks=Line(400, 0)))
    text = comparison([Published("Some", 64, ((1024, 0.24),))], {("Some", 64): both})
    assert text.splitlines()[1].split() == ["Some", "d64", "1024", "0.24", "0.48", "+101%", "0.12", "-50%"]


def test_what_is_not_modelled_is_listed_without_an_error():
    text = comparison([Published("Other", 64, ((1024, 0.24),))], {})
    assert text.splitlines()[1].split() == ["Other", "d64", "1024", "0.24", *"----"]


def test_a_rate_is_that_of_all_compute_units_at_the_clock_on_paper():
    known = Rate("Some", "a source", "MI300X", "fwd causal", 64, 1024, 319.2)
    flop = {("gfx942", "fwd causal", 64): (1000.0, 250.0), ("gfx908", "fwd causal", 64): (1000.0,)}
    lines = rates([replace(known, gpu=gpu) for gpu in ("MI300X", "MI100", "RX 7900 XTX")], flop).splitlines()
    one = ["Some", "causal", "d64", "MI300X", "1024", "319.2", "638.4", "+100%", "159.6", "-50%"]
    assert lines[1].split() == one
    assert lines[2].split() == ["Some", "causal", "d64", "MI100", "1024", "319.2", "180.2", "-44%", "-", "-"]
    assert lines[3].split()[-4:] == [*"----"]
