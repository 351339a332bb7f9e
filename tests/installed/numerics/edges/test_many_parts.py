"""Calls of more than three parts, each with keys that every row sees.

A workgroup divides its number to find its part. The division corrects a wrong start by up to 2, so with
one the first three parts are still right. Pages have a division of their own.
"""

import pytest
import torch
from edge_calls import CALLED, DECODE, ran, small
from flash_attn_rocm.values import kinds, paths

PARTS, TILE, ROWS = 4, 128, 4  # no kernel has larger tiles
WIDE = kinds.ATTENDING[paths.WIDE]  # without pages
LATENT = [kinds.ATTENDING[each] for each in (paths.LATENT, kinds.CODED_LATENT, kinds.PACKED_LATENT)]
DENSE, PAGED, SLOPES = "dense", "paged", "paged, slopes"
OTHERS = {PAGED: {"store": "paged"}, SLOPES: {"store": "paged", "alibi": "heads"}}
NAMES = {WIDE: (DENSE,), **dict.fromkeys(LATENT, (DENSE, PAGED))}
NAMES |= dict.fromkeys((DECODE, kinds.ATTENDING[kinds.CODED]), (DENSE, PAGED, SLOPES))
CALLS = [(kernel, name) for kernel in CALLED for name in NAMES.get(kernel.op, ())]


@pytest.mark.parametrize(("kernel", "name"), CALLS, ids=str)
def test_a_call(target, shown, kernel, name):
    given = {"heads": (2, 1), "splits": PARTS, "page": TILE, **OTHERS.get(name, {})}
    call = small(kernel, target.device, ROWS, PARTS * TILE, **given)
    parts = call.parts(torch.empty(1, 2, ROWS), PARTS * TILE)["partial_lse"]
    assert len(parts) == PARTS, "the plan takes fewer"
    call.check(target, shown)
    assert ran(kernel, target)
