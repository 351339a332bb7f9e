"""Fuzz cases of every kernel: of attention (forward_cases.py), of gradients (backward_cases.py,
alike_cases.py, nan_cases.py), with masks (masked_cases.py, masked_backward_cases.py), of latent attention
(latent_cases.py) and of ``append`` (append_cases.py)."""

from flash_attn_rocm.suite import (
    alike_cases,
    append_cases,
    backward_cases,
    forward_cases,
    latent_cases,
    masked_backward_cases,
    masked_cases,
    nan_cases,
)
from flash_attn_rocm.suite.forward_cases import Kernel
from flash_attn_rocm.suite.rule import DTYPES
from flash_attn_rocm.suite.target import (
    APPEND,
    BACKWARD,
    BACKWARD_OP,
    DECODE,
    FORWARD,
    FUSED,
    FUSED_OP,
    LATENT,
    MASKED,
    MASKED_BACKWARD,
    MASKED_BACKWARD_OP,
    TALL,
    UNEVEN,
    UNEVEN_BACKWARD,
    UNEVEN_OP,
    WIDE,
)

MODULES = {
    "append": append_cases, **dict.fromkeys((BACKWARD_OP, FUSED_OP, UNEVEN_OP), backward_cases),
    masked_cases.MASKED: masked_cases, MASKED_BACKWARD_OP: masked_backward_cases,
    latent_cases.LATENT: latent_cases,
}  # fmt: skip


def kernels():
    """All that have fuzz cases, which also launch fa_combine_* and other kernels of a backward."""
    return [
        *(Kernel("fwd", *each) for each in FORWARD),
        *(Kernel("fwd_tall", *each) for each in TALL),
        *(Kernel("fwd_wide", *each) for each in WIDE),
        *(Kernel("fwd_uneven", *each) for each in UNEVEN),
        *(Kernel(masked_cases.MASKED, *each) for each in MASKED),
        *(Kernel("decode", *each) for each in DECODE),
        *(Kernel(latent_cases.LATENT, *each) for each in LATENT),
        *(Kernel("reference", dtype) for dtype in DTYPES),
        *(Kernel(BACKWARD_OP, *each) for each in BACKWARD),
        *(Kernel(FUSED_OP, *each) for each in FUSED),
        *(Kernel(UNEVEN_OP, *each) for each in UNEVEN_BACKWARD),
        *(Kernel(MASKED_BACKWARD_OP, *each) for each in MASKED_BACKWARD),
        *(Kernel("append", dtype) for dtype in APPEND),
    ]


def draw(kernel, number):
    """Case ``number`` of a kernel, always the same."""
    return _of(kernel).draw(kernel, number)


def made(case, device):
    """The call of a case; ``run`` launches it, ``check`` also judges what comes out."""
    special = {backward_cases.NAN: nan_cases, **dict.fromkeys(backward_cases.ALIKE_CALLS, alike_cases)}
    return special.get(case.values, _of(case.kernel)).Call(case, device)


def served(kernel):
    """The features with which a kernel has to be tested."""
    return _of(kernel).served(kernel)


def _of(kernel):
    return MODULES.get(kernel.op, forward_cases)
