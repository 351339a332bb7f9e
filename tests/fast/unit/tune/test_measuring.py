"""Figures by line, from results of the models; and the calls of an execution."""

from types import SimpleNamespace

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.extras.tune.measuring import MODELS, _lines, cases_of
from wheel_builder.extras.tune.rows import Kernel
from wheel_builder.tables.tiles import Workgroup


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


def test_the_calls_use_all_waves_parts_of_tiles_a_mask_and_shared_keys():
    whole, causal = cases_of(Kernel("gfx908", "fwd", "fp16", 64), Workgroup(128, 256), keys=32)
    assert whole.seqlen_q > 128
    assert whole.seqlen_k % 32
    assert causal.causal
    assert causal.nheads > causal.nheads_k
    assert causal.pad


def test_a_kernel_with_another_head_dim_of_v():
    for case in cases_of(Kernel("gfx942", "fwd_uneven", "fp16", 192), Workgroup(128, 256), keys=32):
        assert (case.head_dim, case.value_dim, case.op) == (192, 128, "fwd_uneven")


def test_all_sources_of_the_models_exist():
    assert all((CHECKOUT / source).exists() for source in MODELS)
