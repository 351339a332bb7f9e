"""One large score of each sequence, of one row, in a later tile of its wave.

A rise in any row, or at any key of a tile, raises the maxima of all rows of a wave: a kernel passed that
looked at some rows only.
"""

import pytest
import torch
from edge_calls import CALLED, ran, small
from flash_attn_rocm.reference.codes import encode
from flash_attn_rocm.suite.rule import judge
from flash_attn_rocm.values import kinds

KERNELS = [kernel for kernel in CALLED if kernel.op == kinds.ATTENDING[kinds.CODED]]
# Pages take the loop with features.
LOOPS = {"plain": {}, "paged": {"store": "paged", "page": 64}}
ROWS = 4
STEP, RUNS = 16, 8  # keys of a matrix step, and steps of the largest tile
BEFORE = 128  # keys: no workgroup has more in one tile of each wave
LARGE = 10.0


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_each_row(target, shown, kernel, loop):
    places = [run * STEP + row * 5 for run in range(RUNS) for row in range(ROWS)]
    lengths = (ROWS,) * len(places), (BEFORE + STEP * RUNS,) * len(places)
    call = small(kernel, target.device, *lengths, scale=1.0, codes="int8", **LOOPS[loop])
    for n, (place, q, k) in enumerate(zip(places, call.q, call.k, strict=True)):
        q.zero_()
        k.zero_()
        q[n % ROWS, 0, 0] = k[BEFORE + place, 0, 0] = LARGE
    for stored, numbers in zip(call.rows, (call.k, call.v), strict=True):
        for each, x in zip(stored, numbers, strict=True):
            x[:] = x.round()
            each[..., : x.shape[-1]] = encode(x.float(), 1.0, call.format).view(torch.uint8)
    found = call.launched(target)
    assert ran(kernel, target)
    judge(shown, str(kernel), f"a lone rise, {loop}", found, call.rules)
