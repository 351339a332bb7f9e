"""Collectives along the first dimension, with and without gradients, over torch.distributed."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module

Group = Any  # torch.distributed.ProcessGroup
Pending = Any  # torch.distributed.Work; None for a finished operation


def all_gather_raw(input_: Tensor, process_group: Group, async_op: bool = False) -> tuple[Tensor, Pending]:  # noqa: FBT001, FBT002
    """The tensors (n, …) of all ranks, one after another, and the pending operation, not differentiable."""
    ranks = dist.get_world_size(process_group)
    output = input_.new_empty(ranks * input_.shape[0], *input_.shape[1:])
    work = dist.all_gather_into_tensor(output, input_.contiguous(), group=process_group, async_op=async_op)
    return output, work


def reduce_scatter_raw(
    input_: Tensor,
    process_group: Group,
    async_op: bool = False,  # noqa: FBT001, FBT002
) -> tuple[Tensor, Pending]:
    """This rank's part of the sum of all ranks' tensors (ranks * n, …), (n, …), not differentiable."""
    ranks = dist.get_world_size(process_group)
    if input_.shape[0] % ranks:
        message = f"input_: expected a first dimension divisible by {ranks} ranks, got {input_.shape[0]}"
        raise ValueError(message)
    output = input_.new_empty(input_.shape[0] // ranks, *input_.shape[1:])
    work = dist.reduce_scatter_tensor(output, input_.contiguous(), group=process_group, async_op=async_op)
    return output, work


def all_reduce_raw(input_: Tensor, process_group: Group, async_op: bool = False) -> tuple[Tensor, Pending]:  # noqa: FBT001, FBT002
    """Sums ``input_`` over all ranks, in place, not differentiable."""
    output = input_.contiguous()
    return output, dist.all_reduce(output, group=process_group, async_op=async_op)


class AllGatherFunc(torch.autograd.Function):
    """``all_gather_raw``, whose gradient is ``reduce_scatter_raw``."""

    @staticmethod
    def forward(ctx: Any, input_: Tensor, process_group: Group) -> Tensor:  # noqa: ANN401
        ctx.process_group = process_group
        return all_gather_raw(input_, process_group)[0]

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        return reduce_scatter_raw(grad_output, ctx.process_group)[0], None


class ReduceScatterFunc(torch.autograd.Function):
    """``reduce_scatter_raw``, whose gradient is ``all_gather_raw``."""

    @staticmethod
    def forward(ctx: Any, input_: Tensor, process_group: Group) -> Tensor:  # noqa: ANN401
        ctx.process_group = process_group
        return reduce_scatter_raw(input_, process_group)[0]

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        return all_gather_raw(grad_output, ctx.process_group)[0], None


class AllReduceFunc(torch.autograd.Function):
    """The sum over all ranks, a new tensor. Its gradient goes unchanged to each of them."""

    @staticmethod
    def forward(ctx: Any, input_: Tensor, process_group: Group) -> Tensor:  # noqa: ANN401
        del ctx
        return all_reduce_raw(input_.clone(), process_group)[0]

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        del ctx
        return grad_output, None


all_gather = AllGatherFunc.apply
reduce_scatter = ReduceScatterFunc.apply
all_reduce = AllReduceFunc.apply


def sync_shared_params(model: Module, process_group: Group) -> None:
    """Give every rank the first rank's values of the parameters with ``_shared_params`` set."""
    first = dist.get_global_rank(process_group, 0)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            if getattr(parameter, "_shared_params", False):
                dist.broadcast(parameter, src=first, group=process_group)


def allreduce_sequence_parallel_grad(model: Module, process_group: Group) -> None:
    """Sum the gradients of the parameters with ``_sequence_parallel`` set over all ranks."""
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            if getattr(parameter, "_sequence_parallel", False) and parameter.grad is not None:
                dist.all_reduce(parameter.grad, group=process_group)


def get_dim_for_local_rank(dim: int, world_size: int, local_rank: int, multiple_of: int = 1) -> int:
    """A rank's share of ``dim``, a multiple of ``multiple_of``. The first ranks have one more if need be."""
    parts, rest = divmod(dim // multiple_of, world_size)
    return (parts + (local_rank < rest)) * multiple_of
