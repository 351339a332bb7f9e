"""Rotary embedding in PyTorch; differentiable."""
# ruff: noqa: FBT001, FBT002 - the signatures are upstream's

import torch
from torch import Tensor


def rotate_half(x: Tensor, interleaved: bool = False) -> Tensor:
    """(x1, x2) to (-x2, x1), of halves or, when interleaved, of neighbours."""
    if interleaved:
        return torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def apply_rotary_emb_torch(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """x (batch, seqlen, nheads, headdim); cos and sin (seqlen, rotary_dim / 2) or (batch, seqlen, …)."""
    rotary_dim = 2 * cos.shape[-1]
    both = (
        table.repeat_interleave(2, dim=-1) if interleaved else torch.cat((table, table), dim=-1)
        for table in (cos, sin)
    )
    wide_cos, wide_sin = (table[..., None, :] for table in both)
    turned, kept = x[..., :rotary_dim], x[..., rotary_dim:]
    return torch.cat((turned * wide_cos + rotate_half(turned, interleaved) * wide_sin, kept), dim=-1)


def apply_rotary_emb(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: int | Tensor = 0,
    cu_seqlens: Tensor | None = None,
    max_seqlen: int | None = None,
) -> Tensor:
    """x (batch, seqlen, nheads, headdim), or packed (total, nheads, headdim) with cu_seqlens (batch + 1).

    cos and sin (seqlen_rotary, rotary_dim / 2); row i of a sequence takes the angles of row i plus its
    seqlen_offsets, an int or (batch).  Arithmetic is in fp32; ``inplace`` writes into x.
    """
    del max_seqlen
    rows = _rows(x, seqlen_offsets, cu_seqlens)
    of_rows = (cos[rows].float(), sin[rows].float())
    rotated = apply_rotary_emb_torch(x.float(), *of_rows, interleaved).to(x.dtype)
    return x.copy_(rotated) if inplace else rotated


def _rows(x: Tensor, offsets: int | Tensor, cu_seqlens: Tensor | None) -> Tensor:
    """Which angles each row takes: (batch, seqlen), or (total) of packed sequences."""
    if cu_seqlens is None:
        rows = torch.arange(x.shape[1], device=x.device)
        return rows + (offsets[:, None] if isinstance(offsets, Tensor) else offsets)
    numbers = torch.arange(x.shape[0], device=x.device)
    sequence = torch.searchsorted(cu_seqlens[1:].long().contiguous(), numbers, right=True)
    sequence = sequence.clamp(max=cu_seqlens.shape[0] - 2)
    begins = numbers - cu_seqlens.long()[sequence]
    return begins + (offsets[sequence] if isinstance(offsets, Tensor) else offsets)
