"""Arguments of FlashAttention 3 unsupported by flash_attn_rocm: errors with the reason and a remedy."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

FP8 = frozenset({
    torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz,
})  # fmt: skip
CODES = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.int8)  # of caches
DESCALES = ("q_descale", "k_descale", "v_descale")
QV = (
    "qv: no kernel adds qv @ v^T to the scores\n"
    "  next: pass None; in one product, torch.cat((q, qv), -1) as q and torch.cat((k, v), -1) as k give the "
    "same scores, with softmax_scale = (headdim of q + headdim of qv) ** -0.5"
)


BEGIN = "flash-attn-3 of flash-attn-rocm does not serve this call:"
CACHE = (
    "8 bits, which kernels take dense, or in pages of a multiple of 16 rows, without attention_chunk and "
    "wide windows; and new keys with cu_seqlens_k_new, or rotated ones, only in q's dtype\n"
    "  next: pass (cache.float() * descale).to(torch.bfloat16), or flash_attn_rocm.flash_attn_with_kvcache's "
    "arguments"
)


def is_coded(cache: object) -> bool:
    """Whether a cache has 8 bits."""
    return isinstance(cache, Tensor) and cache.dtype in CODES


def refuse_cache() -> None:
    """Raise NotImplementedError for a cache of 8 bits."""
    raise NotImplementedError("\n".join((BEGIN, f"k_cache, v_cache: {CACHE}")))


def refuse(
    tensors: Mapping[str, Any], qv: Tensor | None, *descales: Tensor | None, cached: bool = False
) -> None:
    """Raise NotImplementedError, with all reasons, if there are any.

    ``cached``: k and v, behind q in ``tensors``, are a cache, which may have 8 bits.
    """
    found = [QV] if qv is not None else []
    q, *caches = tensors.values()
    if cached and any(map(is_coded, caches)) and not is_coded(q):
        tensors, descales = {}, descales[:1]
    eights = [name for name, x in tensors.items() if isinstance(x, Tensor) and x.dtype in FP8]
    if eights:
        found.append(
            f"{', '.join(eights)}: fp8, which kernels take only in a cache, beside q of 16 bits\n"
            "  next: pass torch.bfloat16 or torch.float16: (x.float() * descale).to(torch.bfloat16)"
        )
    given = [name for name, x in zip(DESCALES, descales, strict=False) if x is not None]
    if given:
        found.append(
            f"{', '.join(given)}: for 8 bits, which kernels take only in a cache; FlashAttention 3 ignores "
            "it for other dtypes\n  next: pass None, and tensors that are multiplied by it"
        )
    if found:
        raise NotImplementedError("\n".join((BEGIN, *found)))
