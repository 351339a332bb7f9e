"""Rotary position embedding of the first rotary_dim elements of each head."""

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import arithmetic


def rotate(x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, *, interleaved: bool) -> Tensor:
    """x (batch, rows, heads, headdim) rotated by the angles at ``positions`` (batch, rows), in x's dtype.

    cos and sin (any, rotary_dim / 2). Pairs are elements 0 and 1, 2 and 3, … if interleaved, else 0 and
    rotary_dim / 2, and so on. Arithmetic is in fp32, for float64 in float64.
    """
    half, work = cos.shape[1], arithmetic(x.dtype)
    c, s = (table[positions].to(work)[:, :, None] for table in (cos, sin))
    turned, kept = x[..., : 2 * half].to(work), x[..., 2 * half :]
    if interleaved:
        first, second = turned[..., 0::2], turned[..., 1::2]
        pairs = torch.stack((first * c - second * s, second * c + first * s), dim=-1).flatten(-2)
    else:
        first, second = turned[..., :half], turned[..., half:]
        pairs = torch.cat((first * c - second * s, second * c + first * s), dim=-1)
    return torch.cat((pairs.to(x.dtype), kept), dim=-1)
