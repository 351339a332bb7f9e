"""Cross entropy as a module, on ``flash_attn.ops.triton.cross_entropy``."""
# ruff: noqa: FBT001, FBT002 - the signatures are upstream's

from typing import Any

import torch
from torch import Tensor

from flash_attn.ops.triton.cross_entropy import cross_entropy_loss

REDUCTIONS = ("mean", "sum", "none")


class CrossEntropyLoss(torch.nn.Module):
    """The loss of logits (batch, vocab_size) and labels (batch), fp32. See ``cross_entropy_loss``.

    ``reduction`` is "mean" over the labels other than ``ignore_index``, "sum" or "none". ``return_z_loss``
    also returns the part from ``lse_square_scale``, for logging: it has no gradient.
    """

    def __init__(
        self,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        logit_scale: float = 1.0,
        lse_square_scale: float = 0.0,
        inplace_backward: bool = False,
        process_group: Any = None,  # noqa: ANN401
        return_z_loss: bool = False,
    ) -> None:
        super().__init__()
        if reduction not in REDUCTIONS:
            message = f"reduction: expected one of {', '.join(REDUCTIONS)}, got {reduction!r}"
            raise NotImplementedError(message)
        self.ignore_index, self.reduction, self.label_smoothing = ignore_index, reduction, label_smoothing
        self.logit_scale, self.lse_square_scale = logit_scale, lse_square_scale
        self.inplace_backward, self.process_group = inplace_backward, process_group
        self.return_z_loss = return_z_loss

    def forward(
        self,
        input: Tensor,  # noqa: A002 - PyTorch's own name
        target: Tensor,
        precomputed_lse: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        losses = cross_entropy_loss(
            input, target, precomputed_lse, self.label_smoothing, self.logit_scale, self.lse_square_scale,
            self.ignore_index, self.inplace_backward, self.process_group,
        )  # fmt: skip
        loss, z_loss = (self._reduced(each, target) for each in losses)
        return (loss, z_loss) if self.return_z_loss else loss

    def _reduced(self, losses: Tensor, target: Tensor) -> Tensor:
        if self.reduction == "none":
            return losses
        total = losses.sum()
        return total if self.reduction == "sum" else total / (target != self.ignore_index).sum()
