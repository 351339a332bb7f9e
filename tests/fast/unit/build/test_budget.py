"""Costs allowed to kernels, and attacks on the check: a kernel of twice the cost, a slow machine."""

import random
from dataclasses import replace

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.build.budget import (
    COSTS,
    KernelCost,
    load_budgets,
    measured,
    over_budget,
    to_text,
    was_cached,
    without_budget,
)

BUDGETS = load_budgets(CHECKOUT / COSTS)
ARCHS = sorted(BUDGETS)
BUDGET = BUDGETS["gfx942"]


def judged(costs, *, cached=False):
    return over_budget("gfx942", costs, BUDGET, cached=cached)


def slower(costs, factor, source=None):
    spread = (lambda: source.uniform(0.8, 1.3)) if source else (lambda: 1.0)
    return {
        name: replace(cost, cpu_seconds=cost.cpu_seconds * factor * spread()) for name, cost in costs.items()
    }


def test_what_was_accepted_is_within_its_budget():
    assert [over_budget(arch, BUDGETS[arch], BUDGETS[arch], cached=False) for arch in ARCHS] == [()] * len(
        ARCHS
    )


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("cached", [False, True])
def test_each_kernel_that_doubles_is_named(arch, cached):
    for name, cost in BUDGETS[arch].items():
        costs = {**BUDGETS[arch], name: replace(cost, code_bytes=2 * cost.code_bytes)}
        (found,) = over_budget(arch, costs, BUDGETS[arch], cached=cached)
        assert found == (
            f"{name} for {arch}: machine code has {2 * cost.code_bytes} bytes, "
            f"expected about {cost.code_bytes} (2.0 times)"
        )


@pytest.mark.parametrize("arch", ARCHS)
def test_each_kernel_that_takes_far_longer_than_the_others_is_named(arch):
    for name, cost in BUDGETS[arch].items():
        costs = {**BUDGETS[arch], name: replace(cost, cpu_seconds=3.1 * max(cost.cpu_seconds, 0.5))}
        (found,) = over_budget(arch, costs, BUDGETS[arch], cached=False)
        assert found.startswith(f"{name} for {arch}: compiling takes ")
        assert "at this build's median speed" in found


@pytest.mark.parametrize("factor", [0.1, 0.5, 2, 10])
def test_a_machine_of_another_speed_changes_nothing(factor):
    assert judged(slower(BUDGET, factor)) == ()


def test_noise_as_it_was_measured_changes_nothing():
    source = random.Random(5)
    assert [judged(slower(BUDGET, 1.7, source)) for _ in range(50)] == [()] * 50


def test_memory_that_doubles_is_named():
    cost = BUDGET["fa_fwd_fp16_d64"]
    (found,) = judged({**BUDGET, "fa_fwd_fp16_d64": replace(cost, peak_mib=2 * cost.peak_mib)})
    assert f"the compiler's memory has {2 * cost.peak_mib} MiB" in found


def test_seconds_and_memory_of_a_cache_say_nothing():
    cost = replace(BUDGET["fa_fwd_fp16_d64"], cpu_seconds=90.0, peak_mib=9000)
    assert judged({**BUDGET, "fa_fwd_fp16_d64": cost}, cached=True) == ()
    assert was_cached({"cache": {"hits": 1, "misses": 29}})
    assert not was_cached({"cache": {"hits": 0, "misses": 30}})
    assert not was_cached({})


def test_a_new_kernel_has_no_budget_yet():
    costs = {**BUDGET, "fa_new_fp16": KernelCost(1, 1.0, 1)}
    assert judged(costs) == ()
    assert without_budget(costs, BUDGET) == ("fa_new_fp16",)


def test_the_file_is_what_the_command_writes():
    assert to_text(BUDGETS) == (CHECKOUT / COSTS).read_text()


def test_costs_are_read_from_a_builds_report():
    resources = {
        "kernels": {"fa_a": {"code_bytes": 7, "vgpr": 3}},
        "costs": {"fa_a": {"cpu_seconds": 1.5, "peak_mib": 9}},
    }  # fmt: skip
    assert measured(resources) == {"fa_a": KernelCost(7, 1.5, 9)}
