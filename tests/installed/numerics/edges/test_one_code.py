"""Codes with one key: results are a code times a scale, rounded to nearest.

Limits of the suite allow for the rounding of probabilities, of products to codes too. Kernels passed that
truncated some results to bf16, or divided by another number than the probability of the largest score.
"""

import pytest
from edge_calls import ATTENDING, FEW, MORE, OF_CODES, ran, small
from flash_attn_rocm.arguments.normal_form import TORCH_DTYPES
from flash_attn_rocm.suite.caches.coded_append_cases import HEADS
from flash_attn_rocm.suite.fp8_cases import FP8
from flash_attn_rocm.values import kinds

KERNELS = [kernel for kernel in ATTENDING if kernel.op in OF_CODES]
CACHES = {kinds.ATTENDING[each] for each in (kinds.CODED, kinds.CODED_LATENT)}
OF_CACHES = [kernel for kernel in ATTENDING if kernel.op in CACHES]
SEQUENCES = 4  # each with its own descale: multiples of one may all be near numbers of the dtype
EVEN = 8  # seed: descales are no powers of two, which would make results numbers of the dtype
OF_FP32 = 2.0**-20  # some roundings, and the reciprocal's


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_each_element(target, kernel):
    call = small(kernel, target.device, MORE, 1)
    found, wanted = call.run(target), call.exact(*(0,) * (kernel.op == FP8))
    assert ran(kernel, target)
    out = (found[0] if kernel.op == FP8 else found)[0]
    assert_nearest(kernel, out, wanted[0])


@pytest.mark.parametrize("kernel", OF_CACHES, ids=str)
def test_each_element_of_a_cache(target, kernel):
    lengths = (FEW,) * SEQUENCES, (1,) * SEQUENCES
    call = small(kernel, target.device, *lengths, codes="int8", descales=HEADS, seed=EVEN)
    found = call.launched(target)
    assert ran(kernel, target)
    for each, v in zip(found, call.v, strict=True):
        out = each.out.double().cpu()
        assert_nearest(kernel, out, v.double()[..., : out.shape[-1]])


def assert_nearest(kernel, out, exact):
    nearest = exact.to(TORCH_DTYPES[kernel.dtype]).double()
    assert ((out - exact).abs() <= (nearest - exact).abs() + OF_FP32 * exact.abs()).all()
