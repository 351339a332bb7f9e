"""Attention without projections: on the public functions, and with PyTorch."""
# ruff: noqa: FBT001, FBT002 - the signatures are upstream's

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from flash_attn.flash_attn_interface import (
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)


def get_alibi_slopes(nheads: int) -> list[float]:
    """The slopes of ALiBi's paper (Press et al. 2021, section 3): 2^(-8 i / n) for a power of two n.

    For other numbers of heads: the slopes of the next smaller power of two, then every second one of the next
    larger.
    """
    power = 2 ** int(math.log2(nheads))
    slopes = [2 ** (-8 * head / power) for head in range(1, power + 1)]
    return slopes if power == nheads else slopes + get_alibi_slopes(2 * power)[::2][: nheads - power]


class _Flash(torch.nn.Module):
    """The settings shared by both attention modules on the kernels."""

    def __init__(
        self,
        causal: bool,
        softmax_scale: float | None,
        attention_dropout: float,
        window_size: Sequence[int],
        alibi_slopes: Tensor | None,
        deterministic: bool,
    ) -> None:
        super().__init__()
        self.causal, self.softmax_scale = causal, softmax_scale
        self.drop = torch.nn.Dropout(attention_dropout)
        self.window_size, self.deterministic = window_size, deterministic
        self.register_buffer("alibi_slopes", alibi_slopes, persistent=False)

    @property
    def slopes(self) -> Tensor | None:
        """In fp32, also where the module is in another dtype."""
        return None if self.alibi_slopes is None else self.alibi_slopes.float()

    def _options(self, causal: bool | None) -> dict[str, Any]:
        return {
            "dropout_p": self.drop.p if self.training else 0.0,
            "softmax_scale": self.softmax_scale,
            "causal": self.causal if causal is None else causal,
            "window_size": tuple(self.window_size),
            "alibi_slopes": self.slopes,
            "deterministic": self.deterministic,
        }


class FlashSelfAttention(_Flash):
    """Attention of packed q, k and v: (batch, seqlen, 3, nheads, headdim), or (total, 3, nheads, headdim)
    with cu_seqlens (batch + 1) int32 and max_seqlen.  Dropout in training only."""

    def __init__(
        self,
        causal: bool = False,
        softmax_scale: float | None = None,
        attention_dropout: float = 0.0,
        window_size: Sequence[int] = (-1, -1),
        alibi_slopes: Tensor | None = None,
        deterministic: bool = False,
    ) -> None:
        super().__init__(causal, softmax_scale, attention_dropout, window_size, alibi_slopes, deterministic)

    def forward(
        self,
        qkv: Tensor,
        causal: bool | None = None,
        cu_seqlens: Tensor | None = None,
        max_seqlen: Any = None,  # noqa: ANN401 - an int beside cu_seqlens
    ) -> Tensor:
        """``causal`` stands for the module's own."""
        if cu_seqlens is None:
            return flash_attn_qkvpacked_func(qkv, **self._options(causal))
        return flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, **self._options(causal))


class FlashCrossAttention(_Flash):
    """Attention of q (batch, seqlen_q, nheads, headdim) and kv (batch, seqlen_k, 2, nheads_k, headdim), or of
    packed sequences with cu_seqlens of q and of kv.  Dropout in training only."""

    def __init__(
        self,
        causal: bool = False,
        softmax_scale: float | None = None,
        attention_dropout: float = 0.0,
        alibi_slopes: Tensor | None = None,
        window_size: Sequence[int] = (-1, -1),
        deterministic: bool = False,
    ) -> None:
        super().__init__(causal, softmax_scale, attention_dropout, window_size, alibi_slopes, deterministic)

    def forward(
        self,
        q: Tensor,
        kv: Tensor,
        causal: bool | None = None,
        cu_seqlens: Tensor | None = None,
        max_seqlen: Any = None,  # noqa: ANN401 - an int beside cu_seqlens
        cu_seqlens_k: Any = None,  # noqa: ANN401 - a tensor, likewise
        max_seqlen_k: Any = None,  # noqa: ANN401 - likewise
    ) -> Tensor:
        """``causal`` stands for the module's own."""
        if cu_seqlens is None:
            return flash_attn_kvpacked_func(q, kv, **self._options(causal))
        return flash_attn_varlen_kvpacked_func(
            q, kv, cu_seqlens, cu_seqlens_k, max_seqlen, max_seqlen_k, **self._options(causal)
        )


class CrossAttention(torch.nn.Module):
    """``FlashCrossAttention`` by PyTorch's attention, with a mask of keys instead of packed sequences."""

    def __init__(
        self, causal: bool = False, softmax_scale: float | None = None, attention_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.causal, self.softmax_scale = causal, softmax_scale
        self.drop = torch.nn.Dropout(attention_dropout)

    def forward(
        self, q: Tensor, kv: Tensor, causal: bool | None = None, key_padding_mask: Tensor | None = None
    ) -> Tensor:
        """``key_padding_mask`` (batch, seqlen_k) bool is True for visible keys.

        A causal mask is aligned to the bottom right, as in the kernels.
        """
        k, v = kv.unbind(dim=2)
        mask = None
        if self.causal if causal is None else causal:
            rows, keys = q.shape[1], k.shape[1]
            mask = torch.ones(rows, keys, dtype=torch.bool, device=q.device).tril(keys - rows)
        if key_padding_mask is not None:
            padding = key_padding_mask.bool()[:, None, None, :]
            mask = padding if mask is None else mask & padding
        dropout_p = self.drop.p if self.training else 0.0
        out = scaled_dot_product_attention(
            *(x.transpose(1, 2) for x in (q, k, v)), mask, dropout_p, scale=self.softmax_scale,
            enable_gqa=q.shape[2] != k.shape[2],
        )  # fmt: skip
        return out.transpose(1, 2)


class SelfAttention(CrossAttention):
    """``CrossAttention`` of packed q, k and v (batch, seqlen, 3, nheads, headdim)."""

    def forward(  # type: ignore[override]
        self, qkv: Tensor, causal: bool | None = None, key_padding_mask: Tensor | None = None
    ) -> Tensor:
        return super().forward(qkv[:, :, 0], qkv[:, :, 1:], causal, key_padding_mask)
