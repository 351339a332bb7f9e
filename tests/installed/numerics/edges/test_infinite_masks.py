"""Masks whose numbers alternate with -inf at random: each is read as a part of wider words.

A bit of a number's neighbour makes NaN of -inf, and next to nothing of another number. The scale is negative,
as in test_ends.py.
"""

import math

import pytest
from edge_calls import CALLED, MORE, NEGATIVE, ran, small
from flash_attn_rocm.suite.masked_cases import OWN, SOME
from flash_attn_rocm.values import kinds

MASKED = {kinds.ATTENDING[kinds.MASKED], kinds.GRADIENTS[kinds.MASKED]}
KERNELS = [kernel for kernel in CALLED if kernel.op in MASKED]
KEYS = 64


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_some_keys_of_each_row(target, shown, kernel):
    call = small(kernel, target.device, MORE, KEYS, mask=OWN, hides=SOME, by=-math.inf, scale=NEGATIVE)
    call.check(target, shown)
    assert ran(kernel, target)
