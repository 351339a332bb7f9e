"""Calls of fp8 with codes of 0 and of the smallest numbers alone, with both signs.

Kernels move codes of e4m3fn to e4m3fnuz, where the code of -0 is NaN: they clear the sign of a code whose
other bits are 0. The smallest negative number shows that each of the other bits counts.
"""

from dataclasses import replace

import pytest
import torch
from edge_calls import CALLED, ran, small
from flash_attn_rocm.library import plans
from flash_attn_rocm.reference import codes
from flash_attn_rocm.suite.fp8_cases import FORMATS, FP8
from flash_attn_rocm.suite.target import arch

KERNELS = [kernel for kernel in CALLED if kernel.op == FP8]
ZERO, LEAST, SIGN = 0x00, 0x01, 0x80
KEYS = 320  # five tiles. Several places of the code load them
SHAPES = [(33, (-1, -1)), (256, (-1, 30))]  # rows and window
SCALE = 2.0**16  # products are 2^-18 or 2^-20: few keys of a row have a weight


@pytest.mark.parametrize(("rows", "window"), SHAPES, ids=str)
@pytest.mark.parametrize("scale", [SCALE, -SCALE])
@pytest.mark.parametrize("name", FORMATS[: 1 + plans.multiplies_fnuz(arch())])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_call(target, shown, kernel, name, scale, rows, window):
    call = small(kernel, target.device, rows, KEYS, window=window)
    call.case, call.descales, call.format = replace(call.case, scale=scale), None, getattr(torch, name)
    zeros = (ZERO, SIGN) if call.format == torch.float8_e4m3fn else (ZERO,)  # else -0 would be NaN
    some = torch.tensor((*zeros, LEAST, SIGN | LEAST), dtype=torch.uint8)
    for place, (bits,) in enumerate(call.codes):
        drawn = some[torch.randint(len(some), bits.shape, generator=call.generator)]
        call.codes[place] = [drawn]
        call.numbers[place] = [codes.decode(drawn.view(call.format)).double()]
    call.check(target, shown)
    assert ran(kernel, target)
