"""Rates, intervals, and how many jobs ran."""

import random

import pytest

from wheel_builder.extras.build_log.ninja import Span, parse_ninja_log
from wheel_builder.extras.build_log.timing import lanes, left, rate, running


def test_a_steady_build_has_a_narrow_interval():
    times = [10.0 * at for at in range(21)]
    found = left(times, 30)
    assert found.seconds == pytest.approx(300)
    assert (found.low, found.high) == (pytest.approx(300), pytest.approx(300))
    assert rate(times) == pytest.approx(0.1)


@pytest.mark.parametrize("times", [[], [1.0], [0.0, 5.0, 6.0, 9.0]])
def test_too_few_steps_say_nothing(times):
    assert left(times, 10) is None


def test_no_time_passes_no_rate():
    assert rate([3.0, 3.0]) is None


@pytest.mark.parametrize("draw", [lambda r: r.expovariate(1), lambda r: r.lognormvariate(0, 1)])
def test_the_interval_holds_what_it_promises(draw):
    """Of 400 simulated builds, 9 of 10 end inside the interval. Skewed times lower the share."""
    source = random.Random(3)
    inside = 0
    for _ in range(400):
        times = [0.0]
        for _ in range(200):
            times.append(times[-1] + draw(source))
        found = left(times[:101], 100)
        inside += found.low <= times[-1] - times[100] <= found.high
    assert 0.82 < inside / 400 < 0.97


def test_jobs_that_overlap():
    found = running([Span("a", 0, 10), Span("b", 0, 5), Span("c", 5, 10), Span("d", 20, 30)])
    assert (found.mean, found.most) == (pytest.approx(1.5), 2)
    assert running([]) is None


def test_lanes_are_reused():
    assert lanes([Span("a", 0, 4), Span("b", 1, 2), Span("c", 2, 3), Span("d", 4, 5)]) == [0, 1, 1, 0]


def test_a_ninja_log_has_the_last_run():
    lines = [
        "# ninja log v7\n", "0\t900\t1\told.o\tff\n", "no entry\n", "5\tx\t1\tbad.o\tff\n",
        "0\t100\t1\ta.o\tff\n", "50\t250\t1\tb.o\tff\n",
    ]  # fmt: skip
    assert parse_ninja_log(lines) == (Span("a.o", 0.0, 0.1), Span("b.o", 0.05, 0.25))


def test_what_is_no_ninja_log_is_refused():
    with pytest.raises(ValueError, match="it does not begin with '# ninja log v'"):
        parse_ninja_log(["hello\n"])
