"""Jagged nested tensors (torch.jagged) as packed sequences: they have the rows and the ends already."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from flash_attn_rocm import _checks

LAYOUT = "(batch, ragged, nheads, headdim)"


class Packed(NamedTuple):
    """Rows (total, nheads, headdim) of sequences that end at ``ends`` (batch + 1) int32, at most ``most``."""

    rows: Tensor
    ends: Tensor
    most: int


def is_jagged(x: Any) -> bool:  # noqa: ANN401 - that it is one is the question
    """Whether it is a nested tensor of the layout torch.jagged."""
    return isinstance(x, Tensor) and x.is_nested and x.layout is torch.jagged


def arguments(
    name: str, tensors: tuple[Any, ...], lengths: tuple[Any, ...]
) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor, Tensor], tuple[int, int]]:
    """q, k, v, cu_seqlens_q and cu_seqlens_k, and the lengths that none exceeds, of nested q, k and v.

    ``lengths`` are the arguments that say the same of other tensors.  Raises FlashAttnArgumentError.
    """
    _checks.refuse(name, _problems(tensors[:3], lengths))
    q, k, v = tensors[:3]
    packed_q, packed_k = _packed(q), _packed(k)
    return (packed_q.rows, packed_k.rows, v.values(), packed_q.ends, packed_k.ends), (
        packed_q.most,
        packed_k.most,
    )


def like(q: Tensor, rows: Tensor) -> Tensor:
    """Rows (total, nheads, headdim) as a nested tensor with the sequences of q."""
    return torch.nested.nested_tensor_from_jagged(rows, q.offsets())


def _packed(x: Any) -> Packed:  # noqa: ANN401 - torch has no type for it
    return Packed(x.values(), x.offsets().to(torch.int32), int(x._get_max_seqlen()))  # noqa: SLF001


def _problems(tensors: tuple[Any, ...], lengths: tuple[Any, ...]) -> list[str]:
    found = [
        f"{name}: expected a nested tensor with the layout torch.jagged like the others, "
        f"got {'a tensor of shape ' + _checks.shape(x) if isinstance(x, Tensor) else type(x).__name__}"
        for name, x in zip("qkv", tensors, strict=True)
        if not is_jagged(x)
    ]
    if any(x is not None for x in lengths):
        found.append(
            "cu_seqlens, max_seqlen, block_table: expected None beside nested tensors, which have lengths"
        )
    if not found:
        found += [f"{name}: {each}" for name, x in zip("qkv", tensors, strict=True) for each in _layout(x)]
    if not found and tensors[1].shape[1] != tensors[2].shape[1]:
        found.append("v: expected the offsets of k, the same tensor, got others")
    return found


def _layout(x: Any) -> list[str]:  # noqa: ANN401
    if x.dim() != 4 or x._ragged_idx != 1:  # noqa: SLF001
        return [f"expected a nested tensor {LAYOUT}, got shape {_checks.shape(x)}"]
    return [] if x.lengths() is None else ["expected a nested tensor without holes, as contiguous() gives"]
