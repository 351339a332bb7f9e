"""Decode with keys of a wave's own: maxima that rise from tile to tile, also while other rows have seen no
key; no keys. All decodes over 8 bits have such keys, and of those over 16 bits gfx906's in bf16.
"""

import pytest
from edge_calls import CALLED, DECODE, FEW, ran, small
from flash_attn_rocm.values import kinds

CODED = kinds.ATTENDING[kinds.CODED]
OF_ELEMENTS = (DECODE, "bf16", 128)
KERNELS = [
    kernel
    for kernel in CALLED
    if kernel.op == CODED or (kernel.op, kernel.dtype, kernel.head_dim) == OF_ELEMENTS
]
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
