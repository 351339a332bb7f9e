"""Keys that fill whole tiles, softcap as the only feature, and two heads of keys.

Nothing follows the last tile: a kernel that goes on reads behind the tensor, as a row of k is shorter than
its stride. Most other calls with softcap have more features, which choose the same loop.
"""

import pytest
from edge_calls import ATTENDING, DECODE, FEW, MORE, ran, small
from flash_attn_rocm.suite.fuzz import served
from flash_attn_rocm.values import kinds, paths

KEYS = 64
CUTS = 1.0  # scores are larger
OTHER = {kinds.ATTENDING[each] for each in (paths.LATENT, kinds.CODED, kinds.CODED_LATENT)}
KERNELS = [kernel for kernel in ATTENDING if kernel.op not in OTHER and "softcap" in served(kernel)]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_call(target, shown, kernel):
    rows = FEW if kernel.op == DECODE else MORE
    call = small(kernel, target.device, rows, KEYS, heads=(2, 2), softcap=CUTS, values=8.0)
    call.check(target, shown)
    assert ran(kernel, target)
