"""Places below 0 of a cache's sequences or pages: the first place is copied."""

from dataclasses import replace

import pytest
from flash_attn_rocm.suite.caches.widen_cases import EVERY, NONE, WIDENING
from flash_attn_rocm.suite.fuzz import draw, kernels, made

KERNELS = [kernel for kernel in kernels() if kernel.op == WIDENING]
PAGE = 16
LOWEST = -(1 << 31)


@pytest.mark.parametrize("page", [0, PAGE])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_both_copies(target, shown, kernel, page):
    case = replace(
        draw(kernel, 0), head_dim=64, keys=PAGE + 1, heads=1, page=page, by_index=not page,
        lengths=(PAGE + 1,) * 2, cut=True, wild=False, layouts=("contiguous",) * 2,
        descales=NONE, values=EVERY,
    )  # fmt: skip
    call = made(case, target.device)
    call.places[:2] = call.places.new_tensor([-1, LOWEST])
    call.check(target, shown)
