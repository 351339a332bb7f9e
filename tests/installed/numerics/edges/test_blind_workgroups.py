"""Causal calls in which whole workgroups of rows see no key.

Gradients with a mask that hides the left keys: from 1024 rows on, kernels skip tiles that a mask hides. Rows
before the first shown key have none left. Products of 8 bits: the first rows of more rows than keys.
"""

import math

import pytest
from edge_calls import ATTENDING, GRADIENTS, OF_CODES, ran, small
from flash_attn_rocm.suite.masked_cases import BOOL, LEFT, OWN
from flash_attn_rocm.suite.target import MASKED_BACKWARD_OP

ROWS, KEYS = 1040, 150
KERNELS = [kernel for kernel in GRADIENTS if kernel.op == MASKED_BACKWARD_OP]
CODED = [kernel for kernel in ATTENDING if kernel.op in OF_CODES]


@pytest.mark.parametrize("mask", [BOOL, OWN])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_causal_call(target, shown, kernel, mask):
    given = {"mask": mask, "hides": LEFT, "by": -math.inf, "broadcast": "bhi"}
    call = small(kernel, target.device, ROWS, KEYS, window=(-1, 0), **given)
    call.check(target, shown)
    assert ran(kernel, target)


@pytest.mark.parametrize("kernel", CODED, ids=str)
def test_a_call_of_codes(target, shown, kernel):
    call = small(kernel, target.device, 300, 20, window=(-1, 0))
    call.check(target, shown)
    assert ran(kernel, target)
