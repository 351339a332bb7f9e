"""Attention of DTensors sharded along batch or heads, as in tensor parallelism.

Each rank computes attention of its part, without communication.
"""

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from flash_attn_rocm.arguments import checks
from flash_attn_rocm.values.given import Given

MODULE = "torch.distributed.tensor"  # imported only by processes with DTensors: the import is slow
BATCH, HEADS, WHOLE = "batch", "heads", "whole"
RULES = 6  # the numbers at the end of all functions' arguments; dropout_p is their first
CHUNKED = ("flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_kvpacked_func", "attention")


class Names(NamedTuple):
    """Names of the function and of its leading tensors with heads, for messages."""

    function: str
    tensors: tuple[str, ...]


class Shards(NamedTuple):
    """The role of each dimension of a mesh: it divides batch, heads or nothing (whole)."""

    mesh: Any
    roles: tuple[str, ...]

    def local(self, x: Given, dims: dict[str, int]) -> Given:
        """This rank's part of a tensor present on all ranks. ``dims`` locates its batch and heads."""
        if not isinstance(x, Tensor):
            return x
        tensor = sys.modules[MODULE]
        if not isinstance(x, tensor.DTensor):
            whole = [tensor.Replicate()] * len(self.roles)
            x = tensor.DTensor.from_local(x, self.mesh, whole, run_check=False)
        return x.redistribute(self.mesh, self._placements(dims)).to_local()

    def joined(self, x: Tensor) -> Tensor:
        """A result (…, heads, any), with or without a leading batch, as a DTensor."""
        tensor = sys.modules[MODULE]
        dims = {BATCH: 0, HEADS: x.dim() - 2} if x.dim() > 1 else {}
        found: Tensor = tensor.DTensor.from_local(x, self.mesh, self._placements(dims), run_check=False)
        return found

    def _placements(self, dims: dict[str, int]) -> list[Any]:
        tensor = sys.modules[MODULE]
        return [tensor.Shard(dims[role]) if role in dims else tensor.Replicate() for role in self.roles]


def is_sharded(tensors: Sequence[Any]) -> bool:
    """Whether any is a DTensor."""
    module = sys.modules.get(MODULE)
    return module is not None and any(isinstance(x, module.DTensor) for x in tensors)


def refuse(function: str, tensors: Sequence[Any]) -> None:
    """Raises FlashAttnArgumentError for DTensors, in functions without support for them."""
    if is_sharded(tensors):
        problem = "expected tensors, got DTensors, which flash_attn_func takes: pass what to_local() gives"
        checks.refuse(function, [problem])


def local(names: Names, tensors: tuple[Any, ...], numbers: tuple[Any, ...]) -> tuple[tuple[Any, ...], Shards]:
    """This rank's parts of the arguments, and their division. Raises FlashAttnArgumentError."""
    count = len(names.tensors)
    with_heads, others = tensors[:count], tensors[count:]
    problems = _kind_problems(names, with_heads)
    checks.refuse(names.function, problems)
    roles = [_roles(names, x) for x in with_heads]
    problems = _placement_problems(names, with_heads, roles)
    if not problems and numbers[-RULES] and set(roles[0]) != {WHOLE}:
        problems.append("dropout_p: expected 0 with sharded DTensors, whose ranks would all drop the same")
    checks.refuse(names.function, problems)
    shards = Shards(with_heads[0].device_mesh, roles[0])
    parts = [x.to_local() for x in with_heads]
    return (*parts, *(shards.local(x, _dims(x)) for x in others)), shards


def _dims(x: Given) -> dict[str, int]:
    """The batch and head dimensions of alibi_slopes and attn_mask. Lengths are equal on all ranks."""
    if not isinstance(x, Tensor):
        return {}
    if x.is_floating_point():  # slopes (nheads) or (batch, nheads)
        return {HEADS: x.dim() - 1} | ({BATCH: 0} if x.dim() == 2 else {})
    dims = {BATCH: 0} if x.dim() > 2 else {}  # a mask ([batch, [nheads,]] rows, keys)
    dims |= {HEADS: 1} if x.dim() == 4 else {}
    return {role: dim for role, dim in dims.items() if x.shape[dim] > 1}


def _kind_problems(names: Names, tensors: tuple[Any, ...]) -> list[str]:
    module = sys.modules[MODULE]
    found = [
        f"{name}: expected a DTensor like the others, got {type(x).__name__}"
        for name, x in zip(names.tensors, tensors, strict=True)
        if not isinstance(x, module.DTensor)
    ]
    if not found and any(x.device_mesh != tensors[0].device_mesh for x in tensors):
        found.append(f"{', '.join(names.tensors)}: expected DTensors on one device mesh, got several")
    return found


def _roles(names: Names, x: Given) -> tuple[str, ...]:
    found = []
    for placement in x.placements:
        dim = placement.dim % x.dim() if placement.is_shard() else None
        if placement.is_replicate():
            found.append(WHOLE)
        elif dim == x.dim() - 2:
            found.append(HEADS)
        else:
            found.append(BATCH if dim == 0 and names.function in CHUNKED else str(placement))
    return tuple(found)


def _placement_problems(names: Names, tensors: tuple[Any, ...], roles: list[tuple[str, ...]]) -> list[str]:
    served = f"{BATCH} or {HEADS}" if names.function in CHUNKED else HEADS
    found = []
    for name, x, each in zip(names.tensors, tensors, roles, strict=True):
        if set(each) - {BATCH, HEADS, WHOLE}:
            found.append(f"{name}: expected shards of {served}, or a whole tensor, got {x.placements}")
        elif each != roles[0]:
            found.append(
                f"{name}: expected to be sharded like {names.tensors[0]}, along {roles[0]}, got {each}"
            )
        for role, dim in ((BATCH, 0), (HEADS, x.dim() - 2)):
            ranks = 1
            for place, size in zip(each, x.device_mesh.shape, strict=True):
                ranks *= size if place == role else 1
            if x.shape[dim] % ranks:
                found.append(f"{name}: expected {role} that {ranks} ranks share evenly, got {x.shape[dim]}")
    return found
