"""The functions of flash_attn 2.8 that have gradients, with its signatures and keywords of ours behind them;
``help`` of each says all.

Each has three overloads, by ``return_attn_probs``: False gives a tensor, True a tuple, any bool either.
"""
# ruff: noqa: FBT001, FBT002 - the signatures are upstream's

from typing import Literal, SupportsFloat, SupportsIndex, TypeAlias, overload

from torch import Tensor

from flash_attn_rocm.arguments import preparation
from flash_attn_rocm.arguments.documentation import documented
from flash_attn_rocm.arguments.normal_form import Inputs, WindowSize
from flash_attn_rocm.autograd.dispatch import Function, Three, call

Answer: TypeAlias = Tensor | Three


def _dense(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None, sink: Tensor | None) -> Inputs:
    return Inputs(q, k, v, slopes, sink=sink)


def _qkvpacked(qkv: Tensor, slopes: Tensor | None, sink: Tensor | None) -> Inputs:
    q, k, v = qkv.unbind(2)
    return Inputs(q, k, v, slopes, sink=sink)


def _kvpacked(q: Tensor, kv: Tensor, slopes: Tensor | None, sink: Tensor | None) -> Inputs:
    k, v = kv.unbind(2)
    return Inputs(q, k, v, slopes, sink=sink)


def _varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_q: Tensor,
    cu_k: Tensor,
    table: Tensor | None,
    slopes: Tensor | None,
    sink: Tensor | None,
) -> Inputs:
    return Inputs(q, k, v, slopes, cu_q, cu_k, block_table=table, sink=sink)


def _varlen_qkvpacked(qkv: Tensor, cu: Tensor, slopes: Tensor | None, sink: Tensor | None) -> Inputs:
    q, k, v = qkv.unbind(1)
    return Inputs(q, k, v, slopes, cu, cu, sink=sink)


def _varlen_kvpacked(
    q: Tensor, kv: Tensor, cu_q: Tensor, cu_k: Tensor, slopes: Tensor | None, sink: Tensor | None
) -> Inputs:
    k, v = kv.unbind(1)
    return Inputs(q, k, v, slopes, cu_q, cu_k, sink=sink)


# The arguments that say both of queries and keys.
ONE_LENGTH = {
    "cu_seqlens_q": "cu_seqlens", "cu_seqlens_k": "cu_seqlens",
    "max_seqlen_q": "max_seqlen", "max_seqlen_k": "max_seqlen",
}  # fmt: skip

DENSE = Function("flash_attn_func", preparation.dense, _dense)
QKVPACKED = Function("flash_attn_qkvpacked_func", preparation.qkvpacked, _qkvpacked, 3)
KVPACKED = Function("flash_attn_kvpacked_func", preparation.kvpacked, _kvpacked, 2)
VARLEN = Function("flash_attn_varlen_func", preparation.varlen, _varlen)
VARLEN_QKVPACKED = Function(
    "flash_attn_varlen_qkvpacked_func", preparation.varlen_qkvpacked, _varlen_qkvpacked, 3, ONE_LENGTH
)
VARLEN_KVPACKED = Function(
    "flash_attn_varlen_kvpacked_func", preparation.varlen_kvpacked, _varlen_kvpacked, 2
)


@overload
def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: Literal[False] = False,
    *, sink: Tensor | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, *, return_attn_probs: Literal[True],
    sink: Tensor | None = None,
) -> Three: ...  # fmt: skip
@overload
def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: bool = False,
    *, sink: Tensor | None = None,
) -> Answer: ...  # fmt: skip
@documented
def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: SupportsFloat = 0.0,
    softmax_scale: SupportsFloat | None = None,
    causal: bool = False,
    window_size: WindowSize = (-1, -1),
    softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    sink: Tensor | None = None,
) -> Answer:
    """Attention with gradients: softmax(softmax_scale * q k^T + mask) v.

    Args:
        q: (batch, seqlen_q, nheads, headdim).
        k: (batch, seqlen_k, nheads_k, headdim).
        v: (batch, seqlen_k, nheads_k, headdim).
    """
    tensors = (q, k, v, alibi_slopes, sink)
    numbers = (dropout_p, softmax_scale, causal, softcap, deterministic, window_size)
    return call(DENSE, tensors, numbers, return_attn_probs)


@overload
def flash_attn_qkvpacked_func(
    qkv: Tensor,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: Literal[False] = False,
    *, sink: Tensor | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def flash_attn_qkvpacked_func(
    qkv: Tensor,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, *, return_attn_probs: Literal[True],
    sink: Tensor | None = None,
) -> Three: ...  # fmt: skip
@overload
def flash_attn_qkvpacked_func(
    qkv: Tensor,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: bool = False,
    *, sink: Tensor | None = None,
) -> Answer: ...  # fmt: skip
@documented
def flash_attn_qkvpacked_func(
    qkv: Tensor,
    dropout_p: SupportsFloat = 0.0,
    softmax_scale: SupportsFloat | None = None,
    causal: bool = False,
    window_size: WindowSize = (-1, -1),
    softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    sink: Tensor | None = None,
) -> Answer:
    """``flash_attn_func`` of q, k and v in one tensor, which gets one gradient.

    Args:
        qkv: (batch, seqlen, 3, nheads, headdim): q, k and v are qkv[:, :, 0], qkv[:, :, 1] and qkv[:, :, 2].
    """
    tensors = (qkv, alibi_slopes, sink)
    numbers = (dropout_p, softmax_scale, causal, softcap, deterministic, window_size)
    return call(QKVPACKED, tensors, numbers, return_attn_probs)


@overload
def flash_attn_kvpacked_func(
    q: Tensor, kv: Tensor,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: Literal[False] = False,
    *, sink: Tensor | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def flash_attn_kvpacked_func(
    q: Tensor, kv: Tensor,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, *, return_attn_probs: Literal[True],
    sink: Tensor | None = None,
) -> Three: ...  # fmt: skip
@overload
def flash_attn_kvpacked_func(
    q: Tensor, kv: Tensor,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: bool = False,
    *, sink: Tensor | None = None,
) -> Answer: ...  # fmt: skip
@documented
def flash_attn_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    dropout_p: SupportsFloat = 0.0,
    softmax_scale: SupportsFloat | None = None,
    causal: bool = False,
    window_size: WindowSize = (-1, -1),
    softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    sink: Tensor | None = None,
) -> Answer:
    """``flash_attn_func`` of k and v in one tensor, which gets one gradient.

    Args:
        q: (batch, seqlen_q, nheads, headdim).
        kv: (batch, seqlen_k, 2, nheads_k, headdim): k and v are kv[:, :, 0] and kv[:, :, 1].
    """
    tensors = (q, kv, alibi_slopes, sink)
    numbers = (dropout_p, softmax_scale, causal, softcap, deterministic, window_size)
    return call(KVPACKED, tensors, numbers, return_attn_probs)


@overload
def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
    max_seqlen_q: SupportsIndex, max_seqlen_k: SupportsIndex,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: Literal[False] = False, block_table: Tensor | None = None,
    *, sink: Tensor | None = None, chunk: SupportsIndex = 0,
) -> Tensor: ...  # fmt: skip
@overload
def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
    max_seqlen_q: SupportsIndex, max_seqlen_k: SupportsIndex,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, *, return_attn_probs: Literal[True], block_table: Tensor | None = None,
    sink: Tensor | None = None, chunk: SupportsIndex = 0,
) -> Three: ...  # fmt: skip
@overload
def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
    max_seqlen_q: SupportsIndex, max_seqlen_k: SupportsIndex,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: bool = False, block_table: Tensor | None = None,
    *, sink: Tensor | None = None, chunk: SupportsIndex = 0,
) -> Answer: ...  # fmt: skip
@documented
def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: SupportsIndex,
    max_seqlen_k: SupportsIndex,
    dropout_p: SupportsFloat = 0.0,
    softmax_scale: SupportsFloat | None = None,
    causal: bool = False,
    window_size: WindowSize = (-1, -1),
    softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
    *,
    sink: Tensor | None = None,
    chunk: SupportsIndex = 0,
) -> Answer:
    """Attention with gradients over sequences of different lengths, packed one after another.

    Rows that belong to no sequence give out 0, log-sum-exp +inf and gradients 0. So do, with kernels, rows
    beyond max_seqlen_q of a sequence; the PyTorch implementation raises an error for a sequence that is
    longer than max_seqlen_q or max_seqlen_k.

    Args:
        q: (total_q, nheads, headdim), the rows of all sequences.
        k: (total_k, nheads_k, headdim).
        v: (total_k, nheads_k, headdim).
    """
    tensors = (q, k, v, cu_seqlens_q, cu_seqlens_k, block_table, alibi_slopes, sink)
    numbers = (
        max_seqlen_q,
        max_seqlen_k,
        chunk,
        dropout_p,
        softmax_scale,
        causal,
        softcap,
        deterministic,
        window_size,
    )
    return call(VARLEN, tensors, numbers, return_attn_probs)


@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: SupportsIndex,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: Literal[False] = False,
    *, sink: Tensor | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: SupportsIndex,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, *, return_attn_probs: Literal[True],
    sink: Tensor | None = None,
) -> Three: ...  # fmt: skip
@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: SupportsIndex,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: bool = False,
    *, sink: Tensor | None = None,
) -> Answer: ...  # fmt: skip
@documented
def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: SupportsIndex,
    dropout_p: SupportsFloat = 0.0,
    softmax_scale: SupportsFloat | None = None,
    causal: bool = False,
    window_size: WindowSize = (-1, -1),
    softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    sink: Tensor | None = None,
) -> Answer:
    """``flash_attn_varlen_func`` of q, k and v in one tensor, which gets one gradient.

    Args:
        qkv: (total, 3, nheads, headdim): q, k and v are qkv[:, 0], qkv[:, 1] and qkv[:, 2].
        cu_seqlens: (batch + 1,), torch.int32, on qkv's device: sequence b has the rows cu_seqlens[b] to
            cu_seqlens[b + 1] - 1. The first is 0, and none is less than the one before it.
        max_seqlen: Length of the longest sequence, in rows, or more.
    """
    tensors = (qkv, cu_seqlens, alibi_slopes, sink)
    numbers = (max_seqlen, dropout_p, softmax_scale, causal, softcap, deterministic, window_size)
    return call(VARLEN_QKVPACKED, tensors, numbers, return_attn_probs)


@overload
def flash_attn_varlen_kvpacked_func(
    q: Tensor, kv: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
    max_seqlen_q: SupportsIndex, max_seqlen_k: SupportsIndex,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: Literal[False] = False,
    *, sink: Tensor | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def flash_attn_varlen_kvpacked_func(
    q: Tensor, kv: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
    max_seqlen_q: SupportsIndex, max_seqlen_k: SupportsIndex,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, *, return_attn_probs: Literal[True],
    sink: Tensor | None = None,
) -> Three: ...  # fmt: skip
@overload
def flash_attn_varlen_kvpacked_func(
    q: Tensor, kv: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
    max_seqlen_q: SupportsIndex, max_seqlen_k: SupportsIndex,
    dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None, causal: bool = False,
    window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, return_attn_probs: bool = False,
    *, sink: Tensor | None = None,
) -> Answer: ...  # fmt: skip
@documented
def flash_attn_varlen_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: SupportsIndex,
    max_seqlen_k: SupportsIndex,
    dropout_p: SupportsFloat = 0.0,
    softmax_scale: SupportsFloat | None = None,
    causal: bool = False,
    window_size: WindowSize = (-1, -1),
    softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    sink: Tensor | None = None,
) -> Answer:
    """``flash_attn_varlen_func`` of k and v in one tensor, which gets one gradient.

    Args:
        q: (total_q, nheads, headdim), the rows of all sequences.
        kv: (total_k, 2, nheads_k, headdim): k and v are kv[:, 0] and kv[:, 1].
    """
    tensors = (q, kv, cu_seqlens_q, cu_seqlens_k, alibi_slopes, sink)
    numbers = (
        max_seqlen_q,
        max_seqlen_k,
        dropout_p,
        softmax_scale,
        causal,
        softcap,
        deterministic,
        window_size,
    )
    return call(VARLEN_KVPACKED, tensors, numbers, return_attn_probs)
