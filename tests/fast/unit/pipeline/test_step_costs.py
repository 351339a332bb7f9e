"""Costs of steps: the file, its table, and the steps above their accepted costs."""

import json

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.pipeline.step_costs import (
    ACCEPTED,
    LEAST_CPU_SECONDS,
    MOST,
    RELEASE,
    TESTS,
    StepCost,
    dearer,
    read_costs,
    to_table,
    write_section,
)

ONE = {"image": StepCost(60.0, 50.0), "emulate gfx942": StepCost(90.0, 80.0), "audit": StepCost(1.0, 1.0)}


def times(factor, section=ONE):
    return {name: StepCost(each.seconds, each.cpu_seconds * factor) for name, each in section.items()}


def test_a_release_and_the_tests_write_one_file(tmp_path):
    file = tmp_path / "build" / "step_costs.json"
    write_section(file, RELEASE, ONE)
    write_section(file, TESTS, {"tests/fast/unit": StepCost(9.0, 8.0)})
    assert read_costs(file) == {RELEASE: ONE, TESTS: {"tests/fast/unit": StepCost(9.0, 8.0)}}
    write_section(file, RELEASE, {})
    assert read_costs(file)[RELEASE] == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"release": {"image": 3}}'])
def test_a_file_that_holds_something_else_ends_no_release(tmp_path, text):
    file = tmp_path / "step_costs.json"
    file.write_text(text)
    assert read_costs(file) == {}
    write_section(file, RELEASE, ONE)
    assert json.loads(file.read_text())["release"]["audit"] == {"seconds": 1.0, "cpu_seconds": 1.0}


def test_the_table_has_each_step_and_the_sum():
    assert to_table(ONE).splitlines() == [
        "step                  time  CPU-seconds",
        "image            1 min 0 s           50",
        "emulate gfx942  1 min 30 s           80",
        "audit                  1 s            1",
        "all             2 min 31 s          131",
    ]


@pytest.mark.parametrize("speed", [0.5, 1.0, 3.0])
def test_another_machine_is_not_dearer(speed):
    assert list(dearer(times(speed), ONE)) == []


def test_a_step_that_costs_twice_as_much_is_named():
    steps = {f"emulate gfx{n}": StepCost(90.0, 80.0) for n in range(5)}
    found = {**steps, "emulate gfx3": StepCost(90.0, 160.0)}
    assert list(dearer(found, steps)) == [
        "emulate gfx3: 160 CPU-seconds, expected 80 at this run's median speed (2.0 times)"
    ]
    assert list(dearer({**steps, "emulate gfx3": StepCost(90.0, 80.0 * MOST)}, steps)) == []


def test_a_new_step_needs_an_accepted_figure_unless_it_is_small():
    small, large = StepCost(1.0, LEAST_CPU_SECONDS - 1), StepCost(1.0, LEAST_CPU_SECONDS)
    assert list(dearer({**ONE, "small": small, "large": large}, ONE)) == [
        "large: 10 CPU-seconds, and nothing was accepted for it"
    ]


def test_accepted_figures_can_be_read():
    assert read_costs(CHECKOUT / ACCEPTED)[RELEASE]
