"""Products of fp8 and int8 with several heads of keys, under a window, up to the end of a workgroup's keys.

No random call of int8 in the corpus has several heads of keys, for some archs. Mutants passed that took the
first one's, divided by the group wrongly, went on to keys behind a workgroup's window, or read behind the
last tile. Integer division corrects a wrong start by up to 2: ten heads in pairs have larger quotients.
"""

import pytest
from edge_calls import ATTENDING, OF_CODES, ran, small

KERNELS = [kernel for kernel in ATTENDING if kernel.op in OF_CODES]
ROWS = 33
CALLS = [(200, (10, 5), (-1, 30)), (320, (3, 3), (40, 7))]  # keys, heads, window


@pytest.mark.parametrize(("keys", "heads", "window"), CALLS, ids=str)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_call(target, shown, kernel, keys, heads, window):
    call = small(kernel, target.device, ROWS, keys, heads=heads, window=window)
    call.check(target, shown)
    assert ran(kernel, target)
