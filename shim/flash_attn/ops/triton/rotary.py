"""Rotary embedding, without gradients. vllm imports this module if any flash_attn is installed."""
# ruff: noqa: FBT001, FBT002 - the signature is upstream's

import torch
from torch import Tensor

from flash_attn.layers.rotary import apply_rotary_emb


@torch.no_grad()
def apply_rotary(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    seqlen_offsets: int | Tensor = 0,
    cu_seqlens: Tensor | None = None,
    max_seqlen: int | None = None,
    interleaved: bool = False,
    inplace: bool = False,
    conjugate: bool = False,
) -> Tensor:
    """See ``flash_attn.layers.rotary.apply_rotary_emb``. ``conjugate`` rotates backwards."""
    turned = -sin if conjugate else sin
    return apply_rotary_emb(x, cos, turned, interleaved, inplace, seqlen_offsets, cu_seqlens, max_seqlen)
