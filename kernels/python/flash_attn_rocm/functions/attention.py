"""``attention``: ``flash_attn_func`` with chunks, and with a mask of any form."""
# ruff: noqa: FBT001, FBT002 - as the functions of flash_attn

from typing import Literal, SupportsFloat, SupportsIndex, overload

from torch import Tensor

from flash_attn_rocm.arguments import preparation
from flash_attn_rocm.arguments.documentation import documented
from flash_attn_rocm.arguments.normal_form import Inputs, WindowSize
from flash_attn_rocm.autograd.dispatch import Answer, Function, Three, call


def _masked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    slopes: Tensor | None,
    attn_mask: Tensor | None,
    sink: Tensor | None,
    *_descales: Tensor | None,
) -> Inputs:
    return Inputs(q, k, v, slopes, attn_mask=preparation.four_dimensions(attn_mask), sink=sink)


MASKED = Function("attention", preparation.masked, _masked)


@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    return_attn_probs: Literal[False] = False, deterministic: bool = False,
    *, sink: Tensor | None = None, chunk: SupportsIndex = 0, q_descale: Tensor | None = None,
    k_descale: Tensor | None = None, v_descale: Tensor | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    *, return_attn_probs: Literal[True], deterministic: bool = False,
    sink: Tensor | None = None, chunk: SupportsIndex = 0, q_descale: Tensor | None = None,
    k_descale: Tensor | None = None, v_descale: Tensor | None = None,
) -> Three: ...  # fmt: skip
@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    return_attn_probs: bool = False, deterministic: bool = False,
    *, sink: Tensor | None = None, chunk: SupportsIndex = 0, q_descale: Tensor | None = None,
    k_descale: Tensor | None = None, v_descale: Tensor | None = None,
) -> Answer: ...  # fmt: skip
@documented
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: SupportsFloat = 0.0,
    softmax_scale: SupportsFloat | None = None,
    causal: bool = False,
    window_size: WindowSize = (-1, -1),
    softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None,
    return_attn_probs: bool = False,
    deterministic: bool = False,
    *,
    sink: Tensor | None = None,
    chunk: SupportsIndex = 0,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
) -> Answer:
    """``flash_attn_func`` with chunks, and with a mask of any form.

    Kernels take chunks and masks, forward and backward. If all heads and rows share a boolean mask, as with
    padding, and causal, window_size, alibi_slopes and chunk are unset, the visible keys are copied together
    first. Dropout then counts only these. Kernels read other masks, except with alibi_slopes, softcap or
    chunk. There the PyTorch implementation answers, and its memory grows with the lengths instead of their
    product. The gradient of a bias has the bias's size in fp32. Kernels take up to 256 MiB more for it, or
    one group of heads' scores, with dropout the scores of all heads.

    With more queries than keys, a right bound of seqlen_k or more still holds, unlike in flash_attn's
    functions.

    Args:
        q: (batch, seqlen_q, nheads, headdim).
        k: (batch, seqlen_k, nheads_k, headdim).
        v: (batch, seqlen_k, nheads_k, headdim).
        attn_mask: torch.bool, True where a query may see a key, or numbers (torch.float16, torch.bfloat16,
            torch.float32) added to the scores, where -inf hides a key: (seqlen_q, seqlen_k),
            (batch, seqlen_q, seqlen_k) or (batch, nheads, seqlen_q, seqlen_k), where any size may be 1. Give
            a mask of each sequence's keys, (batch, seqlen_k), as mask[:, None]. It applies together with
            causal and window_size.
    """
    tensors = (q, k, v, alibi_slopes, attn_mask, sink, q_descale, k_descale, v_descale)
    numbers = (chunk, dropout_p, softmax_scale, causal, softcap, deterministic, window_size)
    return call(MASKED, tensors, numbers, return_attn_probs)
