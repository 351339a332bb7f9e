"""The functions of flash_attn 2.8 with gradients: the same signatures, plus keywords of this package.

``help`` of each lists all arguments. ``flash_attn_interface.pyi`` has the overloads by ``return_attn_probs``.
``python3 -m wheel_builder.tables.generated`` writes it.
"""
# ruff: noqa: FBT001, FBT002 - the signatures are upstream's

from typing import SupportsFloat, SupportsIndex

from torch import Tensor

from flash_attn_rocm.arguments.documentation import documented
from flash_attn_rocm.arguments.normal_form import WindowSize
from flash_attn_rocm.autograd.dispatch import Answer, call
from flash_attn_rocm.autograd.unpacking import (
    DENSE,
    KVPACKED,
    QKVPACKED,
    VARLEN,
    VARLEN_KVPACKED,
    VARLEN_QKVPACKED,
)


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
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
) -> Answer:
    """Attention with gradients: softmax(softmax_scale * q k^T + mask) v.

    Args:
        q: (batch, seqlen_q, nheads, headdim).
        k: (batch, seqlen_k, nheads_k, headdim).
        v: (batch, seqlen_k, nheads_k, headdim).
    """
    tensors = (q, k, v, alibi_slopes, sink, q_descale, k_descale, v_descale)
    numbers = (dropout_p, softmax_scale, causal, softcap, deterministic, window_size)
    return call(DENSE, tensors, numbers, return_attn_probs)


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
    """``flash_attn_func`` of q, k and v in one tensor, with one gradient.

    Args:
        qkv: (batch, seqlen, 3, nheads, headdim): q, k and v are qkv[:, :, 0], qkv[:, :, 1] and qkv[:, :, 2].
    """
    tensors = (qkv, alibi_slopes, sink)
    numbers = (dropout_p, softmax_scale, causal, softcap, deterministic, window_size)
    return call(QKVPACKED, tensors, numbers, return_attn_probs)


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
    """``flash_attn_func`` of k and v in one tensor, with one gradient.

    Args:
        q: (batch, seqlen_q, nheads, headdim).
        kv: (batch, seqlen_k, 2, nheads_k, headdim): k and v are kv[:, :, 0] and kv[:, :, 1].
    """
    tensors = (q, kv, alibi_slopes, sink)
    numbers = (dropout_p, softmax_scale, causal, softcap, deterministic, window_size)
    return call(KVPACKED, tensors, numbers, return_attn_probs)


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
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
) -> Answer:
    """Attention with gradients over sequences of different lengths, packed one after another.

    Rows outside of all sequences give out 0, log-sum-exp +inf and gradients 0. With kernels, so do rows
    beyond max_seqlen_q of a sequence. The PyTorch implementation raises an error for sequences longer than
    max_seqlen_q or max_seqlen_k.

    Args:
        q: (total_q, nheads, headdim), the rows of all sequences.
        k: (total_k, nheads_k, headdim).
        v: (total_k, nheads_k, headdim).
        k_descale: of k of 8 bits, likewise. Of a paged cache of 8 bits also (num_blocks, page, nheads_k), one
            for each key of a head.
    """
    tensors = (
        q, k, v, cu_seqlens_q, cu_seqlens_k, block_table, alibi_slopes, sink, q_descale, k_descale, v_descale,
    )  # fmt: skip
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
    """``flash_attn_varlen_func`` of q, k and v in one tensor, with one gradient.

    Args:
        qkv: (total, 3, nheads, headdim): q, k and v are qkv[:, 0], qkv[:, 1] and qkv[:, 2].
        cu_seqlens: (batch + 1,), torch.int32, on qkv's device: sequence b has the rows cu_seqlens[b] to
            cu_seqlens[b + 1] - 1. The first is 0, and none is less than the one before it.
        max_seqlen: Length of the longest sequence, in rows, or more.
    """
    tensors = (qkv, cu_seqlens, alibi_slopes, sink)
    numbers = (max_seqlen, dropout_p, softmax_scale, causal, softcap, deterministic, window_size)
    return call(VARLEN_QKVPACKED, tensors, numbers, return_attn_probs)


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
    """``flash_attn_varlen_func`` of k and v in one tensor, with one gradient.

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
