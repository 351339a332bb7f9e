"""Attention in 8 bits as SageAttention computes it, where kernels do and it pays.

For interfaces on top of this package, such as the distribution sageattention. Other calls are for
``attention``, which is more exact.
"""

import torch
from torch import Tensor

from flash_attn_rocm.arguments import preparation
from flash_attn_rocm.arguments.preparation import Prepared
from flash_attn_rocm.autograd import transforms
from flash_attn_rocm.launch import int8
from flash_attn_rocm.library import plans
from flash_attn_rocm.serving.support import Support, device_of
from flash_attn_rocm.values.tracing import constant_when_traced


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None,
    *,
    softmax_scale: float | None,
    causal: bool,
    keeps_v: bool = False,
) -> tuple[Tensor, Tensor] | None:
    """out and the log-sum-exp of ``attention``'s arguments. None: not computed in 8 bits.

    q, k and v have four dimensions. ``keeps_v``: only by kernels whose products have v as given. Raises
    FlashAttnArgumentError as ``attention`` does, for calls of lengths that pay.
    """
    least = int8.least_pairs(q.device)
    pays = int8.pays(q.shape[1], k.shape[1], least, causal=causal)
    if attn_mask is not None or not pays or transforms.is_active():
        return None
    if keeps_v and _rounding(q.device):
        return None
    return int8.attend(*_prepared(q, k, v, attn_mask, softmax_scale, causal=causal))


def explain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None,
    *,
    softmax_scale: float | None,
    causal: bool,
    keeps_v: bool = False,
) -> Support | str:
    """How ``attend`` computes such a call, or why it does not."""
    inputs, options = _prepared(q, k, v, attn_mask, softmax_scale, causal=causal)
    reason = int8.unserved(inputs, options) or (_rounding(q.device) if keeps_v else "")
    return reason or int8.support_of(inputs, options)


@constant_when_traced
def _rounding(device: torch.device) -> str:
    """Why products on the device do not have v as given, or "". For devices with products of int8."""
    arch = device_of(device).arch
    if not plans.multiplies_fp8(arch):
        return ""
    return (
        f"this function promises 16 bits for v, and kernels for {arch} with products of int8 round v to fp8"
    )


def _prepared(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, softmax_scale: float | None, *, causal: bool
) -> Prepared:
    rules = (0.0, softmax_scale, causal, 0.0, False, (-1, -1))
    return preparation.masked(q, k, v, None, attn_mask, None, None, None, None, 0, *rules)
