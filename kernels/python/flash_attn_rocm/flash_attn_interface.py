"""The functions of flash_attn 2.8 that have gradients, with its signatures.

All compute softmax(softmax_scale * q k^T + mask) v for tensors on one device, all torch.float16 or all
torch.bfloat16, with nheads a multiple of nheads_k and headdim <= 256.  No kernel takes torch.float64: the
PyTorch implementation computes it in float64, which torch.autograd.gradcheck needs; the log-sum-exp is
float64 too.

``softmax_scale`` is headdim ** -0.5 by default.  Row i has its diagonal at key i + seqlen_k - seqlen_q;
``causal`` hides the keys after it, and ``window_size`` (left, right), a tuple, tensor or other pair of
integers, those further than that from it (-1: no bound).  ``softcap`` > 0 makes scores
softcap * tanh(score / softcap).  ``alibi_slopes`` (nheads,) or (batch, nheads) fp32 subtracts slope *
distance from the diagonal.  ``dropout_p`` drops probabilities, seeded by torch.manual_seed.
``deterministic`` gradients have the same bits each time, as all have under
torch.use_deterministic_algorithms(True); others may be computed in one pass, which adds dq up in no fixed
order: ``explain`` tells, and FLASH_ATTN_ROCM_BACKWARD=split or fused chooses.

They return out, shaped and typed like q; with ``return_attn_probs`` also the log-sum-exp fp32 (batch, nheads,
seqlen_q), or (nheads, total_q) of packed sequences, and when dropout_p > 0 the probabilities (batch, nheads,
max_seqlen_q, max_seqlen_k), negative where they were dropped (else an empty tensor).  These are normalised:
their magnitudes sum to 1 over a row's keys, while those of flash_attn still lack a factor for each row.  Rows
that see no key give out 0 and log-sum-exp +inf.

Forward and backward pass run kernels when these serve the call (see ``explain``), otherwise the PyTorch
implementation, with one FlashAttnFallbackWarning for each reason; the backward pass recomputes the
probabilities, and has no derivative of its own.  In strict mode a call without a kernel raises
FlashAttnUnsupportedError.  Wrong arguments raise FlashAttnArgumentError, a ValueError and a RuntimeError,
with all problems.
"""
# ruff: noqa: FBT001, FBT002 - the signatures are upstream's

from typing import TypeAlias

from torch import Tensor

from flash_attn_rocm import _prepare
from flash_attn_rocm._interface import Function, call
from flash_attn_rocm._options import Inputs

Answer: TypeAlias = Tensor | tuple[Tensor, Tensor, Tensor]


def _qkvpacked(qkv: Tensor, slopes: Tensor | None) -> Inputs:
    q, k, v = qkv.unbind(2)
    return Inputs(q, k, v, slopes)


def _kvpacked(q: Tensor, kv: Tensor, slopes: Tensor | None) -> Inputs:
    k, v = kv.unbind(2)
    return Inputs(q, k, v, slopes)


def _varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, table: Tensor | None, slopes: Tensor | None
) -> Inputs:
    return Inputs(q, k, v, slopes, cu_q, cu_k, block_table=table)


def _varlen_qkvpacked(qkv: Tensor, cu: Tensor, slopes: Tensor | None) -> Inputs:
    q, k, v = qkv.unbind(1)
    return Inputs(q, k, v, slopes, cu, cu)


def _varlen_kvpacked(q: Tensor, kv: Tensor, cu_q: Tensor, cu_k: Tensor, slopes: Tensor | None) -> Inputs:
    k, v = kv.unbind(1)
    return Inputs(q, k, v, slopes, cu_q, cu_k)


DENSE = Function(_prepare.dense, Inputs)
QKVPACKED = Function(_prepare.qkvpacked, _qkvpacked, 3)
KVPACKED = Function(_prepare.kvpacked, _kvpacked, 2)
VARLEN = Function(_prepare.varlen, _varlen)
VARLEN_QKVPACKED = Function(_prepare.varlen_qkvpacked, _varlen_qkvpacked, 3)
VARLEN_KVPACKED = Function(_prepare.varlen_kvpacked, _varlen_kvpacked, 2)


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Answer:
    """q (batch, seqlen_q, nheads, headdim), k and v (batch, seqlen_k, nheads_k, headdim)."""
    tensors = (q, k, v, alibi_slopes)
    numbers = (dropout_p, softmax_scale, causal, softcap, deterministic, window_size)
    return call(DENSE, tensors, numbers, return_attn_probs)


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Answer:
    """qkv (batch, seqlen, 3, nheads, headdim)."""
    tensors = (qkv, alibi_slopes)
    numbers = (dropout_p, softmax_scale, causal, softcap, deterministic, window_size)
    return call(QKVPACKED, tensors, numbers, return_attn_probs)


def flash_attn_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Answer:
    """q (batch, seqlen_q, nheads, headdim), kv (batch, seqlen_k, 2, nheads_k, headdim)."""
    tensors = (q, kv, alibi_slopes)
    numbers = (dropout_p, softmax_scale, causal, softcap, deterministic, window_size)
    return call(KVPACKED, tensors, numbers, return_attn_probs)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
) -> Answer:
    """Sequences one after another: q (total_q, nheads, headdim), k and v (total_k, nheads_k, headdim).

    Sequence b has the rows cu_seqlens_q[b] to cu_seqlens_q[b + 1] of q, and likewise of k and v: both
    (batch + 1,) int32.  max_seqlen_q and max_seqlen_k are lengths that none exceeds.  With block_table
    (batch, max_blocks) int32 k and v are the blocks of a paged cache, (num_blocks, page, nheads_k, headdim),
    cu_seqlens_k gives the lengths only, and there is no backward pass.
    """
    tensors = (q, k, v, cu_seqlens_q, cu_seqlens_k, block_table, alibi_slopes)
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
    return call(VARLEN, tensors, numbers, return_attn_probs)


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Answer:
    """qkv (total, 3, nheads, headdim); see ``flash_attn_varlen_func``."""
    tensors = (qkv, cu_seqlens, alibi_slopes)
    numbers = (max_seqlen, dropout_p, softmax_scale, causal, softcap, deterministic, window_size)
    return call(VARLEN_QKVPACKED, tensors, numbers, return_attn_probs)


def flash_attn_varlen_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Answer:
    """q (total_q, nheads, headdim), kv (total_k, 2, nheads_k, headdim); see ``flash_attn_varlen_func``."""
    tensors = (q, kv, cu_seqlens_q, cu_seqlens_k, alibi_slopes)
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
