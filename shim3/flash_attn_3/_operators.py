"""The functions of FlashAttention 3's compiled module, with its arguments by position."""
# ruff: noqa: ANN401, ARG001, FBT001, FBT002 - the signatures are upstream's

from typing import Any

import torch
from flash_attn_rocm import FlashAttnArgumentError, raw
from flash_attn_rocm.pieces import flat
from torch import Tensor

from flash_attn_3._cache import Cache, New, Queries, Rotary, attend_cache
from flash_attn_3._forward import Descales, Lengths, Rules, as_2, as_3, attend, pieces_of
from flash_attn_3._refused import refuse, refuse_gradients

Four = tuple[Tensor, Tensor, Tensor, Tensor]
Gradients = tuple[Tensor, ...]  # eight


def fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_new: Tensor | None = None,
    v_new: Tensor | None = None,
    q_v: Tensor | None = None,
    out: Tensor | None = None,
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
    is_causal: bool = False,
    window_size_left: int = -1,
    window_size_right: int = -1,
    attention_chunk: int = 0,
    softcap: float = 0.0,
    is_rotary_interleaved: bool = False,
    scheduler_metadata: Tensor | None = None,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
) -> Four:
    """out, the log-sum-exp, and two empty tensors in place of upstream's results of splits.

    The call is for a cache, and k_new and v_new are appended to it, if any argument only for caches is given,
    or seqused_k without cu_seqlens_k.
    """
    refuse(q, q_v, q_descale, k_descale, v_descale, caches=(k, v))
    window = (window_size_left, window_size_right)
    rules = Rules(softmax_scale, is_causal, window, attention_chunk, softcap)
    of_caches = {
        "k_new": k_new, "page_table": page_table, "kv_batch_idx": kv_batch_idx, "leftpad_k": leftpad_k,
        "rotary_cos": rotary_cos,
    }  # fmt: skip
    given = [name for name, x in of_caches.items() if x is not None]
    if not given and (cu_seqlens_k is not None or seqused_k is None or seqused_q is not None):
        lengths = Lengths(cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, None, max_seqlen_q, max_seqlen_k)
        found, lse = attend(q, k, v, lengths, rules, Descales(q_descale, k_descale, v_descale))
        return four(found, lse, out)
    for name, x in (("cu_seqlens_k", cu_seqlens_k), ("seqused_q", seqused_q)):
        if x is not None:
            problem = f"{name}: cannot be combined with {', '.join(given)}"
            raise FlashAttnArgumentError(problem)
    found, lse = attend_cache(
        Queries(q, cu_seqlens_q, max_seqlen_q, q_descale),
        Cache(k, v, seqused_k, kv_batch_idx, leftpad_k, page_table, k_descale, v_descale),
        new_of(k_new, v_new, cu_seqlens_k_new, seqused_k),
        rotary_of(rotary_cos, rotary_sin, k_new, is_rotary_interleaved, seqlens_rotary),
        rules,
        num_splits,
    )
    return four(found, lse, out)


def new_of(
    k: Tensor | None, v: Tensor | None, cu_seqlens: Tensor | None, lengths: Tensor | None
) -> New | None:
    """The appended rows. Raises FlashAttnArgumentError if a part is missing."""
    if k is None and v is None:
        return None
    missing = [name for name, x in (("k", k), ("v", v), ("cache_seqlens", lengths)) if x is None]
    if k is None or v is None or missing:
        problem = f"{', '.join(missing)}: expected where new keys are given, got None"
        raise FlashAttnArgumentError(problem)
    return New(k, v, cu_seqlens)


def rotary_of(
    cos: Tensor | None, sin: Tensor | None, k: Tensor | None, interleaved: bool, positions: Tensor | None
) -> Rotary | None:
    """The angles. Raises FlashAttnArgumentError if one of them, or the keys to rotate, are missing."""
    if cos is None and sin is None:
        return None
    missing = [name for name, x in (("rotary_cos", cos), ("rotary_sin", sin), ("k", k)) if x is None]
    if cos is None or sin is None or missing:
        problem = f"{', '.join(missing)}: expected where rotary_cos or rotary_sin is given, got None"
        raise FlashAttnArgumentError(problem)
    return Rotary(cos, sin, interleaved, positions)


def bwd(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor | None = None,
    dk: Tensor | None = None,
    dv: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    softmax_scale: float | None = None,
    is_causal: bool = False,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    deterministic: bool = False,
    sm_margin: int = 0,
) -> Gradients:
    """dq, dk, dv, the sums of dout * out, and four empty tensors in place of upstream's sums."""
    refuse_gradients({"q": q, "k": k, "v": v, "dout": dout})
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    window = (window_size_left, window_size_right)
    lengths = Lengths(cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, None, max_seqlen_q, max_seqlen_k)
    lse = as_2(softmax_lse)
    if all(x is None for x in lengths[:4]):
        *found, sums = raw.bwd(
            dout, q, k, v, out, lse, None, None, None, None, 0.0, scale, is_causal, *window, softcap,
            deterministic, None, None,
        )  # fmt: skip
    else:
        made = pieces_of(q, k, lengths, 0)
        lse = lse if q.dim() == 3 else lse.transpose(0, 1).flatten(1)
        *found, sums = raw.varlen_bwd(
            flat(dout), flat(q), flat(k), flat(v), flat(out), lse, None, None, None, *made[:2], None,
            *made[2:], 0.0, scale, zero_tensors=False, is_causal=is_causal, window_size_left=window[0],
            window_size_right=window[1], softcap=softcap, deterministic=deterministic,
        )  # fmt: skip
    places = zip((dq, dk, dv), found, (q, k, v), strict=True)
    a, b, c = (x.view_as(like) if into is None else into.copy_(x.view_as(like)) for into, x, like in places)
    return a, b, c, sums, *(sums.new_empty(0) for _ in range(4))


def fwd_combine(
    out_partial: Tensor, lse_partial: Tensor, out: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Combines parts: out_partial (parts, …, nheads, headdim) fp32, lse_partial (parts, …, nheads) fp32.

    Returns out (…, nheads, headdim), in ``out_dtype`` or fp32, and the log-sum-exp (…, nheads). A part
    without keys has -inf. A row without keys in all parts gets -inf and out 0.
    """
    if out_partial.shape[:-1] != lse_partial.shape:
        problem = (
            f"lse_partial: expected shape {tuple(out_partial.shape[:-1])} as out_partial without headdim, "
            f"got {tuple(lse_partial.shape)}"
        )
        raise FlashAttnArgumentError(problem)
    lse = lse_partial.logsumexp(0)
    shares = torch.where(lse_partial.isneginf(), 0.0, (lse_partial - lse).exp())
    found = (shares.unsqueeze(-1) * out_partial).sum(0)
    if out is not None:
        return out.copy_(found), lse
    return found.to(out_dtype or out_partial.dtype), lse


def get_scheduler_metadata(
    batch_size: int,
    max_seqlen_q: int,
    max_seqlen_k: int,
    num_heads: int,
    num_heads_k: int,
    headdim: int,
    headdim_v: int,
    qkv_dtype: torch.dtype,
    seqused_k: Tensor,
    *others: Any,
    **named: Any,
) -> Tensor:
    """One int32 element: our kernels plan each call on the host, from its shapes."""
    return seqused_k.new_zeros(1, dtype=torch.int32)


def four(found: Tensor, lse: Tensor, out: Tensor | None = None) -> Four:
    """The results of ``fwd``. ``found`` is copied into ``out``."""
    written = found if out is None else out.copy_(found)
    return written, as_3(lse), lse.new_empty(0), lse.new_empty(0)
