"""Tensors around other tensors, jagged nested ones and DTensors: what is inside, and results like them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from flash_attn_rocm import _nested, _prepare, _sharded
from flash_attn_rocm._sharded import Names

NAMES: dict[Callable[..., Any], Names] = {
    _prepare.dense: Names("flash_attn_func", ("q", "k", "v")),
    _prepare.masked: Names("attention", ("q", "k", "v")),
    _prepare.qkvpacked: Names("flash_attn_qkvpacked_func", ("qkv",)),
    _prepare.kvpacked: Names("flash_attn_kvpacked_func", ("q", "kv")),
    _prepare.varlen: Names("flash_attn_varlen_func", ("q", "k", "v")),
    _prepare.varlen_qkvpacked: Names("flash_attn_varlen_qkvpacked_func", ("qkv",)),
    _prepare.varlen_kvpacked: Names("flash_attn_varlen_kvpacked_func", ("q", "kv")),
}


class Inside(NamedTuple):
    """The arguments of the same function for what is inside, and what makes each of its results like q."""

    tensors: tuple[Any, ...]
    numbers: tuple[Any, ...]
    like: Callable[[int, Tensor], Tensor]


def inside(prepare: Callable[..., Any], tensors: tuple[Any, ...], numbers: tuple[Any, ...]) -> Inside | None:
    """What the arguments of a public function, known by its ``prepare``, hold; None of plain tensors.

    Raises FlashAttnArgumentError.  torch.compile takes plain tensors only.
    """
    if torch.compiler.is_compiling():
        return None
    names = NAMES[prepare]
    if _sharded.is_sharded(tensors):
        parts, shards = _sharded.local(names, tensors, numbers)
        return Inside(parts, numbers, lambda _place, x: shards.joined(x))
    if prepare is _prepare.varlen and any(map(_nested.is_jagged, tensors[:3])):
        lengths = (*tensors[3:6], *numbers[:2])
        packed, most = _nested.arguments(names.function, tensors[:3], lengths)
        q = tensors[0]
        return Inside(
            (*packed, *tensors[5:]),
            (*most, *numbers[2:]),
            lambda place, x: x if place else _nested.like(q, x),
        )
    return None
