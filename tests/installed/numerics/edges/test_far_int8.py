"""As test_far_rises.py, of products of int8 with v in 16 bits: weights of equal values leave them exact.

Each result is a value times the sum of the rounded weights, divided by the same sum. A lane that rounds other
weights than it adds up shows, where limits of the suite allow for the rounding of every weight.
"""

from dataclasses import replace

import pytest
import torch
from edge_calls import ATTENDING, ran, small
from flash_attn_rocm.library import plans
from flash_attn_rocm.reference import quantising
from flash_attn_rocm.suite.int8_cases import INT8
from flash_attn_rocm.suite.target import arch
from test_far_rises import FAR, NEAR, STEPS, TILE

KERNELS = [kernel for kernel in ATTENDING if kernel.op == INT8 and plans.codes_of_values(arch()) is None]
WINDOWS = {"all": (-1, -1), "causal": (-1, 0), "a window on the left": (70, -1)}
ROWS, LACKING = 64, 7  # queries, and keys of the last tile


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_equal_values(target, shown, kernel, window):
    steps = torch.tensor(STEPS).repeat_interleave(TILE)[:-LACKING]
    call = small(kernel, target.device, ROWS, len(steps), heads=(2, 1), window=WINDOWS[window])
    q, k, v = call.given
    far = torch.rand(q.shape[:3], generator=call.generator) < 0.5
    q *= q.shape[-1] ** -0.5
    q[..., 0] = torch.where(far, FAR, NEAR)
    k[..., 0] = steps[:, None]
    # Below 2 a step of fp16 is smallest beside its number: it shows the loss of half a bit of most weights.
    v[:] = 2 - torch.rand(v.shape[-1], generator=call.generator) / 16
    call.case, call.numbers = replace(call.case, scale=1.0), quantising.numbers(q, k, v, of_v=None)
    call.check(target, shown)
    assert ran(kernel, target)
    out, _ = call.run(target)
    assert (out == v[:, :1].double()).all()
