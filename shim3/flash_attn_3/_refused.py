"""Arguments of FlashAttention 3 unsupported by flash_attn_rocm: errors with the reason and a remedy."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

CODES = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.int8)  # of caches
DESCALES = ("q_descale", "k_descale", "v_descale")
QV = (
    "qv: no kernel adds qv @ v^T to the scores\n"
    "  next: pass None; in one product, torch.cat((q, qv), -1) as q and torch.cat((k, v), -1) as k give the "
    "same scores, with softmax_scale = (headdim of q + headdim of qv) ** -0.5"
)


BEGIN = "flash-attn-3 of flash-attn-rocm does not serve this call:"
CACHE = (
    "8 bits beside q of 16, which kernels take dense, or in pages of a multiple of 16 rows, without "
    "attention_chunk and wide windows; and new keys with cu_seqlens_k_new, or rotated ones, only in 16 bits\n"
    "  next: pass (cache.float() * descale).to(torch.bfloat16), or flash_attn_rocm.flash_attn_with_kvcache's "
    "arguments"
)


def is_coded(cache: object) -> bool:
    """Whether a cache has 8 bits."""
    return isinstance(cache, Tensor) and cache.dtype in CODES


def refuse_cache() -> None:
    """Raise NotImplementedError for a cache of 8 bits."""
    _raise([f"k_cache, v_cache: {CACHE}"])


def is_fp8(x: object) -> bool:
    """Whether a tensor has a dtype of 8 bits with a point."""
    return isinstance(x, Tensor) and x.is_floating_point() and x.element_size() == 1


def refuse(q: object, qv: Tensor | None, *descales: Tensor | None, caches: Iterable[object] = ()) -> None:
    """Raise NotImplementedError, with all reasons, if there are any.

    ``descales`` are those of q, k and v, and ``caches`` k and v that may have 8 bits beside q of 16.
    """
    found = [QV] if qv is not None else []
    wrong = DESCALES[:1] if any(map(is_coded, caches)) else DESCALES
    given = [name for name, x in zip(wrong, descales, strict=False) if x is not None]
    if given and not is_fp8(q):
        found.append(
            f"{', '.join(given)}: for 8 bits, and FlashAttention 3 ignores it for other dtypes\n"
            "  next: pass None, and tensors that are multiplied by it"
        )
    _raise(found)


def refuse_gradients(tensors: Mapping[str, object]) -> None:
    """Raise NotImplementedError if any has 8 bits."""
    eights = [name for name, x in tensors.items() if is_fp8(x)]
    if eights:
        way_out = "pass torch.bfloat16 or torch.float16: (x.float() * descale).to(torch.bfloat16)"
        _raise([f"{', '.join(eights)}: fp8, which has no gradients\n  next: {way_out}"])


def _raise(found: Sequence[str]) -> None:
    if found:
        raise NotImplementedError("\n".join((BEGIN, *found)))
