"""Dropout of 0.97: few probabilities are kept, with a factor of 33. The scale is negative (test_ends.py)."""

import pytest
from edge_calls import CALLED, NEGATIVE, ran, small
from flash_attn_rocm.suite.backward_cases import no_features
from flash_attn_rocm.suite.target import BACKWARD_OP, FUSED_OP
from flash_attn_rocm.values import kinds

MASKED = (kinds.ATTENDING[kinds.MASKED], kinds.GRADIENTS[kinds.MASKED])
KERNELS = [
    kernel
    for kernel in CALLED
    if kernel.op in MASKED or (kernel.op in {BACKWARD_OP, FUSED_OP} and not no_features(kernel))
]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_large_share(target, shown, kernel):
    small(kernel, target.device, 33, 65, dropout=0.97, scale=NEGATIVE).check(target, shown)
    assert ran(kernel, target)
