"""Caches of more than 2^32 bytes: writing into them, and copying them.

Places, rows and heads are so far apart that products with strides pass 32 bits, also products with the lower
half of a stride. Sums carry into the upper half. All tensors of a call have other strides.
"""

import itertools
from dataclasses import fields, replace

import pytest
from flash_attn_rocm.suite.caches import append_cases, coded_append_cases, widen_cases
from flash_attn_rocm.suite.caches.append_cases import CAPACITY
from flash_attn_rocm.suite.forward_cases import far_apart
from flash_attn_rocm.suite.fuzz import CACHE_OPS, draw, kernels, made

KERNELS = [kernel for kernel in kernels() if kernel.op in CACHE_OPS]
PAGE = 48
ROW, ALIGNED = 1 << 26, 16  # elements. CAPACITY rows of one byte pass 2^32
HALF, MOST_OF_HALF = 1 << 32, 3 << 30  # of which the double passes it
# The wide accesses of 64 elements, and those of single ones.
CALLS = {
    "pages": {"head_dim": 64, "page": PAGE, "by_index": False},
    "rows by index": {"head_dim": 41, "page": 0, "by_index": True},
}
PLAIN = {
    "new": 3, "rows": 2, "rotary": 16, "interleaved": False, "advances": True, "angles": CAPACITY,
    "values": "random", "keys": CAPACITY, "cut": True, "wild": False, "exponent": 0, "seed": 7,
    "layouts": ("contiguous",) * 2, "lengths": (PAGE - 1, 5, CAPACITY - 3),
    "codes": "float8_e4m3fn", "descales": coded_append_cases.KEYS,
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_call(target, shown, kernel, call, monkeypatch):
    counted = itertools.count(1)
    for module in (append_cases, coded_append_cases, widen_cases):
        monkeypatch.setattr(module, "laid_out", lambda x, _: far(x, next(counted)))
    case = draw(kernel, 0)
    heads = 2 if isinstance(case.heads, int) else (2, 2)
    given = {**PLAIN, "heads": heads, **CALLS[call]}
    there = {each.name for each in fields(case)}
    case = replace(case, **{name: value for name, value in given.items() if name in there})
    made(case, target.device).check(target, shown)


def far(x, number):
    """The tensor of this number, (places, rows, heads, headdim). A GPU has too little memory."""
    if x.device.type != "cpu":
        return x
    row = ROW + number * ALIGNED
    head = beyond(CAPACITY * row)
    return far_apart(x, (beyond(x.shape[2] * head), row, head, 1))


def beyond(least):
    """A larger number whose lower half is large. Other numbers for other ``least``."""
    return (least // HALF + 1) * HALF + MOST_OF_HALF + least % MOST_OF_HALF // ALIGNED * ALIGNED % (1 << 20)
