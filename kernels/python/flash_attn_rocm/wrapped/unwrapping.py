"""Wrapper tensors (jagged nested tensors and DTensors): their contents, and results of their type."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from flash_attn_rocm.wrapped import nested, sharded
from flash_attn_rocm.wrapped.sharded import Names

TAKES_NESTED = "flash_attn_varlen_func"
TOGETHER = {0: ("q", "k", "v"), 2: ("q", "kv"), 3: ("qkv",)}  # by how many of q, k and v come in one tensor


class Inside(NamedTuple):
    """The function's arguments for the contents, and a conversion of each result to q's type."""

    tensors: tuple[Any, ...]
    numbers: tuple[Any, ...]
    like: Callable[[int, Tensor], Tensor]


def inside(function: str, together: int, tensors: tuple[Any, ...], numbers: tuple[Any, ...]) -> Inside | None:
    """The contents of a public function's arguments. None for plain tensors.

    The last ``together`` of q, k and v are one tensor. Raises FlashAttnArgumentError. torch.compile takes
    plain tensors only.
    """
    if torch.compiler.is_compiling():
        return None
    if sharded.is_sharded(tensors):
        parts, shards = sharded.local(Names(function, TOGETHER[together]), tensors, numbers)
        return Inside(parts, numbers, lambda _place, x: shards.joined(x))
    if function == TAKES_NESTED and any(map(nested.is_jagged, tensors[:3])):
        packed, most = nested.arguments(function, tensors[:3], (*tensors[3:6], *numbers[:2]))
        q = tensors[0]
        return Inside(
            (*packed, *tensors[5:]),
            (*most, *numbers[2:]),
            lambda place, x: x if place else nested.like(q, x),
        )
    return None
