"""The public functions of FlashAttention 3, and the lower entry points called by libraries.

These arguments only divide the work of Hopper's kernels and have no effect here: pack_gqa, sm_margin,
scheduler_metadata, and num_splits of the functions with gradients. qv, and a descale beside 16 bits, raise
NotImplementedError.
"""
# ruff: noqa: ANN401, ARG001, FBT001, FBT002 - the signatures are upstream's, and arguments are yet unchecked

from typing import Any, TypeAlias

import torch
from flash_attn_rocm import FlashAttnArgumentError
from torch import Tensor

from flash_attn_3 import _C, _operators  # noqa: F401 - _C registers the operators
from flash_attn_3._cache import Cache, Queries, attend_cache
from flash_attn_3._forward import Descales, Lengths, Rules, as_3, attend
from flash_attn_3._refused import refuse

Answer: TypeAlias = Tensor | tuple[Tensor, Tensor]

USE_TRITON_ROCM = False  # upstream's other implementation for AMD GPUs, missing here
flash_attn_3_gpu = torch.ops.flash_attn_3
flash_attn_3_cuda = flash_attn_3_gpu  # its name at first


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: Any = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
    *,
    s_aux: Tensor | None = None,
) -> Answer:
    """Attention with gradients.

    q is (batch, seqlen_q, nheads, headdim), k and v (batch, seqlen_k, nheads_k, headdim). Row i is at the
    position i + seqlen_k - seqlen_q. With attention_chunk > 0 it sees only keys of its own chunk of that many
    positions.
    s_aux (nheads,), a name from forks of upstream, are sinks with gradients: ``sink`` of
    ``flash_attn_rocm.flash_attn_func``. The other arguments are as in that function.
    q, k and v of torch.float8_e4m3fn or torch.float8_e4m3fnuz, times q_descale, k_descale and v_descale
    (batch, nheads_k) fp32, give out in torch.bfloat16, and are dequantised to it first unless a kernel
    multiplies fp8. No gradients.
    Returns out, or (out, softmax_lse) with return_attn_probs: (batch, nheads, seqlen_q) fp32, -inf for a row
    that sees no key, as in FlashAttention 3.
    Raises FlashAttnArgumentError for invalid arguments, and NotImplementedError for qv, and for descales
    beside 16 bits.
    """
    refuse(q, qv, q_descale, k_descale, v_descale)
    rules = Rules(softmax_scale, causal, window_size, attention_chunk, softcap, deterministic, s_aux)
    descales = Descales(q_descale, k_descale, v_descale)
    return _answer(attend(q, k, v, Lengths(), rules, descales), want_lse=return_attn_probs)


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: Any = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    deterministic: bool = False,
    num_heads_q: int | None = None,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
    *,
    s_aux: Tensor | None = None,
) -> Answer:
    """``flash_attn_func`` of q, k and v in one tensor.

    qkv is (batch, seqlen, 3, nheads, headdim), or with num_heads_q (batch, seqlen, nheads + 2 * nheads_k,
    headdim).
    """
    refuse(qkv, None, q_descale, k_descale, v_descale)
    rules = Rules(softmax_scale, causal, window_size, attention_chunk, softcap, deterministic, s_aux)
    descales = Descales(q_descale, k_descale, v_descale)
    found = attend(*_unpacked(qkv, num_heads_q), Lengths(), rules, descales)
    return _answer(found, want_lse=return_attn_probs)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: Any = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
    *,
    s_aux: Tensor | None = None,
) -> Answer:
    """Attention with gradients of packed sequences.

    q is (total_q, nheads, headdim), k and v (total_k, nheads_k, headdim). seqused_q and seqused_k (batch,)
    int32 are the numbers of used rows and keys at the start of each sequence. The other rows of out and of
    all gradients are 0. The other arguments are as in ``flash_attn_func`` and
    ``flash_attn_rocm.flash_attn_varlen_func``.
    softmax_lse is (nheads, total_q).
    """
    refuse(q, qv, q_descale, k_descale, v_descale)
    rules = Rules(softmax_scale, causal, window_size, attention_chunk, softcap, deterministic, s_aux)
    descales = Descales(q_descale, k_descale, v_descale)
    lengths = Lengths(cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, None, max_seqlen_q, max_seqlen_k)
    return _answer(attend(q, k, v, lengths, rules, descales), want_lse=return_attn_probs)


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    qv: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    page_table: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k_new: Tensor | None = None,
    max_seqlen_q: int | None = None,
    rotary_seqlens: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Any = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: Tensor | None = None,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    return_softmax_lse: bool = False,
    *,
    s_aux: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor, Tensor, Tensor]:
    """Attention of new queries over a cache, without gradients.

    k and v, if given, are written into the cache first.

    q is (batch, seqlen_q, nheads, headdim), or (total_q, nheads, headdim) with cu_seqlens_q and max_seqlen_q.
    k and v are (batch, seqlen_new, nheads_k, headdim), or (total_new, nheads_k, headdim) with
    cu_seqlens_k_new.
    The caches are (batch_cache, seqlen_cache, nheads_k, headdim). With page_table (batch, max_pages) int32
    they are pages of any size, (num_pages, page, nheads_k, headdim). rotary_seqlens (batch,) int32 is the
    position of the first new row for rotary_cos and rotary_sin, by default cache_seqlens. attention_chunk is
    as in ``flash_attn_func``, with positions counted from cache_leftpad on. The other arguments are as in
    ``flash_attn_rocm.flash_attn_with_kvcache``, also q_descale, k_descale and v_descale.

    q has the dtype of a cache of torch.float8_e4m3fn or torch.float8_e4m3fnuz, and is dequantised to
    torch.bfloat16. Unlike in FlashAttention 3, q may also have 16 bits, beside these, torch.float8_e5m2 or
    torch.int8. New keys of 16 bits are rounded on the way, new keys in the cache's dtype are copied.

    No keys are copied for a dense cache without attention_chunk, cu_seqlens_q or cu_seqlens_k_new, and for
    pages of a multiple of 16 rows without attention_chunk and cache_leftpad. For other calls each sequence's
    keys are gathered by a copy first, if a page table or cache_batch_idx gives their places.
    Returns out, or with return_softmax_lse (out, softmax_lse, and two empty tensors in place of upstream's
    results of splits).
    """
    refuse(q, qv, q_descale, k_descale, v_descale, caches=(k_cache, v_cache))
    queries = Queries(q, cu_seqlens_q, max_seqlen_q, q_descale)
    if isinstance(cache_seqlens, int):
        cache_seqlens = torch.full((queries.batch,), cache_seqlens, dtype=torch.int32, device=q.device)
    places = (cache_seqlens, cache_batch_idx, cache_leftpad, page_table)
    cache = Cache(k_cache, v_cache, *places, k_descale, v_descale)
    new = _operators.new_of(k, v, cu_seqlens_k_new, cache_seqlens)
    rotary = _operators.rotary_of(rotary_cos, rotary_sin, k, rotary_interleaved, rotary_seqlens)
    rules = Rules(softmax_scale, causal, window_size, attention_chunk, softcap, s_aux=s_aux)
    out, lse = attend_cache(queries, cache, new, rotary, rules, num_splits)
    return _operators.four(out, lse) if return_softmax_lse else out


def flash_attn_combine(
    out_partial: Tensor, lse_partial: Tensor, out: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """out and the log-sum-exp of parts, by PyTorch.

    out_partial is (parts, batch, seqlen, nheads, headdim) fp32, lse_partial (parts, batch, seqlen, nheads)
    fp32.
    For packed sequences the dimension batch is missing.
    """
    return _operators.fwd_combine(out_partial, lse_partial, out, out_dtype)


def get_scheduler_metadata(
    batch_size: int,
    max_seqlen_q: int,
    max_seqlen_k: int,
    num_heads_q: int,
    num_heads_kv: int,
    headdim: int,
    cache_seqlens: Tensor,
    qkv_dtype: torch.dtype = torch.bfloat16,
    headdim_v: int | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k_new: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    page_size: int | None = None,
    max_seqlen_k_new: int = 0,
    causal: bool = False,
    window_size: Any = (-1, -1),
    attention_chunk: int = 0,
    has_softcap: bool = False,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
) -> Tensor:
    """One int32 element, ignored by ``flash_attn_with_kvcache``."""
    return _operators.get_scheduler_metadata(
        batch_size, max_seqlen_q, max_seqlen_k, num_heads_q, num_heads_kv, headdim, headdim_v or headdim,
        qkv_dtype, cache_seqlens,
    )  # fmt: skip


def _flash_attn_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_new: Tensor | None = None,
    v_new: Tensor | None = None,
    qv: Tensor | None = None,
    out_: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    cu_seqlens_k_new: Tensor | None = None,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    page_table: Tensor | None = None,
    kv_batch_idx: Tensor | None = None,
    leftpad_k: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    seqlens_rotary: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size_left: int = -1,
    window_size_right: int = -1,
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: Tensor | None = None,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
) -> _operators.Four:
    """The operator ``fwd``, with gradients if no cache is given."""
    return _operators.fwd(
        q, k, v, k_new, v_new, qv, out_, cu_seqlens_q, cu_seqlens_k, cu_seqlens_k_new, seqused_q, seqused_k,
        max_seqlen_q, max_seqlen_k, page_table, kv_batch_idx, leftpad_k, rotary_cos, rotary_sin,
        seqlens_rotary, q_descale, k_descale, v_descale, softmax_scale, causal, window_size_left,
        window_size_right, attention_chunk, softcap, rotary_interleaved, scheduler_metadata, num_splits,
        pack_gqa, sm_margin,
    )  # fmt: skip


def _flash_attn_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    sequed_q: Tensor | None = None,
    sequed_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    dq: Tensor | None = None,
    dk: Tensor | None = None,
    dv: Tensor | None = None,
    softmax_scale: float | None = None,
    is_causal: bool = False,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    deterministic: bool = False,
    sm_margin: int = 0,
) -> Tensor:
    """Gradients into dq, dk and dv. Returns the sums of dout * out.  ``sequed_`` is upstream's spelling."""
    return _operators.bwd(
        dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, sequed_q, sequed_k,
        max_seqlen_q, max_seqlen_k, softmax_scale, is_causal, window_size_left, window_size_right, softcap,
        deterministic, sm_margin,
    )[3]  # fmt: skip


def _answer(found: tuple[Tensor, Tensor], *, want_lse: bool) -> Answer:
    out, lse = found
    return (out, as_3(lse)) if want_lse else out


def _unpacked(qkv: Tensor, num_heads_q: int | None) -> tuple[Tensor, Tensor, Tensor]:
    wanted = "(batch, seqlen, 3, nheads, headdim), or of 4 dimensions with num_heads_q"
    problem = f"qkv: expected shape {wanted}, got {tuple(qkv.shape)} and num_heads_q={num_heads_q}"
    if qkv.dim() == 5 and qkv.shape[2] == 3:
        q, k, v = qkv.unbind(2)
        return q, k, v
    if qkv.dim() != 4 or num_heads_q is None:
        raise FlashAttnArgumentError(problem)
    nheads_k, odd = divmod(qkv.shape[2] - num_heads_q, 2)
    if nheads_k < 1 or odd:
        raise FlashAttnArgumentError(problem)
    q, k, v = qkv.split([num_heads_q, nheads_k, nheads_k], 2)
    return q, k, v
