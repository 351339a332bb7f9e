"""Calls of more than three parts, each with keys that every row sees.

A workgroup divides its number to find its part. The division corrects a wrong start by up to 2, so with
one the first three parts are still right. Pages have a division of their own.
"""

import pytest
import torch
from edge_calls import CALLED, DECODE, ran, small
from flash_attn_rocm.values import kinds, paths

PARTS, TILE, ROWS = 4, 128, 1  # no kernel has larger tiles
WIDE = kinds.ATTENDING[paths.WIDE]  # without pages
OPS = {DECODE, WIDE, *(kinds.ATTENDING[each] for each in (kinds.CODED, kinds.CODED_LATENT, paths.LATENT))}
STORES = ("dense", "paged")
CALLS = [
    (kernel, store)
    for kernel in CALLED
    if kernel.op in OPS
    for store in STORES[: 1 if kernel.op == WIDE else None]
]


@pytest.mark.parametrize(("kernel", "store"), CALLS, ids=str)
def test_a_call(target, shown, kernel, store):
    given = {"heads": (2, 1), "splits": PARTS, "store": store, "page": TILE}
    call = small(kernel, target.device, ROWS, PARTS * TILE, **given)
    parts = call.parts(torch.empty(1, 2, ROWS), PARTS * TILE)["partial_lse"]
    assert len(parts) == PARTS, "the plan takes fewer"
    call.check(target, shown)
    assert ran(kernel, target)
