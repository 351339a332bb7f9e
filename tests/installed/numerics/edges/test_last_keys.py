"""Gradients of two sequences with a key behind whole tiles, from rows that fill whole tiles.

The last key is the first one of its tile: it alone shows a limit that is there without a window. A kernel
that goes on after the last rows adds to the next sequence's, or writes behind the tensor.
"""

import pytest
from edge_calls import GRADIENTS, ran, small
from flash_attn_rocm.suite.target import FUSED_OP, UNEVEN_OP

ROWS, KEYS = (32, 32), (33, 33)
KERNELS = [kernel for kernel in GRADIENTS if kernel.op in {FUSED_OP, UNEVEN_OP}]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_call(target, shown, kernel):
    call = small(kernel, target.device, ROWS, KEYS, heads=(2, 1))
    call.check(target, shown)
    assert ran(kernel, target)
