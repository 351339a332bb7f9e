"""Results of bf16 exactly between two numbers: they round to the even one.

Each row sees four keys with equal scores: the first one, and three of its own. The sum of their values is
four times a tie, plus a few steps of fp32: the factor of a kernel may differ from a quarter by some steps. So
one of the sums becomes the tie, and all larger ones round up. The tie itself rounds up if the number below it
is odd. The first key makes the maximum of the first tile that of the row: later changes would round scores.
"""

import pytest
import torch
from edge_calls import ATTENDING, DECODE, FEW, MORE, ran, small
from flash_attn_rocm.suite.rule import judge
from flash_attn_rocm.values import kinds, paths

FAR = 20.0  # its square is the distance of other rows' keys
EACH, OWN = 4, 3  # keys of a row
STEPS = torch.arange(-4, 4) * 2.0**-21  # of fp32, for a sum near 4
HALF = 2.0**-8  # of the distance of two bf16 above 1
KINDS = 2  # rows with an even number below the tie, and rows with an odd one
ROWS, KEYS = KINDS * len(STEPS), 128
assert ROWS <= FEW
OTHER = {
    kinds.ATTENDING[each]
    for each in (paths.LATENT, paths.FP8, paths.INT8, kinds.CODED, kinds.CODED_LATENT, kinds.PACKED_LATENT)
}
KERNELS = [kernel for kernel in ATTENDING if kernel.dtype == "bf16" and kernel.op not in OTHER]
PARTS = [(kernel, 2) for kernel in KERNELS if kernel.op == DECODE][:1]


@pytest.mark.parametrize(("kernel", "splits"), [*((kernel, 1) for kernel in KERNELS), *PARTS], ids=str)
def test_ties_of_bf16(target, shown, kernel, splits):
    call = small(kernel, target.device, FEW if kernel.op == DECODE else MORE, KEYS, scale=1.0, splits=splits)
    row, key = torch.arange(ROWS), torch.arange(KEYS)
    q, k, v = call.q[0], call.k[0], call.v[0]
    q.zero_(), k.zero_()
    q[:ROWS, 0, :ROWS] = -FAR * (row[:, None] != row)
    k[1:, 0, :ROWS] = FAR * (key[:-1, None] // OWN == row)
    k[1 + ROWS * OWN :, 0, :ROWS] = FAR
    v[:] = terms()[:, None, None]
    found = call.launched(target)
    assert ran(kernel, target)
    judge(shown, str(kernel), "ties", found, call.rules)
    even, odd = found[0].out.cpu().double()[:ROWS, 0].unflatten(0, (KINDS, -1))
    below = {"even": even == 1, "odd": odd == 1 + 2 * HALF}
    above = {"even": even == 1 + 2 * HALF, "odd": odd == 1 + 4 * HALF}
    assert all((below[name] ^ above[name]).all() for name in below), "not one of the tie's neighbours"
    assert torch.equal(above["even"].sum(0) + 1, above["odd"].sum(0)), "a tie does not round to even"


def terms():
    """(keys,) numbers. Those of a row add up to the tie between two neighbours, times EACH, plus a step."""
    found = torch.zeros(KEYS)
    sums = found[1 : 1 + ROWS * OWN].view(KINDS, len(STEPS), OWN)
    sums[..., 0] = EACH
    sums[..., 1] = EACH * HALF * torch.tensor([1.0, 3.0])[:, None]
    sums[..., 2] = STEPS
    return found
