"""Cross entropy of large vocabularies, in PyTorch.

It computes in fp32, a block of rows at a time. Neither direction holds an fp32 copy of all logits.
"""
# ruff: noqa: FBT001, FBT002 - the signatures are upstream's

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

BLOCK_ELEMENTS = 2**24  # 64 MiB in fp32


class Rules(NamedTuple):
    """Settings of a loss. This rank has the classes from ``first`` on, of ``classes`` in all."""

    smoothing: float
    logit_scale: float
    lse_square_scale: float
    ignore_index: int
    first: int
    classes: int


class CrossEntropyLoss(torch.autograd.Function):
    """``cross_entropy_loss`` with its gradient, computed once."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        logits: Tensor,
        labels: Tensor,
        precomputed_lse: Tensor | None = None,
        smoothing: float = 0.0,
        logit_scale: float = 1.0,
        lse_square_scale: float = 0.0,
        ignore_index: int = -100,
        inplace_backward: bool = False,
        process_group: Any = None,  # noqa: ANN401
    ) -> tuple[Tensor, Tensor]:
        rank, ranks = _place(process_group)
        own = logits.shape[-1]
        rules = Rules(smoothing, logit_scale, lse_square_scale, ignore_index, rank * own, ranks * own)
        lse, gain = _rows(logits, labels, rules)
        if ranks > 1:
            lse, gain = _joined(lse, gain, process_group)
        lse = lse if precomputed_lse is None else precomputed_lse.float()
        counted = labels != ignore_index
        z_losses = torch.where(counted, lse_square_scale * lse.square(), 0.0)
        losses = torch.where(counted, lse - gain, 0.0) + z_losses
        ctx.save_for_backward(logits, labels, lse)
        ctx.rules, ctx.inplace = rules, inplace_backward
        ctx.mark_non_differentiable(z_losses)
        return losses, z_losses

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_losses: Tensor, grad_z_losses: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        del grad_z_losses
        logits, labels, lse = ctx.saved_tensors
        gradient = logits if ctx.inplace else torch.empty_like(logits)
        for rows in _blocks(logits):
            part = _gradient(logits[rows], labels[rows], lse[rows], ctx.rules)
            gradient[rows] = part.mul_(grad_losses[rows, None])
        return gradient, *[None] * 8


def cross_entropy_loss(
    logits: Tensor,
    labels: Tensor,
    precomputed_lse: Tensor | None = None,
    label_smoothing: float = 0.0,
    logit_scale: float = 1.0,
    lse_square_scale: float = 0.0,
    ignore_index: int = -100,
    inplace_backward: bool = False,
    process_group: Any = None,  # noqa: ANN401
) -> tuple[Tensor, Tensor]:
    """The loss of each row of logits (batch, vocab_size), and the part of it from ``lse_square_scale``.

    With x = logit_scale * logits and s = label_smoothing, the loss is logsumexp(x) - (1 - s) * x[label] - s *
    mean(x) + lse_square_scale * logsumexp(x)^2, and 0 if the label is ``ignore_index``.
    ``precomputed_lse`` (batch) is logsumexp(x) if the caller has it. ``inplace_backward`` writes the gradient
    into the logits. In a process group of several ranks each has an equal part of the classes, in the order
    of ranks.
    Labels count from the first rank's classes.

    Returns (batch) fp32 each. The second is for logging and has no gradient.
    """
    return CrossEntropyLoss.apply(
        logits, labels, precomputed_lse, label_smoothing, logit_scale, lse_square_scale, ignore_index,
        inplace_backward, process_group,
    )  # fmt: skip


def _place(process_group: Any) -> tuple[int, int]:  # noqa: ANN401
    if process_group is None:
        return 0, 1
    return dist.get_rank(process_group), dist.get_world_size(process_group)


def _blocks(logits: Tensor) -> Iterator[slice]:
    height = max(1, BLOCK_ELEMENTS // max(1, logits.shape[-1]))
    return (slice(first, first + height) for first in range(0, logits.shape[0], height))


def _rows(logits: Tensor, labels: Tensor, rules: Rules) -> tuple[Tensor, Tensor]:
    """logsumexp(x) over this rank's classes, and the terms subtracted from it."""
    lse = logits.new_empty(logits.shape[0], dtype=torch.float32)
    gain = torch.empty_like(lse)
    for rows in _blocks(logits):
        x = logits[rows].float() * rules.logit_scale
        lse[rows] = x.logsumexp(dim=-1)
        column, here = _column(labels[rows], rules, x.shape[-1])
        label = torch.where(here, x.gather(-1, column[:, None])[:, 0], 0.0)
        gain[rows] = (1 - rules.smoothing) * label
        if rules.smoothing:
            gain[rows] += rules.smoothing / rules.classes * x.sum(dim=-1)
    return lse, gain


def _column(labels: Tensor, rules: Rules, own: int) -> tuple[Tensor, Tensor]:
    """The labels' columns, 0 for labels of other ranks, and a mask of this rank's labels."""
    column = labels.long() - rules.first
    counted = labels != rules.ignore_index
    here = counted & (column >= 0) & (column < own) if rules.classes > own else counted
    return torch.where(here, column, 0), here


def _joined(lse: Tensor, gain: Tensor, process_group: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
    """logsumexp over all ranks' classes, and the sum of all subtracted terms."""
    parts = [torch.empty_like(lse) for _ in range(dist.get_world_size(process_group))]
    dist.all_gather(parts, lse, group=process_group)
    dist.all_reduce(gain, group=process_group)
    return torch.stack(parts).logsumexp(dim=0), gain


def _gradient(logits: Tensor, labels: Tensor, lse: Tensor, rules: Rules) -> Tensor:
    """The gradient of each row's loss by its logits, fp32."""
    x = logits.float() * rules.logit_scale
    found = (x - lse[:, None]).exp_().mul_(1 + 2 * rules.lse_square_scale * lse[:, None])
    found -= rules.smoothing / rules.classes
    column, here = _column(labels, rules, logits.shape[-1])
    label = torch.where(here, 1 - rules.smoothing, 0.0).to(found.dtype)
    found.scatter_add_(-1, column[:, None], -label[:, None])
    counted = torch.where(labels == rules.ignore_index, 0.0, rules.logit_scale).to(found.dtype)
    return found.mul_(counted[:, None])
