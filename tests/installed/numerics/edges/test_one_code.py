"""Products of fp8 and int8 with one key: results are a code times a scale, rounded to nearest.

Limits of the suite allow for the rounding of probabilities to codes. A kernel that truncated some results to
bf16 passed.
"""

import pytest
from edge_calls import ATTENDING, MORE, OF_CODES, ran, small
from flash_attn_rocm.arguments.normal_form import TORCH_DTYPES
from flash_attn_rocm.suite.fp8_cases import FP8

KERNELS = [kernel for kernel in ATTENDING if kernel.op in OF_CODES]
OF_FP32 = 2.0**-20  # some roundings, and the reciprocal's


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_each_element(target, kernel):
    call = small(kernel, target.device, MORE, 1)
    found, wanted = call.run(target), call.exact(*(0,) * (kernel.op == FP8))
    assert ran(kernel, target)
    out, exact = (found[0] if kernel.op == FP8 else found)[0], wanted[0]
    nearest = exact.to(TORCH_DTYPES[kernel.dtype]).double()
    assert ((out - exact).abs() <= (nearest - exact).abs() + OF_FP32 * exact.abs()).all()
