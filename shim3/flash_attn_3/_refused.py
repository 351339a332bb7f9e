"""Arguments of FlashAttention 3 unsupported by flash_attn_rocm: errors with the reason and a remedy."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

FP8 = frozenset({
    torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz,
})  # fmt: skip
DESCALES = ("q_descale", "k_descale", "v_descale")
QV = (
    "qv: no kernel adds qv @ v^T to the scores\n"
    "  next: pass None; in one product, torch.cat((q, qv), -1) as q and torch.cat((k, v), -1) as k give the "
    "same scores, with softmax_scale = (headdim of q + headdim of qv) ** -0.5"
)


def refuse(tensors: Mapping[str, Any], qv: Tensor | None, *descales: Tensor | None) -> None:
    """Raise NotImplementedError, with all reasons, if there are any."""
    found = [QV] if qv is not None else []
    eights = [name for name, x in tensors.items() if isinstance(x, Tensor) and x.dtype in FP8]
    if eights:
        found.append(
            f"{', '.join(eights)}: fp8, which no kernel takes\n"
            "  next: pass torch.bfloat16 or torch.float16: (x.float() * descale).to(torch.bfloat16)"
        )
    given = [name for name, x in zip(DESCALES, descales, strict=False) if x is not None]
    if given:
        found.append(
            f"{', '.join(given)}: for fp8, which no kernel takes; FlashAttention 3 ignores it for other "
            "dtypes\n  next: pass None, and tensors that are multiplied by it"
        )
    if found:
        raise NotImplementedError(
            "\n".join(("flash-attn-3 of flash-attn-rocm does not serve this call:", *found))
        )
