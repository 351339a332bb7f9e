"""Layer norm and RMS norm of sums with dropout, in PyTorch, differentiable.

PyTorch keeps the gradients' inputs. Upstream's kernels recompute them.
"""
# ruff: noqa: FBT001, FBT002 - the signatures are upstream's

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from flash_attn.ops._norms import Norm, Terms, norms_of

Outputs = Any  # a tensor, or a tuple of up to five


def layer_norm_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None = None,
    x1: Tensor | None = None,
    weight1: Tensor | None = None,
    bias1: Tensor | None = None,
    eps: float = 1e-6,
    dropout_p: float = 0.0,
    rowscale: Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    zero_centered_weight: bool = False,
    is_rms_norm: bool = False,
    return_dropout_mask: bool = False,
    out_dtype: torch.dtype | None = None,
    out: Tensor | None = None,
    residual_out: Tensor | None = None,
) -> Outputs:
    """The norm of dropout(x * rowscale) + dropout(x1) + residual over the last dimension.

    x, x1 and residual are (…, hidden), weights and biases (hidden), rowscale (…). The result is the norm
    times ``weight`` (or 1 + ``weight`` if zero-centred) plus ``bias``, in ``out_dtype`` or the dtype of x.
    Further results follow in this order:
    - ``weight1``: the norm with ``weight1`` and ``bias1``
    - ``prenorm``: the sum, in the dtype of ``residual``, without one in fp32 (``residual_in_fp32``) or the
      dtype
      of x
    - ``return_dropout_mask``: the masks of kept elements of x and x1, bool like x, None without dropout
    ``out`` and ``residual_out`` are written to if given.

    Raises ``ValueError`` for a rowscale with x1.
    """
    found = norms_of(
        Terms(x, residual, dropout_p, x1, rowscale), Norm(eps, is_rms_norm, zero_centered_weight),
        [(weight, bias)] if weight1 is None else [(weight, bias), (weight1, bias1)],
        residual_in_fp32=residual_in_fp32, out_dtype=out_dtype,
    )  # fmt: skip
    outputs = [_into(out, found.normed[0]), *found.normed[1:]]
    if prenorm:
        outputs.append(_into(residual_out, found.total))
    if return_dropout_mask:
        outputs += [found.mask, found.mask1]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _into(given: Tensor | None, found: Tensor) -> Tensor:
    return found if given is None else given.copy_(found)


def rms_norm_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None = None,
    x1: Tensor | None = None,
    weight1: Tensor | None = None,
    bias1: Tensor | None = None,
    eps: float = 1e-6,
    dropout_p: float = 0.0,
    rowscale: Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    zero_centered_weight: bool = False,
    return_dropout_mask: bool = False,
    out_dtype: torch.dtype | None = None,
    out: Tensor | None = None,
    residual_out: Tensor | None = None,
) -> Outputs:
    """``layer_norm_fn`` with the root mean square's norm."""
    return layer_norm_fn(
        x, weight, bias, residual, x1, weight1, bias1, eps, dropout_p, rowscale, prenorm, residual_in_fp32,
        zero_centered_weight, is_rms_norm=True, return_dropout_mask=return_dropout_mask, out_dtype=out_dtype,
        out=out, residual_out=residual_out,
    )  # fmt: skip


def layer_norm_linear_fn(
    x: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor | None,
    linear_weight: Tensor,
    linear_bias: Tensor | None,
    residual: Tensor | None = None,
    eps: float = 1e-6,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    is_rms_norm: bool = False,
) -> Outputs:
    """A linear layer on the norm of x + residual. ``prenorm`` also returns the sum, as in
    ``layer_norm_fn``."""
    normed, total = layer_norm_fn(
        x, norm_weight, norm_bias, residual, eps=eps, prenorm=True, residual_in_fp32=residual_in_fp32,
        is_rms_norm=is_rms_norm,
    )  # fmt: skip
    projected = linear(normed, linear_weight, linear_bias)
    return (projected, total) if prenorm else projected


class RMSNorm(torch.nn.Module):
    """``rms_norm_fn`` with its weight. Dropout in training only."""

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        dropout_p: float = 0.0,
        zero_centered_weight: bool = False,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps, self.zero_centered_weight = eps, zero_centered_weight
        self.drop = torch.nn.Dropout(dropout_p) if dropout_p > 0.0 else None
        self.weight = torch.nn.Parameter(torch.empty(hidden_size, device=device, dtype=dtype))
        self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.constant_(self.weight, 0.0 if self.zero_centered_weight else 1.0)

    def forward(
        self,
        x: Tensor,
        residual: Tensor | None = None,
        prenorm: bool = False,
        residual_in_fp32: bool = False,
    ) -> Outputs:
        return rms_norm_fn(
            x, self.weight, self.bias, residual=residual, eps=self.eps,
            dropout_p=self.drop.p if self.drop is not None and self.training else 0.0, prenorm=prenorm,
            residual_in_fp32=residual_in_fp32, zero_centered_weight=self.zero_centered_weight,
        )  # fmt: skip
