"""RMS norm, plain and for sums with dropout, in PyTorch. It is differentiable."""
# ruff: noqa: FBT001, FBT002 - the signatures are upstream's

from typing import Any

import torch
from torch import Tensor

from flash_attn.ops._norms import Norm, Outputs, Terms, norms_of

Results = Any  # a tensor, or a tuple of up to five


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """x (…, hidden) over the root mean square of its last dimension, times weight (hidden), like x."""
    return dropout_add_rms_norm(x, None, weight, None, 0.0, epsilon)


def dropout_add_rms_norm(
    x0: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    dropout_p: float,
    epsilon: float,
    rowscale: Tensor | None = None,
    layerscale: Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    return_dropout_mask: bool = False,
) -> Results:
    """The norm of dropout(x0 * rowscale * layerscale) + residual, in the dtype of x0.

    x0 and residual are (…, hidden), rowscale (…), layerscale, weight and bias (hidden). ``prenorm`` also
    returns the sum, in the dtype of ``residual``. Without a residual, its dtype is fp32
    (``residual_in_fp32``) or the dtype of x0. ``return_dropout_mask`` also returns the mask of kept elements,
    bool like x0.
    """
    terms = Terms(x0, residual, dropout_p, rowscale=rowscale, layerscale=layerscale)
    found = norms_of(terms, Norm(epsilon, True), [(weight, bias)], residual_in_fp32=residual_in_fp32)  # noqa: FBT003
    masks = [_mask(x0, found.mask)] if return_dropout_mask else []
    return _results(found, masks, prenorm=prenorm)


def dropout_add_rms_norm_parallel_residual(
    x0: Tensor,
    x1: Tensor | None,
    residual: Tensor | None,
    weight0: Tensor,
    bias0: Tensor | None,
    weight1: Tensor | None,
    bias1: Tensor | None,
    dropout_p: float,
    epsilon: float,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    return_dropout_mask: bool = False,
) -> Results:
    """The norm of dropout(x0) + dropout(x1) + residual times ``weight0``, and the norm times ``weight1``.

    The second is None without ``weight1``. Everything else is as in ``dropout_add_rms_norm``, with the masks
    of x0 and x1.
    """
    affines = [(weight0, bias0)] if weight1 is None else [(weight0, bias0), (weight1, bias1)]
    terms = Terms(x0, residual, dropout_p, x1)
    found = norms_of(terms, Norm(epsilon, True), affines, residual_in_fp32=residual_in_fp32)  # noqa: FBT003
    masks = [_mask(x0, found.mask), None if x1 is None else _mask(x1, found.mask1)]
    if weight1 is None:
        found = found._replace(normed=(*found.normed, None))
    return _results(found, masks if return_dropout_mask else [], prenorm=prenorm)


def _mask(x: Tensor, mask: Tensor | None) -> Tensor:
    return torch.ones_like(x, dtype=torch.bool) if mask is None else mask


def _results(found: Outputs, masks: list[Tensor | None], *, prenorm: bool) -> Results:
    results = [*found.normed, *([found.total] if prenorm else []), *masks]
    return results[0] if len(results) == 1 else tuple(results)


class RMSNorm(torch.nn.Module):
    """``rms_norm`` with its weight."""

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.empty(hidden_size, device=device, dtype=dtype))
        self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


class DropoutAddRMSNorm(RMSNorm):
    """``dropout_add_rms_norm`` with its weight. Dropout in training only."""

    def __init__(
        self,
        hidden_size: int,
        prenorm: bool = False,
        p: float = 0.0,
        eps: float = 1e-5,
        residual_in_fp32: bool = False,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(hidden_size, eps, device, dtype)
        self.prenorm, self.p, self.residual_in_fp32 = prenorm, p, residual_in_fp32

    def forward(self, x0: Tensor, residual: Tensor | None = None) -> Results:
        return dropout_add_rms_norm(
            x0, residual, self.weight, None, self.p if self.training else 0.0, self.eps,
            prenorm=self.prenorm, residual_in_fp32=self.residual_in_fp32,
        )  # fmt: skip
