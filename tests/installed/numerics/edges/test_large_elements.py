"""Queries of one large element, which is another one in each sequence.

Kernels over codes move queries of bf16 into the range of fp16, by the largest number of a wave. Random
queries have other numbers next to the largest one: a kernel that leaves out an element passed.
"""

import pytest
from edge_calls import CALLED, ran, small
from flash_attn_rocm.suite.rule import judge
from flash_attn_rocm.values import kinds

OPS = {kinds.ATTENDING[each] for each in (kinds.CODED, kinds.CODED_LATENT, kinds.PACKED_LATENT)}
KERNELS = [kernel for kernel in CALLED if kernel.op in OPS and kernel.dtype == "bf16"]
LARGE, OTHERS, KEYS = 1024.0, 2.0**-10, 3
UNIT, MOST = 8, 256  # of longer rows every second unit: at least two lanes read a row, by the same code


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_each_element(target, shown, kernel):
    places = [n for n in range(kernel.head_dim) if kernel.head_dim <= MOST or n // UNIT % 2 == 0]
    lengths = (1,) * len(places), (KEYS,) * len(places)
    call = small(kernel, target.device, *lengths, scale=1 / LARGE)
    for place, q in zip(places, call.q, strict=True):
        q.mul_(OTHERS)
        q[..., place] = LARGE
    found = call.launched(target)
    assert ran(kernel, target)
    judge(shown, str(kernel), "one large element", found, call.rules)
