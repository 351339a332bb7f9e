"""Masks and biases read by kernels: the supported calls, and the necessary copies.

A mask shared by all heads and rows is handled by ``rewrite.key_masks`` where positions have no influence:
kernels then skip hidden keys.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from flash_attn_rocm.arguments.normal_form import Inputs, Options
from flash_attn_rocm.library.host import LIMITS
from flash_attn_rocm.rewrite import key_masks


def is_read(inputs: Inputs, options: Options) -> bool:
    """Whether kernels would read the mask. Other masks choose keys."""
    return inputs.attn_mask is not None and not key_masks.chooses_keys(inputs, options)


def unserved(inputs: Inputs, options: Options) -> str:
    """The reason against the mask on kernels, or "", also for an absent mask."""
    mask = inputs.attn_mask
    if mask is None or key_masks.chooses_keys(inputs, options):
        return ""
    beside = {
        "alibi_slopes or chunk": inputs.alibi_slopes is not None or options.chunk > 0,
        "softcap": options.softcap > 0.0,
    }
    for what, there in beside.items():
        if there:
            return f"kernels take no attn_mask beside {what}"
    if mask.dtype != torch.bool and 0.0 < abs(options.softmax_scale) < LIMITS.least_scale:
        return f"kernels add an attn_mask only where softmax_scale is 0 or at least {LIMITS.least_scale}"
    return ""


def readable(inputs: Inputs) -> Tensor | None:
    """The mask, or a readable copy of the same size."""
    mask, keys = inputs.attn_mask, inputs.k.shape[1]
    if mask is None:
        return None
    if mask.dtype not in (torch.bool, torch.float32, inputs.q.dtype):
        mask = mask.to(torch.float32)
    for axis in range(3):
        # Shared dimensions are stored once.
        if mask.stride(axis) == 0 and mask.shape[axis] > 1:
            mask = mask.narrow(axis, 0, 1)
    if mask.shape[3] != keys:
        mask = mask.expand(-1, -1, -1, keys)
    if _is_readable(mask):
        return mask
    return pad(mask, (0, -keys % LIMITS.alignment)).contiguous()


def _is_readable(mask: Tensor) -> bool:
    steps = [mask.stride(axis) for axis in range(3) if mask.shape[axis] > 1]
    whole = all(number % LIMITS.alignment == 0 for number in (*steps, mask.shape[3]))
    aligned = mask.data_ptr() % (LIMITS.alignment * mask.element_size()) == 0
    return whole and aligned and mask.stride(3) == 1 and 0 <= mask.stride(2) < LIMITS.row_stride
