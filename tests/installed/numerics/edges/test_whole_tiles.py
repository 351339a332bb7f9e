"""Keys that fill whole tiles, softcap or ALiBi as the only feature, and two heads of keys.

Nothing follows the last tile: a kernel that goes on reads behind the tensor, as a row of k is shorter than
its stride. Most other calls with these have more features, which choose the same loop.
"""

import pytest
from edge_calls import ATTENDING, DECODE, FEW, MORE, ran, small
from flash_attn_rocm.suite.fuzz import served
from flash_attn_rocm.values import kinds, paths

KEYS = 64
ONLY = {
    "softcap": {"softcap": 1.0, "values": 8.0},  # scores are larger
    "ALiBi": {"alibi": "heads"},
}
OTHER = {
    kinds.ATTENDING[each] for each in (paths.LATENT, kinds.CODED, kinds.CODED_LATENT, kinds.PACKED_LATENT)
}
CALLS = [
    (kernel, feature)
    for kernel in ATTENDING
    for feature in ONLY
    if kernel.op not in OTHER and feature in served(kernel)
]


@pytest.mark.parametrize(("kernel", "feature"), CALLS, ids=str)
def test_a_call(target, shown, kernel, feature):
    rows = FEW if kernel.op == DECODE else MORE
    call = small(kernel, target.device, rows, KEYS, heads=(2, 2), **ONLY[feature])
    assert feature in call.case.features
    call.check(target, shown)
    assert ran(kernel, target)
