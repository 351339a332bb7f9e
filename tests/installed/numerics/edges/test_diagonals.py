"""Windows whose edges pass the corners of tiles.

Tiles and waves begin at multiples of 16, 32, 64 or 128 rows and keys. A tile is skipped if it is hidden, and
unmasked if it is not. A wrong comparison shows only where one corner alone is visible, or hidden.
"""

import pytest
from edge_calls import CALLED, ran, small
from flash_attn_rocm.values import kinds, paths

# At most 16 rows. The reference kernels have no tiles of rows, and are slow.
LATENT = {kinds.ATTENDING[each] for each in (paths.LATENT, kinds.CODED_LATENT, kinds.PACKED_LATENT)}
FEW = {*LATENT, *(kinds.ATTENDING[each] for each in (paths.SPLIT, paths.REFERENCE, kinds.CODED))}
# Rows, keys and window. With n = keys - rows, row r sees the keys from r + n - left up to r + n + right.
# Modulo a tile, corners are alone at n - left = -1 and n + right = 1. They are hidden alone at n - left = 2
# and n + right = -2.
SEEN, HIDDEN = (128, 128, (1, 1)), (130, 128, (60, 0))
# Likewise for 16 rows, which are less than a tile: the last row is 15 rows below the first.
FEW_SEEN, FEW_HIDDEN = (16, 129, (50, 0)), (16, 142, (76, 0))


def calls():
    for kernel in CALLED:
        few = kernel.op in FEW
        yield pytest.param(kernel, FEW_SEEN if few else SEEN, id=f"{kernel}, visible corners")
        yield pytest.param(kernel, FEW_HIDDEN if few else HIDDEN, id=f"{kernel}, hidden corners")


@pytest.mark.parametrize(("kernel", "call"), tuple(calls()))
def test_a_corner(target, shown, kernel, call):
    rows, keys, (left, right) = call
    window = (-1, right) if kernel.op in LATENT else (left, right)
    small(kernel, target.device, rows, keys, window=window).check(target, shown)
    assert ran(kernel, target)
