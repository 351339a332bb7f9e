"""Scores of about -1024 beside scores of about 0 of another head, and values that are equal for all keys.

Kernels subtract large maxima first (`far` in kernels/device/scores/softmax.hpp). Each result is a value times
the sum of the rounded weights, divided by the sum of the weights: it shows a bias of rounding.
"""

import pytest
import torch
from edge_calls import ATTENDING, DECODE, MORE, REFERENCE, ran, small
from flash_attn_rocm.suite.rule import judge, largest_bias
from flash_attn_rocm.values import kinds, paths

FAR = 32.0  # its square is the distance
KEYS, FIRST = 90, 64
# Scores of the last keys, and slopes, for the loop with features.
LATER = {"equal": (1.0, ""), "higher": (0.75, ""), "higher, slopes": (0.75, "heads")}
WITHOUT = (paths.LATENT, paths.FP8, paths.INT8, kinds.CODED, kinds.CODED_LATENT, kinds.PACKED_LATENT)
OTHER = {REFERENCE, *(kinds.ATTENDING[each] for each in WITHOUT)}
KERNELS = [kernel for kernel in ATTENDING if kernel.op not in OTHER]
SLOPED = {DECODE, kinds.ATTENDING[paths.TILED]}  # ops whose kernels all take slopes
CALLS = [(kernel, keys) for kernel in KERNELS for keys in LATER if kernel.op in SLOPED or not LATER[keys][1]]


@pytest.mark.parametrize(("kernel", "keys"), CALLS, ids=str)
def test_equal_values(target, shown, kernel, keys):
    # A wave of decode has the rows of both heads.
    rows = 8 if kernel.op == DECODE else MORE
    factor, alibi = LATER[keys]
    call = small(kernel, target.device, rows, KEYS, heads=(2, 1), scale=1.0, alibi=alibi)
    q, k, v = call.q[0], call.k[0], call.v[0]
    q *= q.shape[-1] ** -0.5
    q[..., 0], k[..., 0] = torch.tensor([FAR, 0.0]), -FAR
    k[FIRST:, ..., 0] *= factor
    v[:] = 1 + torch.rand(v.shape[-1], generator=call.generator)
    found = call.launched(target)
    assert ran(kernel, target)
    judge(shown, str(kernel), "far scores, equal values", found, call.rules)
    shares = (found[0].out.double().cpu() / v[0].double() - 1).mean((0, 2))
    assert (shares.abs() <= largest_bias(kernel.dtype)).all(), f"out: {shares.tolist()} too large on average"
