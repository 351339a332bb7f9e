"""The backward kernels: gradients against float64 by the numerics rule.

Every feature runs on every arch, without findings, and with equal bits in every order of waves.
"""

import math
from dataclasses import replace

import pytest

from tests.engine.emulator.kernels.backward import FOUND, FUSED, Call, Case, run
from wheel_builder.tables.archs import known_archs

# tests/installed/numerics does as much with fewer cases, on the finished wheel.
pytestmark = pytest.mark.full
ARCHS = tuple(name for name, arch in known_archs().items() if "trains" in arch.features)
DTYPES = ("fp16", "bf16")
LARGE = tuple(name for name in ARCHS if "large_bwd" in known_archs()[name].features)
HEAD_DIMS = (
    *((arch, head_dim) for arch in ARCHS for head_dim in (32, 64, 96, 128)),
    *((arch, head_dim) for arch in LARGE for head_dim in (192, 256)),
)

CASES = {
    "full": Case(),
    "whole-tiles": Case(((64, 64),), nheads_k=2),
    "batches-and-groups": Case(((37, 70), (37, 70)), nheads=4, nheads_k=2, pad=8),
    "causal": Case(right=0, pad=8),
    "causal-blind-rows": Case(((77, 49),), right=0),
    "window": Case(((70, 90),), left=20, right=9),
    "window-that-leaves-keys-out": Case(((9, 90),), left=5, right=5),
    "softcap": Case(softcap=3.0, scale=0.3),
    "alibi": Case(alibi=True, right=0, nheads=3, nheads_k=3),
    "dropout": Case(((33, 70), (33, 70)), dropout=0.3),
    "all-features": Case(dropout=0.2, softcap=2.0, alibi=True, left=30, right=5, nheads_k=2),
    "ragged": Case(((5, 9), (0, 12), (33, 0), (17, 65), (1, 1)), ragged=True, right=0),
    "ragged-dropout": Case(((5, 39), (40, 12), (3, 1)), ragged=True, dropout=0.5, nheads=4, nheads_k=2),
    "one-query": Case(((1, 200),)),
    "one-key": Case(((200, 1),)),
    "outliers": Case(((33, 65), (33, 65)), values="outliers"),
    "one-hot": Case(((40, 50),), values="one-hot"),
    "small": Case(((33, 65),), values="small"),
    "negative-scale": Case(((33, 65),), scale=-0.2),
    "zero-scale": Case(((33, 65),), scale=0.0),
    "several-blocks": Case(((130, 300),), right=0, nheads=1),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("arch", "head_dim"), HEAD_DIMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients(machine_of, arch, dtype, head_dim, name):
    call = Call(CASES[name], dtype, head_dim)
    run(call, machine_of(arch), arch)
    assert call.problems() == []


ADDING = [name for name, arch in known_archs().items() if "atomic_fadd_f32" in arch.features]
# Arch and head dim of the fused kernels, and of those whose row in tiles.toml lacks `features` (PLAIN).
FUSING = [(arch, head_dim) for arch in ADDING for head_dim in (64, 96, 128)]
PLAIN = [*(("gfx908", dim) for dim in (64, 96, 128)), ("gfx90a", 64), ("gfx942", 64), ("gfx950", 64)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("arch", "head_dim"), FUSING)
@pytest.mark.parametrize("dtype", DTYPES)
def test_fused_gradients(machine_of, arch, dtype, head_dim, name):
    case = CASES[name]
    if (arch, head_dim) in PLAIN:
        case = replace(case, softcap=0.0, alibi=False, dropout=0.0)
    call = Call(case, dtype, head_dim)
    run(call, machine_of(arch), arch, ops=FUSED)
    assert call.problems() == []


@pytest.mark.parametrize("arch", sorted({arch for arch, _ in FUSING}))
def test_fused_gradients_are_right_in_every_order_of_waves(machine_of, arch):
    """dK and dV have equal bits. dQ is added up in any order, and follows the rule."""
    found = set()
    for seed in range(8):
        call = Call(Case(((130, 300),), nheads=1), "fp16", 64)
        run(call, machine_of(arch), arch, seed, FUSED)
        assert call.problems() == []
        found.add(call.found()[1:])
    assert len(found) == 1


@pytest.mark.parametrize("name", ["batches-and-groups", "ragged-dropout"])
@pytest.mark.parametrize("arch", ARCHS)
def test_every_order_of_waves_gives_the_same_bits(machine_of, arch, name):
    found = set()
    for seed in range(5):
        call = Call(CASES[name], "fp16", 64)
        run(call, machine_of(arch), arch, seed)
        found.add(call.found())
    assert len(found) == 1


@pytest.mark.parametrize("arch", ARCHS)
def test_what_no_query_and_no_key_sees_is_zero_whatever_it_holds(machine_of, arch):
    """The first 28 queries see no key, and the first 4 keys are seen by none."""
    case = Case(((77, 49), (9, 90)), ragged=True, left=80, right=0, nheads=1)

    def spoil(drawn):
        drawn["q"][0, 0][3] = drawn["dout"][0, 0][5] = (math.nan,) * 64
        drawn["k"][1, 0][0] = drawn["v"][1, 0][0] = (math.inf,) * 64

    call = Call(case, "fp16", 64, spoil)
    run(call, machine_of(arch), arch)
    dq, dk, dv = (call.tensors[name].values for name in FOUND)
    assert dq(0, 0)[:28] == [(0.0,) * 64] * 28
    assert dk(1, 0)[0] == dv(1, 0)[0] == (0.0,) * 64


@pytest.mark.parametrize("arch", ARCHS)
def test_nan_reaches_what_it_is_summed_in(machine_of, arch):
    def spoil(drawn):
        drawn["dout"][0, 0][40] = (math.nan,) * 64

    call = Call(Case(((49, 77),), right=0, nheads=1), "fp16", 64, spoil)
    run(call, machine_of(arch), arch)
    dq, dk, dv = (call.tensors[name].values(0, 0) for name in FOUND)
    assert [all(math.isnan(x) for x in row) for row in dq] == [row == 40 for row in range(49)]
    # Query 40 sees keys up to 68.
    assert all(math.isnan(x) for rows in (dk[:69], dv[:69]) for row in rows for x in row)


@pytest.mark.parametrize("change", [{"scale": 0.5}, {"window_right": 0}, {"softcap": 5.0}], ids=str)
def test_a_wrong_call_is_noticed(machine_of, change):
    """Tests the comparison itself."""
    call = Call(CASES["full"], "fp16", 64)
    run(call, machine_of("gfx942"), "gfx942", **change)
    assert any(problem.startswith("dq: error") for problem in call.problems())
