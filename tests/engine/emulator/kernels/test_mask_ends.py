"""Gradients with a mask at the limits of its memory."""

import pytest

from tests.engine.emulator.kernels.backward import MASKED, Call, Case, run
from wheel_builder.tables.archs import known_archs

ARCHS = tuple(name for name, arch in known_archs().items() if "trains" in arch.features)


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("arch", ARCHS)
def test_a_mask_may_end_inside_a_tile(machine_of, arch, head_dim):
    """fa_bwd_dkdv_masked_* relied on the scalar offset to keep reads before the end of the last row."""
    call = Call(Case(((37, 77),), nheads=1), "fp16", head_dim)
    run(call, machine_of(arch), arch, ops=MASKED)
    assert call.problems() == []
