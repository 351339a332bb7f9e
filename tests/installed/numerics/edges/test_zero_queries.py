"""Queries that are all 0, as in a warm-up: all keys have the weight of one.

Kernels over codes move queries of bf16 into the range of fp16, by their largest number. It is 0 here: the
scale was so small that its reciprocal became inf, and results NaN.
"""

import pytest
from edge_calls import CALLED, FEW, ran, small
from flash_attn_rocm.values import kinds

KEYS = 33
FORMATS = ("int8", "float8_e4m3fn")  # integers and floats are unpacked apart
KERNELS = [
    kernel for kernel in CALLED if kernel.op == kinds.ATTENDING[kinds.CODED] and kernel.dtype == "bf16"
]


@pytest.mark.parametrize("codes", FORMATS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_call(target, shown, kernel, codes):
    call = small(kernel, target.device, FEW, KEYS, codes=codes)
    call.q[0].zero_()
    call.check(target, shown)
    assert ran(kernel, target)
