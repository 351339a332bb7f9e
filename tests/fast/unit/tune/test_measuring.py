"""Figures by line, from results of the models."""

from types import SimpleNamespace

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.extras.tune.measuring import MODELS, _lines


def schedule(clocks):
    return SimpleNamespace(clocks_per_workgroup=clocks)


def charged(order, **disputed):
    return SimpleNamespace(
        order=order, schedule=schedule(10), port=schedule(20), exclusive=schedule(40),
        disputed={name: schedule(clocks) for name, clocks in disputed.items()},
    )  # fmt: skip


@pytest.mark.parametrize(("arch", "more"), [("gfx908", {}), ("gfx942", {"fwd, exclusive, a": 2.5})])
def test_a_line_for_every_order_and_rate(arch, more):
    row = SimpleNamespace(arch=arch, op="fwd", flop=100, charged=[charged("a", passes=50)])
    assert dict(_lines(row)) == {"fwd, schedule, a": 10, "fwd, port, a": 5, "fwd, passes, a": 2} | more


def test_orders_have_lines_of_their_own():
    row = SimpleNamespace(arch="gfx908", op="fwd", flop=100, charged=[charged("a"), charged("b")])
    assert {line.rpartition(", ")[2] for line, _ in _lines(row)} == {"a", "b"}


def test_all_sources_of_the_models_exist():
    assert all((CHECKOUT / source).exists() for source in MODELS)
