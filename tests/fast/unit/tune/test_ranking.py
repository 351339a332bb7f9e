"""Gains, domination and the choice."""

import pytest

from wheel_builder.extras.tune.ranking import dominated, dominates, gain_of, ranked, workload_of

TODAY = {"fwd, schedule": 100.0, "fwd, port": 90.0, "fwd causal, schedule": 80.0, "launch 4096 x 24": 10.0}


def times(factor, **lines):
    return {line: value * factor for line, value in TODAY.items()} | lines


def test_equal_figures_gain_nothing():
    found = gain_of(TODAY, TODAY)
    assert (found.mean, found.worst, found.better) == (0, 0, False)


def test_the_mean_has_equal_weights_of_workloads():
    found = gain_of(times(1, **{"fwd, schedule": 200.0, "fwd, port": 180.0}), TODAY)
    assert found.mean == pytest.approx(2 ** (1 / 3) - 1)
    half = gain_of(times(1, **{"fwd, schedule": 200.0}), TODAY)
    assert half.mean == pytest.approx(2 ** (1 / 6) - 1)


def test_the_worst_line_is_named():
    found = gain_of(times(1.2, **{"fwd, port": 81.0}), TODAY)
    assert (found.line, found.worst) == ("fwd, port", pytest.approx(-0.1))
    assert not found.better


def test_better_is_under_all_lines_and_by_enough():
    assert gain_of(times(1.02), TODAY).better
    assert not gain_of(times(1.009), TODAY).better
    assert not gain_of(times(1.5, **{"launch 4096 x 24": 9.99}), TODAY).better


def test_other_lines_are_an_error():
    with pytest.raises(KeyError):
        gain_of({"fwd, schedule": 1.0}, TODAY)


def test_workloads_of_lines():
    assert workload_of("fwd causal, port, measured") == "fwd causal"
    assert workload_of("launch 16 of 128 to 4096 x 16 batch 16 causal") == "launch"
    assert workload_of("launch 4096 x 24") == "launch"


def test_domination_is_under_every_line():
    assert dominates(times(1.1), TODAY)
    assert dominates(times(1, **{"fwd, port": 91.0}), TODAY)
    assert not dominates(TODAY, TODAY)
    assert not dominates(times(1.1, **{"fwd, port": 89.0}), TODAY)


def test_a_dominated_candidate_has_the_best_dominator():
    found = dominated({"a": TODAY, "b": times(1.1), "c": times(1.2), "d": times(3, **{"fwd, port": 1.0})})
    assert found == {"a": "c", "b": "c"}


def test_equal_candidates_do_not_dominate_each_other():
    assert dominated({"a": TODAY, "b": dict(TODAY)}) == {}


def test_the_better_ones_by_their_gain():
    one, two = times(1.3, **{"fwd, port": 91.0}), times(1.1, **{"fwd, port": 120.0})
    candidates = {"today": TODAY, "one": one, "two": two, "less": times(1.05, **{"fwd, port": 90.5})}
    assert ranked(candidates, "today") == ["one", "two"]
    assert ranked({"today": TODAY}, "today") == []
