"""The launch model on AMD's assembly, from accepted rates of workgroups and published rates of launches."""

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.extras.perf.calibration import (
    CALIBRATED,
    Calibrated,
    calibrated,
    parse_calibrated,
    schedules_of,
    speed_of,
    to_text,
    works_of,
)
from wheel_builder.extras.perf.launch.shapes import Shape
from wheel_builder.extras.perf.power import PAIRS, fitted, read_pairs
from wheel_builder.extras.perf.published import ERRORS, RATES, read_rates
from wheel_builder.extras.site.launches import launch_errors
from wheel_builder.tables.archs import arch_named

SCHEDULES = {
    ("MI300X", causal, seqlen): 500.0 + seqlen / 1000 for causal in (False, True) for seqlen in (1024, 2048)
}


@pytest.fixture(scope="module")
def schedules():
    return schedules_of((CHECKOUT / ERRORS).read_text())


def test_the_schedules_rates_are_read_from_the_accepted_report(schedules):
    assert len(schedules) == 2 * 2 * 6
    assert schedules["MI300X", False, 1024] == 794.2


def test_a_speed_gives_back_the_rates_that_it_is_from():
    gpu = arch_named("gfx942")
    speed = speed_of(gpu, "MI300X", SCHEDULES, causal=False)
    for seqlen in (1024, 2048):
        clocks = speed.start + speed.clocks[0] * seqlen / 128
        rate = 4 * 128 * 256 * seqlen / clocks * gpu.model.clock * gpu.compute_units / 1e12
        assert rate == pytest.approx(SCHEDULES["MI300X", False, seqlen])


def test_causal_workgroups_have_two_blocks():
    found = works_of(Shape(1024, 1024, 2, 2, causal=True))
    assert [(work.head, work.begin, work.end) for work in found] == [(0, 0, 1024)] * 2 + [(1, 0, 1024)] * 2
    assert len(works_of(Shape(1024, 1024, 2, 2))) == 8


def test_rows_survive_their_file():
    rows = (Calibrated("MI300X", "causal", 32, 1024, 130.6, 580.2, 117.1, 0.0),)
    assert parse_calibrated(to_text(rows)) == rows


def test_short_launches_are_what_the_model_says(schedules):
    """All of them: tests/engine/perf/test_launches.py --full."""
    lines = {product: fitted(pairs) for product, pairs in read_pairs(CHECKOUT / PAIRS).items()}
    short = [rate for rate in read_rates(CHECKOUT / RATES) if (rate.seqlen, rate.heads) == (1024, 32)]
    found = [*calibrated(short, schedules, lines)]
    known = parse_calibrated((CHECKOUT / CALIBRATED).read_text())
    assert len(found) == 4
    assert [row for row in found if row not in known] == []


def test_launches_explain_short_calls():
    """The schedule alone is 135 to 344 % above them."""
    known = parse_calibrated((CHECKOUT / CALIBRATED).read_text())
    errors = [row.launch / row.published - 1 for row in known if row.seqlen == 1024 and row.heads == 32]
    assert min(errors) > -0.11
    assert max(errors) < 0.07


def test_errors_are_shown_the_worst_first():
    rows = [
        Calibrated("MI355X", "causal", 32, 1024, 100.0, 150.0, 110.0, 0.0),
        Calibrated("MI355X", "all keys", 32, 1024, 100.0, 150.0, 80.0, 90.0),
        Calibrated("MI355X", "all keys", 64, 1024, 200.0, 280.0, 200.0, 190.0),
    ]
    assert launch_errors(rows).splitlines()[2:] == [
        "| MI355X | all keys | 1024 | 100 to 200 | +40% to +50% | -20% to +0% | -10% to -5% |",
        "| MI355X | causal | 1024 | 100 to 100 | +50% to +50% | +10% to +10% |  |",
    ]
