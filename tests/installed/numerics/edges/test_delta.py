"""Rows of dout or out with one element: delta is one product, which is exact in fp32.

A bit of a neighbour in the same register would change it by less than the rounding of a whole sum.
"""

import pytest
import torch
from edge_calls import small
from flash_attn_rocm.suite.forward_cases import Kernel
from flash_attn_rocm.suite.target import BACKWARD_OP
from here import BACKWARD

ROWS = 128
ODD = 1  # the last bit of a mantissa
WIDTH = 8  # elements of a row per lane


@pytest.mark.parametrize(("dtype", "head_dim"), BACKWARD)
def test_one_product(target, dtype, head_dim):
    call = small(Kernel(BACKWARD_OP, dtype, head_dim), target.device, (ROWS, ROWS), (1, 1))
    column = torch.arange(ROWS) % WIDTH + torch.arange(ROWS) // WIDTH * WIDTH % head_dim
    alone = torch.arange(head_dim) == column[:, None, None]
    full = [odd(call.normal(ROWS, 1)) for _ in range(4)]
    call.dout = [full[0] * alone, full[1]]
    outs = [full[2], full[3] * alone]
    call.forward = lambda: (outs, [torch.zeros(1, ROWS)] * 2)
    *_, delta = call.run(target)
    exact = [(one.float() * other.float()).sum(-1).T for one, other in zip(call.dout, outs, strict=True)]
    assert torch.equal(delta.cpu(), torch.stack(exact))


def odd(x):
    x.view(torch.int16).bitwise_or_(ODD)
    return x
