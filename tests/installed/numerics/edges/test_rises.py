"""Decode over 8 bits: maxima that rise from tile to tile, also while other rows have seen no key; no keys."""

import pytest
from edge_calls import CALLED, FEW, ran, small
from flash_attn_rocm.values import kinds

KERNELS = [kernel for kernel in CALLED if kernel.op == kinds.ATTENDING[kinds.CODED]]
KEYS = (400, 411)  # windows begin beside borders of tiles
CALLS = {
    "plain": {},
    "window": {"window": (230, 0)},
    "window, large tiles": {"window": (130, 0)},
    "slopes, window": {"window": (230, 0), "alibi": "heads"},
    "slopes, window, large tiles": {"window": (130, 0), "alibi": "heads"},
    "softcap, window": {"window": (230, 0), "softcap": 20.0},
}


LOOPS = {"plain": "", "slopes": "heads"}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_rising_maxima(target, shown, kernel, call):
    given = {"scale": 1.0, "store": "in use", **CALLS[call]}
    small(kernel, target.device, (FEW, FEW), KEYS, **given).check(target, shown)
    assert ran(kernel, target)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_sequence_without_keys(target, shown, kernel, loop):
    given = {"store": "in use", "alibi": LOOPS[loop]}
    small(kernel, target.device, (1, 1), (0, 70), **given).check(target, shown)
    assert ran(kernel, target)
