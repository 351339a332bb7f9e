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
) -> Inputs:
    return Inputs(q, k, v, slopes, attn_mask=preparation.four_dimensions(attn_mask), sink=sink)


MASKED = Function("attention", preparation.masked, _masked)


@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    return_attn_probs: Literal[False] = False, deterministic: bool = False,
    *, sink: Tensor | None = None, chunk: SupportsIndex = 0,
) -> Tensor: ...  # fmt: skip
@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    *, return_attn_probs: Literal[True], deterministic: bool = False,
    sink: Tensor | None = None, chunk: SupportsIndex = 0,
) -> Three: ...  # fmt: skip
@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    return_attn_probs: bool = False, deterministic: bool = False,
    *, sink: Tensor | None = None, chunk: SupportsIndex = 0,
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
) -> Answer:
    """``flash_attn_func`` with chunks, and with a mask of any form.

    Kernels take chunks and masks. Of a boolean mask that is the same for all heads and rows, as of padding,
    without causal, window_size, alibi_slopes and chunk, the keys that are seen are copied together first,
    forward and backward; dropout then drops what it would drop of the same sequences without the others.
    Other masks kernels read, forward and backward, without alibi_slopes, softcap and chunk. There the PyTorch
    implementation answers, and computes gradients, in memory that grows with the lengths and not with their
    product; the gradient of a bias has the bias's size in fp32, and on kernels takes up to 256 MiB more, or
    as much as one group of heads has scores, with dropout as all have.

    With more queries than keys a right bound of seqlen_k or more holds, too, unlike in flash_attn's
    functions.

    Args:
        q: (batch, seqlen_q, nheads, headdim).
        k: (batch, seqlen_k, nheads_k, headdim).
        v: (batch, seqlen_k, nheads_k, headdim).
        attn_mask: torch.bool, True where a query may see a key, or numbers (torch.float16, torch.bfloat16,
            torch.float32) that are added to the scores, of which -inf hides a key: (seqlen_q, seqlen_k),
            (batch, seqlen_q, seqlen_k) or (batch, nheads, seqlen_q, seqlen_k), where any size may be 1. A
            mask of each sequence's keys, (batch, seqlen_k), is given as mask[:, None]. It hides keys besides
            those that causal and window_size hide.
    """
    tensors = (q, k, v, alibi_slopes, attn_mask, sink)
    numbers = (chunk, dropout_p, softmax_scale, causal, softcap, deterministic, window_size)
    return call(MASKED, tensors, numbers, return_attn_probs)
