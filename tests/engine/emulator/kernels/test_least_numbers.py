"""Small and large gradients where the matrix unit takes fp16's denormals as zero."""

import pytest

from tests.engine.emulator.kernels.backward import FOUND, FUSED, MASKED, SEPARATE, Call, Case, run
from wheel_builder.tables.archs import known_archs

FLUSHING = [name for name, arch in known_archs().items() if arch.isa.flushes_denormals]

of_paths = pytest.mark.parametrize("ops", [SEPARATE, FUSED, MASKED], ids=["separate", "fused", "masked"])


def times(factor):
    def change(drawn):
        for key, rows in drawn["dout"].items():
            drawn["dout"][key] = [[x * factor for x in row] for row in rows]

    return change


@of_paths
@pytest.mark.parametrize("arch", FLUSHING)
def test_small_gradients(machine_of, arch, ops):
    """Most gradients of scores are below 2^-14, and a part of dout."""
    call = Call(Case(((33, 200),), nheads=1), "fp16", 64, times(2.0**-10))
    run(call, machine_of(arch), arch, ops=ops)
    assert call.problems() == []


@of_paths
@pytest.mark.parametrize("arch", FLUSHING)
def test_gradients_that_are_too_large_are_no_numbers(machine_of, arch, ops):
    """They become infinity or NaN, so loss scaling notices. The largest finite number would hide it."""
    call = Call(Case(((33, 40),), nheads=1), "fp16", 64, times(2.0**10))
    run(call, machine_of(arch), arch, ops=ops)
    for name in FOUND:
        rows = call.tensors[name].values(0, 0)
        assert any(not abs(x) < float("inf") for row in rows for x in row), name
