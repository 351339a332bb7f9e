"""Multi-head attention with its projections. Parameters and buffers have upstream's names."""
# ruff: noqa: FBT001, FBT002 - the signatures are upstream's

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear
from torch.utils.checkpoint import checkpoint

from flash_attn.flash_attn_interface import flash_attn_with_kvcache
from flash_attn.layers.rotary import RotaryEmbedding
from flash_attn.modules._attention import (
    CrossAttention,
    FlashCrossAttention,
    FlashSelfAttention,
    SelfAttention,
    get_alibi_slopes,
)

__all__ = [
    "MHA",
    "CrossAttention",
    "FlashCrossAttention",
    "FlashSelfAttention",
    "SelfAttention",
    "get_alibi_slopes",
]


class MHA(torch.nn.Module):
    """Projections of x, rotary embedding, attention, and a projection of its result.

    ``num_heads_kv`` heads of k and v, by default as many as of q. With ``use_flash_attn`` the kernels compute
    attention. ALiBi and windows need it. Otherwise PyTorch does, and a mask of keys is allowed.
    ``fused_bias_fc`` has no effect: PyTorch's linear layers add the bias themselves.

    Raises ``NotImplementedError`` for ``dwconv``.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_heads_kv: int | None = None,
        cross_attn: bool = False,
        qkv_proj_bias: bool = True,
        out_proj_bias: bool = True,
        dropout: float = 0.0,
        softmax_scale: float | None = None,
        causal: bool = False,
        layer_idx: int | None = None,
        dwconv: bool = False,
        rotary_emb_dim: int = 0,
        rotary_emb_base: float = 10000.0,
        rotary_emb_scale_base: float | None = None,
        rotary_emb_interleaved: bool = False,
        use_alibi: bool = False,
        window_size: Sequence[int] = (-1, -1),
        fused_bias_fc: bool = False,
        use_flash_attn: bool = False,
        return_residual: bool = False,
        checkpointing: bool = False,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        del fused_bias_fc
        if dwconv:
            message = "dwconv: expected False, because there is no depthwise convolution here"
            raise NotImplementedError(message)
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.num_heads_kv = num_heads if num_heads_kv is None else num_heads_kv
        self.cross_attn, self.causal, self.layer_idx = cross_attn, causal, layer_idx
        self.rotary_emb_dim, self.use_flash_attn = rotary_emb_dim, use_flash_attn
        self.return_residual, self.checkpointing = return_residual, checkpointing
        self._refuse_what_does_not_fit(use_alibi or tuple(window_size) != (-1, -1))
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        kv_dim = 2 * self.head_dim * self.num_heads_kv
        if cross_attn:
            self.Wq = Linear(embed_dim, embed_dim, bias=qkv_proj_bias, **made)
            self.Wkv = Linear(embed_dim, kv_dim, bias=qkv_proj_bias, **made)
        else:
            self.Wqkv = Linear(embed_dim, embed_dim + kv_dim, bias=qkv_proj_bias, **made)
        if rotary_emb_dim:
            self.rotary_emb = RotaryEmbedding(
                rotary_emb_dim, rotary_emb_base, rotary_emb_interleaved, rotary_emb_scale_base, device
            )
        slopes = torch.tensor(get_alibi_slopes(num_heads), device=device) if use_alibi else None
        own: dict[str, Any] = {"alibi_slopes": slopes, "window_size": window_size} if use_flash_attn else {}
        whole, cross = (
            (FlashSelfAttention, FlashCrossAttention) if use_flash_attn else (SelfAttention, CrossAttention)
        )
        self.inner_attn = whole(causal, softmax_scale, dropout, **own)
        self.inner_cross_attn = cross(causal, softmax_scale, dropout, **own)
        self.out_proj = Linear(embed_dim, embed_dim, bias=out_proj_bias, **made)

    def _refuse_what_does_not_fit(self, needs_flash: bool) -> None:
        rules = (
            (self.embed_dim % self.num_heads, "embed_dim: expected a multiple of num_heads"),
            (self.num_heads % self.num_heads_kv, "num_heads: expected a multiple of num_heads_kv"),
            (self.cross_attn and self.rotary_emb_dim, "rotary_emb_dim: expected 0 with cross_attn"),
            (needs_flash and not self.use_flash_attn, "use_flash_attn: expected True for ALiBi or a window"),
        )
        if found := [text for broken, text in rules if broken]:
            raise ValueError("\n".join(found))

    def allocate_inference_cache(
        self, batch_size: int, max_seqlen: int, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Room for k and v of a generation: (batch_size, max_seqlen, 2, num_heads_kv, head_dim)."""
        weight = self.out_proj.weight
        shape = (batch_size, max_seqlen, 2, self.num_heads_kv, self.head_dim)
        return torch.empty(shape, dtype=dtype or weight.dtype, device=weight.device)

    def forward(
        self,
        x: Tensor,
        x_kv: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        max_seqlen: int | None = None,
        mixer_subset: Any = None,  # noqa: ANN401
        inference_params: Any = None,  # noqa: ANN401
    ) -> Tensor | tuple[Tensor, Tensor]:
        """x (batch, seqlen, embed_dim), or packed (total, embed_dim) with cu_seqlens (batch + 1) int32.

        ``x_kv`` is the other sequence for ``cross_attn``, by default x. ``mixer_subset`` then selects its
        rows with a query. ``key_padding_mask`` (batch, seqlen) bool, True for visible keys, is for
        ``use_flash_attn`` False, ``cu_seqlens`` for True. ``inference_params`` holds a generation's
        seqlen_offset, lengths_per_sample, max_batch_size, max_seqlen and key_value_memory_dict. Generation
        has no gradients.

        Returns a tensor like x, with ``return_residual`` x as well.
        """
        self._refuse_call(x_kv, key_padding_mask, cu_seqlens, mixer_subset, inference_params)
        if inference_params is not None:
            context = self._generated(x, inference_params)
        elif self.cross_attn:
            packed = {"cu_seqlens_k": cu_seqlens, "max_seqlen_k": max_seqlen} if self.use_flash_attn else {}
            q = self.Wq(x if mixer_subset is None else x[:, mixer_subset])
            kv = self.Wkv(x if x_kv is None else x_kv).unflatten(-1, (2, self.num_heads_kv, self.head_dim))
            extra = self._extra(key_padding_mask, cu_seqlens, max_seqlen) | packed
            context = self._attend(self.inner_cross_attn, self._heads(q), kv, **extra)
        else:
            extra = self._extra(key_padding_mask, cu_seqlens, max_seqlen)
            context = self._self_attention(x, extra)
        out = self.out_proj(context.flatten(-2))
        return (out, x) if self.return_residual else out

    def _refuse_call(
        self,
        x_kv: Tensor | None,
        mask: Tensor | None,
        cu_seqlens: Tensor | None,
        subset: object,
        generation: Any,  # noqa: ANN401
    ) -> None:
        rules = (
            (x_kv is not None and not self.cross_attn, "x_kv: expected None without cross_attn"),
            (subset is not None and not self.cross_attn, "mixer_subset: expected None without cross_attn"),
            (mask is not None and self.use_flash_attn, "key_padding_mask: expected None with use_flash_attn"),
            (cu_seqlens is not None and not self.use_flash_attn, "cu_seqlens: expected use_flash_attn"),
            (cu_seqlens is not None and x_kv is not None, "cu_seqlens: expected None beside x_kv"),
            (cu_seqlens is not None and self.rotary_emb_dim, "cu_seqlens: expected no rotary embedding"),
            (generation is not None and self.cross_attn, "inference_params: expected None with cross_attn"),
            (generation is not None and not self.use_flash_attn, "inference_params: expected use_flash_attn"),
            (generation is not None and self.layer_idx is None, "inference_params: expected a layer_idx"),
        )
        if found := [text for broken, text in rules if broken]:
            raise ValueError("\n".join(found))

    def _extra(self, mask: Tensor | None, cu_seqlens: Tensor | None, longest: int | None) -> dict[str, Any]:
        if self.use_flash_attn:
            return {"cu_seqlens": cu_seqlens, "max_seqlen": longest}
        return {"key_padding_mask": mask}

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim))

    def _projected(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """q (…, num_heads, head_dim) and kv (…, 2, num_heads_kv, head_dim)."""
        q, kv = self.Wqkv(x).split([self.embed_dim, 2 * self.num_heads_kv * self.head_dim], dim=-1)
        return self._heads(q), kv.unflatten(-1, (2, self.num_heads_kv, self.head_dim))

    def _self_attention(self, x: Tensor, extra: dict[str, Any]) -> Tensor:
        q, kv = self._projected(x)
        if self.num_heads_kv == self.num_heads:
            qkv = torch.cat([q.unsqueeze(-3), kv], dim=-3)
            qkv = self.rotary_emb(qkv) if self.rotary_emb_dim else qkv
            return self._attend(self.inner_attn, qkv, **extra)
        q, kv = self.rotary_emb(q, kv) if self.rotary_emb_dim else (q, kv)
        if extra.get("cu_seqlens") is not None:
            extra |= {"cu_seqlens_k": extra["cu_seqlens"], "max_seqlen_k": extra["max_seqlen"]}
        return self._attend(self.inner_cross_attn, q, kv, **extra)

    def _attend(self, attention: torch.nn.Module, *tensors: Tensor, **extra: Any) -> Tensor:  # noqa: ANN401
        if not self.checkpointing:
            return attention(*tensors, **extra)
        return checkpoint(attention, *tensors, use_reentrant=False, **extra)

    def _generated(self, x: Tensor, generation: Any) -> Tensor:  # noqa: ANN401
        """Appends k and v of the new rows to the cache, and attends to the whole cache."""
        q, kv = self._projected(x)
        memory = generation.key_value_memory_dict
        if self.layer_idx not in memory:
            room = (generation.max_batch_size, generation.max_seqlen)
            memory[self.layer_idx] = self.allocate_inference_cache(*room, dtype=kv.dtype)
        cache = memory[self.layer_idx][: x.shape[0]]
        lengths = generation.lengths_per_sample
        attention = self.inner_cross_attn
        angles = self._angles(generation.max_seqlen, x) if self.rotary_emb_dim else (None, None, False)
        rotary_cos, rotary_sin, interleaved = angles
        return flash_attn_with_kvcache(
            q, cache[:, :, 0], cache[:, :, 1], kv[:, :, 0], kv[:, :, 1], rotary_cos, rotary_sin,
            cache_seqlens=generation.seqlen_offset if lengths is None else lengths[: x.shape[0]],
            softmax_scale=attention.softmax_scale, causal=self.causal, rotary_interleaved=interleaved,
            window_size=tuple(attention.window_size), alibi_slopes=attention.slopes,
        )  # fmt: skip

    def _angles(self, longest: int, x: Tensor) -> tuple[Tensor | None, Tensor | None, bool]:
        rotary = self.rotary_emb
        if rotary.scale is not None:
            message = "inference_params: expected a rotary embedding without scale_base"
            raise ValueError(message)
        rotary._update_cos_sin_cache(longest, device=x.device, dtype=x.dtype)  # noqa: SLF001
        return rotary._cos_cached, rotary._sin_cached, rotary.interleaved  # noqa: SLF001
