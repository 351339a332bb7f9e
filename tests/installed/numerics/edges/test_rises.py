"""Maxima that rise from tile to tile of decode over 8 bits, also while other rows have seen no key."""

import pytest
from edge_calls import CALLED, FEW, ran, small
from flash_attn_rocm.values import kinds

KERNELS = [kernel for kernel in CALLED if kernel.op == kinds.ATTENDING[kinds.CODED]]
KEYS = (400, 411)  # windows begin beside borders of tiles
CALLS = {
    "plain": {},
    "window": {"window": (230, 0)},
    "slopes, window": {"window": (230, 0), "alibi": "heads"},
    "softcap, window": {"window": (230, 0), "softcap": 20.0},
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_rising_maxima(target, shown, kernel, call):
    given = {"scale": 1.0, "store": "in use", **CALLS[call]}
    small(kernel, target.device, (FEW, FEW), KEYS, **given).check(target, shown)
    assert ran(kernel, target)
