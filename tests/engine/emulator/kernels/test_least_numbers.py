"""Gradients at the limits of memory and fp16.

Masks end inside a tile. Gradients are small or large, on matrix units that flush fp16's denormals to zero.
"""

import pytest

from tests.engine.emulator.kernels.backward import FOUND, FUSED, MASKED, SEPARATE, Call, Case, run
from wheel_builder.tables.archs import known_archs

ARCHS = tuple(known_archs())
FLUSHING = [name for name, arch in known_archs().items() if arch.isa.flushes_denormals]


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("arch", ARCHS)
def test_a_mask_may_end_inside_a_tile(machine_of, arch, head_dim):
    """fa_bwd_dkdv_masked_* relied on the scalar offset to keep reads before the end of the last row."""
    call = Call(Case(((37, 77),), nheads=1), "fp16", head_dim)
    run(call, machine_of(arch), arch, ops=MASKED)
    assert call.problems() == []


def times(factor):
    def change(drawn):
        for key, rows in drawn["dout"].items():
            drawn["dout"][key] = [[x * factor for x in row] for row in rows]

    return change


@pytest.mark.parametrize("ops", [SEPARATE, FUSED, MASKED], ids=["separate", "fused", "masked"])
@pytest.mark.parametrize("arch", FLUSHING)
def test_small_gradients(machine_of, arch, ops):
    """Gradients of scores below 2^-14, and a part of dout."""
    call = Call(Case(((33, 200),), nheads=1), "fp16", 64, times(2.0**-10))
    run(call, machine_of(arch), arch, ops=ops)
    assert call.problems() == []


@pytest.mark.parametrize("ops", [SEPARATE, FUSED, MASKED], ids=["separate", "fused", "masked"])
@pytest.mark.parametrize("arch", FLUSHING)
def test_gradients_that_are_too_large_are_no_numbers(machine_of, arch, ops):
    """They become infinity or NaN, so loss scaling notices. The largest finite number would hide it."""
    call = Call(Case(((33, 40),), nheads=1), "fp16", 64, times(2.0**10))
    run(call, machine_of(arch), arch, ops=ops)
    for name in FOUND:
        rows = call.tensors[name].values(0, 0)
        assert any(not abs(x) < float("inf") for row in rows for x in row), name
