"""Packed sequences that end exactly with a tile, or after one key, and tensors that end with the last.

The scale is negative: kernels change the sign of each element of a query. A mutant passed that took sequences
of one key for empty ones.
"""

import pytest
from edge_calls import CALLED, DECODE, FEW, MORE, NEGATIVE, REFERENCE, ran, small
from flash_attn_rocm.values import kinds, paths

# Without sequences, or without tiles.
LEFT_OUT = (kinds.MASKED, kinds.CODED, kinds.CODED_LATENT, kinds.PACKED_LATENT, paths.LATENT)
OTHER = {
    REFERENCE, kinds.GRADIENTS[kinds.MASKED],
    *(kinds.ATTENDING[each] for each in LEFT_OUT),
}  # fmt: skip
PACKED = [kernel for kernel in CALLED if kernel.op not in OTHER]


@pytest.mark.parametrize("kernel", PACKED, ids=str)
def test_lengths_of_whole_tiles(target, shown, kernel):
    rows = (16, 16) if kernel.op == DECODE else (64, 32)
    small(kernel, target.device, rows, (64, 128), store="packed", scale=NEGATIVE).check(target, shown)
    assert ran(kernel, target)


@pytest.mark.parametrize("kernel", PACKED, ids=str)
def test_lengths_of_one(target, shown, kernel):
    rows = (1, FEW if kernel.op == DECODE else MORE, 1)
    small(kernel, target.device, rows, (2, 1, 1), store="packed", scale=NEGATIVE).check(target, shown)
    assert ran(kernel, target)
