"""transformers with these kernels, without the distribution flash-attn.

flash_attn_rocm.transformers.register()
model = AutoModelForCausalLM.from_pretrained(…, attn_implementation="rocm_fa")
"""

import importlib
from typing import Any

import torch
from torch import Tensor

from flash_attn_rocm.flash_attn_interface import flash_attn_func, flash_attn_varlen_func

NAME = "rocm_fa"


def register(name: str = NAME) -> str:
    """Make ``attn_implementation=name`` known to transformers; returns the name.

    Padding masks stay two-dimensional, and padded rows and keys are left out of the attention.
    """
    if "flash" in name:
        message = (
            f"transformers takes {name!r} for a kernel of its hub, because it has 'flash' in it\n"
            f"  next: choose another name, such as {NAME!r}"
        )
        raise ValueError(message)
    try:
        transformers = importlib.import_module("transformers")
        masks = importlib.import_module("transformers.masking_utils")
        attention, mask = transformers.AttentionInterface, transformers.AttentionMaskInterface
    except (ImportError, AttributeError) as error:
        message = (
            f"this needs transformers with AttentionInterface and AttentionMaskInterface: {error}\n"
            "  next: python -m pip install --upgrade transformers"
        )
        raise ImportError(message) from error
    attention.register(name, attend)
    mask.register(name, masks.flash_attention_mask)
    return name


def attend(
    module: Any,  # noqa: ANN401 - transformers' own
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,  # noqa: FBT001
    **given: Any,  # noqa: ANN401
) -> tuple[Tensor, None]:
    """Attention of query, key and value (batch, nheads, seqlen, headdim), as transformers calls it.

    ``attention_mask`` is (batch, seqlen_k), true where a key counts.
    """
    if unknown := [name for name in ("s_aux", "cache", "block_table") if given.get(name) is not None]:
        message = (
            f"attn_implementation={NAME!r} does not serve {', '.join(unknown)}; use 'eager' for this model"
        )
        raise ValueError(message)
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    head_dim, value_dim = q.shape[-1], v.shape[-1]
    if value_dim < head_dim:
        v = torch.nn.functional.pad(v, (0, head_dim - value_dim))
    options = {
        "dropout_p": dropout,
        "softmax_scale": scaling,
        "causal": bool(getattr(module, "is_causal", False) if is_causal is None else is_causal),
        "softcap": softcap or 0.0,
        # Of the keys before a row; what is after it, causal attention hides.
        "window_size": (sliding_window - 1, sliding_window - 1) if sliding_window else (-1, -1),
    }
    out = _attend(q, k, v, attention_mask, given, options)
    return out[..., :value_dim], None


def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, given: dict[str, Any], options: dict[str, Any]
) -> Tensor:
    if mask is not None:
        return _padded(q, k, v, mask, options)
    cut = tuple(
        given.get(name) for name in ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
    )
    if any(x is None for x in cut):
        ends = _packed_ends(given.get("position_ids"), q)
        if ends is None:
            out: Tensor = flash_attn_func(q, k, v, **options)
            return out
        longest = int((ends[1:] - ends[:-1]).max())
        cut = (ends, ends, longest, longest)
    rows = (x.reshape(-1, *x.shape[2:]) for x in (q, k, v))
    packed: Tensor = flash_attn_varlen_func(*rows, *cut, **options)
    return packed.view_as(q)


def _packed_ends(positions: Tensor | None, q: Tensor) -> Tensor | None:
    """Where sequences end that are packed into one, which positions that begin again show."""
    if positions is None or q.shape[0] != 1 or positions.numel() != q.shape[1]:
        return None
    begins = (positions.flatten()[1:] <= positions.flatten()[:-1]).nonzero().flatten() + 1
    if not len(begins):
        return None
    ends = torch.tensor([0, *begins.tolist(), q.shape[1]], dtype=torch.int32)
    return ends.to(q.device)


def _padded(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, options: dict[str, Any]) -> Tensor:
    """The attention of the rows and keys that count; other rows are 0."""
    keys = mask.bool()
    batch, rows = q.shape[:2]
    # A static cache has more keys than the mask.
    k, v = k[:, : keys.shape[1]], v[:, : keys.shape[1]]
    seen = keys[:, -rows:] if rows > 1 else keys.new_ones(batch, 1)
    lengths = [each.sum(-1, dtype=torch.int32) for each in (seen, keys)]
    cut = [torch.nn.functional.pad(each.cumsum(0, dtype=torch.int32), (1, 0)) for each in lengths]
    longest = [int(each.max()) for each in lengths]
    packed = (q[seen], k[keys], v[keys])
    out = q.new_zeros(q.shape)
    out[seen] = flash_attn_varlen_func(*packed, *cut, *longest, **options)
    return out
