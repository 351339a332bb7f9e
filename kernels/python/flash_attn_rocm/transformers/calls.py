"""The package's function for each form of sequences in transformers' calls."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from flash_attn_rocm.flash_attn_interface import flash_attn_func, flash_attn_varlen_func
from flash_attn_rocm.functions.attention import attention
from flash_attn_rocm.transformers.arguments import refusal
from flash_attn_rocm.transformers.masks import NUMBERS, hides_nothing, pattern_of
from flash_attn_rocm.transformers.models import reads_patterns, supports_flash


class Call(NamedTuple):
    """Attention of q, k and v (batch, seqlen, nheads, headdim).

    ``options`` are arguments of flash_attn_func. ``chunk`` is an argument of ``attention``.
    """

    module: Any
    q: Tensor
    k: Tensor
    v: Tensor
    options: dict[str, Any]
    packing: dict[str, Any]
    chunk: int = 0

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v."""
        return self.q, self.k, self.v


def masked(call: Call, mask: Tensor, bias: Tensor | None = None) -> Tensor:
    """A call with a mask, bool or added to the scores, and an optional bias.

    Both are (batch, nheads, seqlen_q, seqlen_k). The first three sizes may be 1.
    """
    keys = call.k.shape[1]
    mask = mask[..., :keys]  # caches can be shorter than masks
    if bias is not None:
        bias = bias[..., :keys]
        mask = torch.where(mask, bias, -torch.inf) if mask.dtype == torch.bool else mask + bias
    out: Tensor = attention(*call.tensors, attn_mask=mask, **call.options)
    return out


def biased(call: Call, bias: Tensor) -> Tensor:
    """A call with numbers to add to the scores. The mask is causal, a window or none."""
    if call.packing.get("cu_seq_lens_q") is not None or _lengths(call) is not None:
        raise refusal(call.module, "position_bias beside several sequences that are packed into one, that")
    return masked(call, bias)


def unpadded(call: Call) -> Tensor:
    """A call without a mask: sequences of one length, or packed according to the model or its positions."""
    ends = [call.packing.get(name) for name in ("cu_seq_lens_q", "cu_seq_lens_k")]
    longest = [call.packing.get(name) for name in ("max_length_q", "max_length_k")]
    if ends == [None, None]:
        if (lengths := _lengths(call)) is None:
            return _dense(call)
        ends, longest = [_ends(lengths)] * 2, [None, None]
    if any(each is None for each in ends):
        raise refusal(call.module, "one of cu_seq_lens_q and cu_seq_lens_k without the other, that")
    rows = (x.reshape(-1, *x.shape[2:]) for x in call.tensors)
    return _varlen(call, rows, ends, longest).unflatten(0, call.q.shape[:2])


def padded(call: Call, mask: Tensor) -> Tensor:
    """A call with a mask (batch, seqlen_k) of ``transformers.masks``, or with 0 for hidden keys.

    Padding rows of causal attention give 0, like in packed sequences.
    """
    if hides_nothing(mask):
        return unpadded(call)
    rows, keys = call.q.shape[1], mask.shape[-1]
    known = reads_patterns(getattr(call.module, "config", None)) is not False
    if not known or mask.dim() != 2 or mask.shape[0] != call.q.shape[0] or keys > call.k.shape[1]:
        raise refusal(call.module, f"attention_mask of shape {tuple(mask.shape)}, that")
    packed = mask.dtype == NUMBERS and keys == rows
    # A static cache has more keys than the mask. torch.compile of 2.11 loses results of _replace.
    k, v = call.k[:, :keys], call.v[:, :keys]
    call = Call(call.module, call.q, k, v, call.options, call.packing, call.chunk)
    pattern = pattern_of(mask)
    if not (pattern.padded if pattern else (mask != 1).any()):
        return unpadded(call)
    if packed:
        batch, counts = torch.arange(len(mask), dtype=mask.dtype, device=mask.device), mask != 0
        numbers = mask.abs() + (mask.abs().max() + 1) * batch[:, None]
        lengths = torch.unique_consecutive(numbers[counts], return_counts=True)[1]
        return _counting(call, counts, counts, [lengths, lengths])
    if call.packing.get("cu_seq_lens_q") is not None:
        raise refusal(call.module, "cu_seq_lens_q beside an attention_mask that hides keys, that")
    counts = mask.bool()
    windowed = call.options["window_size"] != (-1, -1)
    # Rows of causal attention belong to the last keys. Other rows may belong to another text of unknown
    # padding.
    own = rows > 1 and (call.options["causal"] or (windowed and keys == rows))
    of_rows = counts[:, -rows:] if own else torch.ones_like(counts[:, :1]).expand(-1, rows)
    return _counting(call, of_rows, counts, [of_rows.sum(-1), counts.sum(-1)])


def _lengths(call: Call) -> Tensor | None:
    """Lengths of sequences packed into one, found by restarts of the positions, else None."""
    positions, (batch, rows) = call.packing.get("position_ids"), call.q.shape[:2]
    if positions is None or batch != 1 or rows == 1 or positions.numel() != rows:
        return None
    if supports_flash(getattr(call.module, "config", None)) is False:
        return None  # such a model describes packing in its mask
    starts = (positions.flatten()[1:] <= positions.flatten()[:-1]).nonzero().flatten() + 1
    if not len(starts):
        return None
    if call.k.shape[1] != rows:
        raise refusal(call.module, "position_ids of several sequences beside a cache, those")
    return torch.diff(starts, prepend=starts.new_zeros(1), append=starts.new_full((1,), rows))


def _counting(call: Call, rows: Tensor, keys: Tensor, lengths: list[Tensor]) -> Tensor:
    """Attention of the rows and keys that count, cut into sequences of these lengths, and 0 in other rows."""
    found = (call.q[rows], call.k[keys], call.v[keys])
    out = call.q.new_zeros((*call.q.shape[:-1], call.v.shape[-1]))
    out[rows] = _varlen(call, found, [_ends(each) for each in lengths], [None, None])
    return out


def _ends(lengths: Tensor) -> Tensor:
    return pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))


def _dense(call: Call) -> Tensor:
    out: Tensor
    if call.chunk:
        out = attention(*call.tensors, **call.options, chunk=call.chunk)
    else:
        out = flash_attn_func(*call.tensors, **call.options)
    return out


def _varlen(call: Call, found: Iterable[Tensor], ends: list[Any], longest: list[Any]) -> Tensor:
    """Attention of (total, nheads, headdim) tensors, cut at ``ends``. ``longest`` is computed if None."""
    cut = [each.to(torch.int32) for each in ends]
    known = [int((c[1:] - c[:-1]).max()) if n is None else n for n, c in zip(longest, cut, strict=True)]
    out: Tensor = flash_attn_varlen_func(*found, *cut, *known, **call.options, chunk=call.chunk)
    return out
