"""Rows of 656 bytes in a cache of latent attention, as FlashMLA's and those of vLLM's fp8_ds_mla.

A row has 512 codes of torch.float8_e4m3fn, four scales in torch.float32, each for 128 codes, and 64 elements
of torch.bfloat16, which are the rotated part of the key.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from flash_attn_rocm.arguments.checks import devices, shape
from flash_attn_rocm.arguments.normal_form import CODES, integer
from flash_attn_rocm.values.given import Given

BYTES = 656
HEAD_DIM, VALUE_DIM, GROUPS = 576, 512, 4  # VALUE_DIM codes, in GROUPS with a scale each
SCALES_END = VALUE_DIM + GROUPS * torch.float32.itemsize
CODE = torch.float8_e4m3fn
NUMBERS = torch.bfloat16  # of q, of the rotated part and of widened rows
PLACE = f"beside a kv_cache in rows of {BYTES} bytes"


class Views(NamedTuple):
    """The parts of rows (batch, rows, 1, BYTES): codes and scales in groups, and the rotated elements."""

    codes: Tensor
    scales: Tensor
    rotated: Tensor


def is_packed(cache: Given) -> bool:
    """Whether a tensor holds such rows."""
    if not isinstance(cache, Tensor) or cache.is_nested or cache.dtype != torch.uint8:
        return False
    return cache.dim() > 0 and cache.shape[-1] == BYTES


def with_head(cache: Given) -> Given:
    """The cache. With the dimension of its one head, which such rows may lack."""
    return cache.unsqueeze(-2) if is_packed(cache) and cache.dim() == 3 else cache


def views(rows: Tensor) -> Views:
    """Of rows at multiples of 4 bytes."""
    rows = rows.squeeze(-2)
    codes = rows[..., :VALUE_DIM].view(CODE).unflatten(-1, (GROUPS, -1))
    scales = rows[..., VALUE_DIM:SCALES_END].view(torch.float32)
    return Views(codes, scales, rows[..., SCALES_END:].view(NUMBERS))


def problems(q: Tensor, cache: Tensor, head_dim_v: Given, kv_descale: Given) -> list[str]:
    """Problems of the arguments beside a cache of such rows."""
    rules = (
        (q.dtype != NUMBERS, f"q: expected dtype {NUMBERS} {PLACE}, got {q.dtype}"),
        (q.shape[-1] != HEAD_DIM, f"q: expected headdim {HEAD_DIM} {PLACE}, got shape {shape(q)}"),
        (integer(head_dim_v) != VALUE_DIM, f"head_dim_v: expected {VALUE_DIM} {PLACE}, got {head_dim_v}"),
        (
            kv_descale is not None,
            f"kv_descale: expected None {PLACE}, which hold their scales, got {type(kv_descale).__name__}",
        ),
    )
    return [text for broken, text in rules if broken] + devices("q", q, {"kv_cache": cache})


def way_out(cache: Tensor) -> str:
    """What to do with a cache that is not of q's headdim, and may have been meant for such rows."""
    if cache.dtype == torch.uint8:
        return f"; {torch.uint8} is for rows of {BYTES} bytes"
    if cache.dtype in CODES and cache.shape[-1] == BYTES:
        return f"; pass rows of {BYTES} bytes as kv_cache.view({torch.uint8})"
    return ""
