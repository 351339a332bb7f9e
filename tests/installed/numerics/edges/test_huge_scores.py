"""Equal scores of about 10^10 in one head, of about -10^10 in the other.

A step of fp32 is hundreds of exponents there. A kernel whose products start from minus the maximum
(kernels/device/scores/folded_softmax.hpp) rounds equal scores differently in each tile.
"""

import math

import pytest
import torch
from edge_calls import ATTENDING, DECODE, MORE, REFERENCE, ran, small
from flash_attn_rocm.values import kinds, paths
from flash_attn_rocm.values.tolerances import HALF_ULP, lse_allowed

LARGE = 30000.0
KEYS = 200
WITHOUT = (paths.LATENT, paths.FP8, paths.INT8, kinds.CODED, kinds.CODED_LATENT, kinds.PACKED_LATENT)
OTHER = {REFERENCE, *(kinds.ATTENDING[each] for each in WITHOUT)}
KERNELS = [kernel for kernel in ATTENDING if kernel.op not in OTHER]
ROUNDINGS = 3  # halves of a last place: an equal P is truncated, out is rounded


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_out_is_the_mean_of_v(target, kernel):
    # A wave of decode has the rows of both heads.
    rows = 8 if kernel.op == DECODE else MORE
    call = small(kernel, target.device, rows, KEYS, heads=(2, 1))
    q, k, v = call.q[0], call.k[0], call.v[0]
    columns = torch.arange(q.shape[-1], device=q.device)
    k[:] = LARGE * (1 - columns / 1024) * 0.6 ** (columns % 7)  # products of more bits than fp32
    q[:] = torch.tensor([1, -1], device=q.device)[:, None] * k[0]
    found = call.launched(target)[0]
    assert ran(kernel, target)
    wanted = v.double().mean(0)
    allowed = ROUNDINGS * HALF_ULP[kernel.dtype] * v.abs().max().item()
    assert (found.out.double() - wanted).abs().max().item() <= allowed
    size = (k[0].double() ** 2).sum().item() * q.shape[-1] ** -0.5
    for sums, sign in zip(found.lse.double(), (1, -1), strict=True):
        exact = sign * size + math.log(KEYS)
        assert (sums - exact).abs().max().item() <= lse_allowed(exact, size)
