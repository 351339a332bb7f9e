"""Jagged nested tensors (torch.jagged) as packed sequences: they hold the rows and the ends of sequences."""

from typing import Any

import torch
from torch import Tensor

from flash_attn_rocm.arguments import checks
from flash_attn_rocm.values.given import Given

LAYOUT = "(batch, ragged, nheads, headdim)"


# q, k and v (total, nheads, headdim), cu_seqlens_q and cu_seqlens_k; the maximum lengths.
Packed = tuple[tuple[Tensor, Tensor, Tensor, Tensor, Tensor], tuple[int, int]]


def is_jagged(x: Given) -> bool:  # accepts any object
    """Whether it is a nested tensor of the layout torch.jagged."""
    return isinstance(x, Tensor) and x.is_nested and x.layout is torch.jagged


def arguments(name: str, tensors: tuple[Any, ...], lengths: tuple[Any, ...]) -> Packed:
    """q, k and v as packed sequences.

    ``lengths`` are the arguments with the lengths of ordinary tensors. Raises FlashAttnArgumentError.
    """
    found = problems(tensors)
    if any(x is not None for x in lengths):
        found.append(
            "cu_seqlens, max_seqlen, block_table: expected None beside nested tensors, which have lengths"
        )
    checks.refuse(name, found)
    return packed(tensors)


def packed(tensors: tuple[Any, ...]) -> Packed:
    """Checked q, k and v as packed sequences."""
    q, k, v = tensors
    rows = (q.values(), k.values(), v.values())
    ends = [x.offsets().to(torch.int32) for x in (q, k)]
    return (*rows, *ends), (int(q._get_max_seqlen()), int(k._get_max_seqlen()))  # noqa: SLF001


def problems(tensors: tuple[Any, ...]) -> list[str]:
    """The problems of q, k and v, at least one of which is nested."""
    found = [
        f"{name}: expected a nested tensor with the layout torch.jagged like the others, "
        f"got {'a tensor of shape ' + checks.shape(x) if isinstance(x, Tensor) else type(x).__name__}"
        for name, x in zip("qkv", tensors, strict=True)
        if not is_jagged(x)
    ]
    if not found:
        found += [f"{name}: {each}" for name, x in zip("qkv", tensors, strict=True) for each in _layout(x)]
    if not found and tensors[1].shape[1] != tensors[2].shape[1]:
        found.append("v: expected the offsets of k, the same tensor, got others")
    return found


def like(q: Tensor, rows: Tensor) -> Tensor:
    """Rows (total, nheads, headdim) as a nested tensor with the sequences of q."""
    return torch.nested.nested_tensor_from_jagged(rows, q.offsets())


def _layout(x: Given) -> list[str]:
    if x.dim() != 4 or x._ragged_idx != 1:  # noqa: SLF001
        return [f"expected a nested tensor {LAYOUT}, got shape {checks.shape(x)}"]
    return [] if x.lengths() is None else ["expected a nested tensor without holes, as contiguous() gives"]
