"""Rotary embedding in PyTorch, differentiable."""
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
    """x (batch, seqlen, nheads, headdim), cos and sin (seqlen, rotary_dim / 2) or (batch, seqlen, …)."""
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

    cos and sin (seqlen_rotary, rotary_dim / 2). Row i of a sequence uses the angles of row i plus its
    seqlen_offsets, an int or (batch). Arithmetic is in fp32. ``inplace`` writes into x.
    """
    del max_seqlen
    rows = _rows(x, seqlen_offsets, cu_seqlens)
    of_rows = (cos[rows].float(), sin[rows].float())
    rotated = apply_rotary_emb_torch(x.float(), *of_rows, interleaved).to(x.dtype)
    return x.copy_(rotated) if inplace else rotated


def _rows(x: Tensor, offsets: int | Tensor, cu_seqlens: Tensor | None) -> Tensor:
    """The number of each row's angles: (batch, seqlen), or (total) for packed sequences."""
    if cu_seqlens is None:
        rows = torch.arange(x.shape[1], device=x.device)
        return rows + (offsets[:, None] if isinstance(offsets, Tensor) else offsets)
    numbers = torch.arange(x.shape[0], device=x.device)
    sequence = torch.searchsorted(cu_seqlens[1:].long().contiguous(), numbers, right=True)
    sequence = sequence.clamp(max=cu_seqlens.shape[0] - 2)
    begins = numbers - cu_seqlens.long()[sequence]
    return begins + (offsets[sequence] if isinstance(offsets, Tensor) else offsets)


apply_rotary_emb_func = apply_rotary_emb


def apply_rotary_emb_qkv_(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    cos_k: Tensor | None = None,
    sin_k: Tensor | None = None,
    interleaved: bool = False,
    seqlen_offsets: int | Tensor = 0,
    num_heads_q: int | None = None,
) -> Tensor:
    """Rotate q and k of qkv (batch, seqlen, 3, nheads, headdim), or of (batch, seqlen, nheads_q + 2 nheads_k,
    headdim) with ``num_heads_q``. In place if no gradient is needed. Use the returned tensor."""
    q, k, v = _parts(qkv, num_heads_q)
    angles_k = (cos if cos_k is None else cos_k, sin if sin_k is None else sin_k)
    parts = (
        apply_rotary_emb(q, cos, sin, interleaved, seqlen_offsets=seqlen_offsets),
        apply_rotary_emb(k, *angles_k, interleaved, seqlen_offsets=seqlen_offsets),
        v,
    )
    return _written(qkv, torch.stack(parts, dim=2) if num_heads_q is None else torch.cat(parts, dim=2))


def apply_rotary_emb_kv_(
    kv: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    seqlen_offsets: int | Tensor = 0,
) -> Tensor:
    """Rotate k of kv (batch, seqlen, 2, nheads, headdim), in place if no gradient is needed."""
    k, v = kv.unbind(dim=2)
    turned = apply_rotary_emb(k, cos, sin, interleaved, seqlen_offsets=seqlen_offsets)
    return _written(kv, torch.stack((turned, v), dim=2))


class ApplyRotaryEmb:
    """``apply`` is ``apply_rotary_emb``. PyTorch differentiates it, so this is no autograd.Function."""

    apply = staticmethod(apply_rotary_emb)


class ApplyRotaryEmbQKV_:  # noqa: N801 - upstream's name
    """``apply`` is ``apply_rotary_emb_qkv_``, likewise."""

    apply = staticmethod(apply_rotary_emb_qkv_)


class ApplyRotaryEmbKV_:  # noqa: N801 - upstream's name
    """``apply`` is ``apply_rotary_emb_kv_``, likewise."""

    apply = staticmethod(apply_rotary_emb_kv_)


def _parts(qkv: Tensor, num_heads_q: int | None) -> tuple[Tensor, ...]:
    if num_heads_q is None:
        return qkv.unbind(dim=2)
    num_heads_k = (qkv.shape[2] - num_heads_q) // 2
    return qkv.split([num_heads_q, num_heads_k, num_heads_k], dim=2)


def _written(given: Tensor, turned: Tensor) -> Tensor:
    """Autograd cannot differentiate through a leaf that was written to."""
    return turned if turned.requires_grad else given.copy_(turned)


class RotaryEmbedding(torch.nn.Module):
    """Angles by position, kept for the longest sequence seen, and their use on q and k.

    ``scale_base`` scales q and k by position too (XPos).
    """

    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        interleaved: bool = False,
        scale_base: float | None = None,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.base, self.interleaved, self.scale_base = dim, float(base), interleaved, scale_base
        self.register_buffer("inv_freq", self._compute_inv_freq(device), persistent=False)
        even = torch.arange(0, dim, 2, device=device, dtype=torch.float32)
        scale = None if scale_base is None else (even + 0.4 * dim) / (1.4 * dim)
        self.register_buffer("scale", scale, persistent=False)
        self._seq_len_cached = 0
        self._cos_cached: Tensor | None = None
        self._sin_cached: Tensor | None = None
        self._cos_k_cached: Tensor | None = None
        self._sin_k_cached: Tensor | None = None

    def _compute_inv_freq(self, device: torch.device | None = None) -> Tensor:
        even = torch.arange(0, self.dim, 2, device=device, dtype=torch.float32)
        return 1.0 / self.base ** (even / self.dim)

    def _update_cos_sin_cache(
        self, seqlen: int, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        kept = self._cos_cached
        if (
            kept is not None
            and seqlen <= self._seq_len_cached
            and (kept.device, kept.dtype) == (device, dtype)
        ):
            return
        self._seq_len_cached = seqlen
        positions = torch.arange(seqlen, device=device, dtype=torch.float32)
        # Always in fp32: fp16 cannot represent the angles of late positions.
        exact = self.inv_freq.dtype == torch.float32
        angles = torch.outer(positions, self.inv_freq if exact else self._compute_inv_freq(device))
        cos, sin = angles.cos(), angles.sin()
        if self.scale is None:
            self._cos_cached, self._sin_cached = cos.to(dtype), sin.to(dtype)
            return
        power = (positions - seqlen // 2)[:, None] / self.scale_base
        scale = self.scale.to(device=device, dtype=torch.float32) ** power
        self._cos_cached, self._sin_cached = (cos * scale).to(dtype), (sin * scale).to(dtype)
        self._cos_k_cached, self._sin_k_cached = (cos / scale).to(dtype), (sin / scale).to(dtype)

    def forward(
        self,
        qkv: Tensor,
        kv: Tensor | None = None,
        seqlen_offset: int | Tensor = 0,
        max_seqlen: int | None = None,
        num_heads_q: int | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """qkv as ``apply_rotary_emb_qkv_`` has it, or q (batch, seqlen, nheads, headdim) with kv."""
        longest = max_seqlen
        if longest is None:
            longest = qkv.shape[1] + int(
                seqlen_offset if isinstance(seqlen_offset, int) else seqlen_offset.max()
            )
        self._update_cos_sin_cache(longest, device=qkv.device, dtype=qkv.dtype)
        angles, angles_k = (self._cos_cached, self._sin_cached), (self._cos_k_cached, self._sin_k_cached)
        if kv is None:
            return apply_rotary_emb_qkv_(
                qkv, *angles, *angles_k, self.interleaved, seqlen_offset, num_heads_q
            )
        q = apply_rotary_emb(qkv, *angles, self.interleaved, seqlen_offsets=seqlen_offset)
        used = angles if self.scale is None else angles_k
        return _written(qkv, q), apply_rotary_emb_kv_(kv, *used, self.interleaved, seqlen_offset)
