"""Rows of decode whose scores rise from tile to tile, some by about 1024, and equal values of all keys.

The softmax notes for each lane and column whether its maximum is large (`far` in
kernels/device/scores/folded_softmax.hpp), and then sums other numbers. As in test_far_weights.py the results
show a bias, here that of each row: lanes and columns have rows of both kinds.
"""

import pytest
import torch
from edge_calls import CALLED, DECODE, ran, small
from flash_attn_rocm.reference import codes
from flash_attn_rocm.suite.rule import judge, largest_bias
from flash_attn_rocm.values import kinds

NEAR, FAR = 1.0, 32.0  # factors of rows
STEPS = (0.0, 16.0, 32.0, 32.0)  # of keys, each for a tile
TILE = 64
KERNELS = [kernel for kernel in CALLED if kernel.op in {DECODE, kinds.ATTENDING[kinds.CODED]}]
# Slopes take the loop with features.
LOOPS = {"plain": "", "slopes": "heads"}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_each_row(target, shown, kernel, loop):
    given = {"heads": (2, 1), "scale": 1.0, "codes": "int8", "alibi": LOOPS[loop]}
    call = small(kernel, target.device, 8, TILE * len(STEPS), **given)
    q, k, v = call.q[0], call.k[0], call.v[0]
    far = torch.rand(q.shape[:2], generator=call.generator) < 0.5
    q *= q.shape[-1] ** -0.5
    q[..., 0] = torch.where(far, FAR, NEAR)
    k[..., 0] = torch.tensor(STEPS).repeat_interleave(TILE)[:, None]
    # Exact as codes, and of many mantissas.
    v[:] = torch.randint(64, 128, v.shape[-1:], generator=call.generator)
    if call.coded:
        store_again(call)
    found = call.launched(target)
    assert ran(kernel, target)
    judge(shown, str(kernel), f"far rises, {loop}", found, call.rules)
    shares = (found[0].out.double().cpu() / v[0].double() - 1).mean(2)
    assert (shares.abs() <= largest_bias(kernel.dtype)).all(), f"out: {shares.tolist()} too large on average"


def store_again(call):
    """Codes without descales of the changed numbers."""
    for (rows,), (x,) in zip(call.rows, (call.k, call.v), strict=True):
        rows[..., : x.shape[-1]] = codes.encode(x.float(), 1.0, call.format).view(torch.uint8)
