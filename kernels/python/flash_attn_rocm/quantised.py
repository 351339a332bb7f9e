"""Attention in 8 bits as SageAttention computes it, where kernels do and it pays.

For interfaces on top of this package, such as the distribution sageattention. Other calls are for
``attention``, which is more exact.
"""

from torch import Tensor

from flash_attn_rocm.arguments import preparation
from flash_attn_rocm.arguments.preparation import Prepared
from flash_attn_rocm.autograd import transforms
from flash_attn_rocm.launch import int8
from flash_attn_rocm.serving.support import Support


def attend(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, *, softmax_scale: float | None, causal: bool
) -> tuple[Tensor, Tensor] | None:
    """out and the log-sum-exp of ``attention``'s arguments. None: not computed in 8 bits.

    q, k and v have four dimensions. Raises FlashAttnArgumentError as ``attention`` does, for calls of lengths
    that pay.
    """
    least = int8.least_pairs(q.device)
    pays = int8.pays(q.shape[1], k.shape[1], least, causal=causal)
    if attn_mask is not None or not pays or transforms.is_active():
        return None
    return int8.attend(*_prepared(q, k, v, attn_mask, softmax_scale, causal=causal))


def explain(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, *, softmax_scale: float | None, causal: bool
) -> Support | str:
    """How ``attend`` computes such a call, or why it does not."""
    inputs, options = _prepared(q, k, v, attn_mask, softmax_scale, causal=causal)
    return int8.unserved(inputs, options) or int8.support_of(inputs, options)


def _prepared(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, softmax_scale: float | None, *, causal: bool
) -> Prepared:
    rules = (0.0, softmax_scale, causal, 0.0, False, (-1, -1))
    return preparation.masked(q, k, v, None, attn_mask, None, None, None, None, 0, *rules)
