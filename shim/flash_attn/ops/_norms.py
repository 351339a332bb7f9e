"""Shared parts of layer norm and RMS norm of sums with dropout: arithmetic in fp32, rounded once."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, rms_norm

Affine = tuple[Tensor, Tensor | None]  # weight and bias


class Norm(NamedTuple):
    """The kind of norm. ``zero_centered_weight`` adds 1 to weights."""

    eps: float
    is_rms_norm: bool
    zero_centered_weight: bool = False

    def of(self, total: Tensor, affine: Affine) -> Tensor:
        """total (…, hidden) fp32, normalised over its last dimension."""
        weight, bias = affine
        weight = weight.float() + 1.0 if self.zero_centered_weight else weight.float()
        bias = None if bias is None else bias.float()
        if not self.is_rms_norm:
            return layer_norm(total, weight.shape, weight, bias, self.eps)
        normed = rms_norm(total, weight.shape, weight, self.eps)
        return normed if bias is None else normed + bias


class Terms(NamedTuple):
    """The terms of the sum: dropout(x * rowscale * layerscale) + dropout(x1) + residual.

    x, x1 and residual (…, hidden), rowscale (…), layerscale (hidden).
    """

    x: Tensor
    residual: Tensor | None
    dropout_p: float
    x1: Tensor | None = None
    rowscale: Tensor | None = None
    layerscale: Tensor | None = None

    def summed(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The sum in fp32, and where x and x1 were kept."""
        if self.x1 is not None and self.rowscale is not None:
            message = "rowscale: expected None where x1 is given, got a tensor"
            raise ValueError(message)
        scaled = self.x.float()
        scaled = scaled if self.rowscale is None else scaled * self.rowscale[..., None]
        scaled = scaled if self.layerscale is None else scaled * self.layerscale
        total, mask = _dropped(scaled, self.dropout_p)
        other, mask1 = (None, None) if self.x1 is None else _dropped(self.x1.float(), self.dropout_p)
        for term in (other, self.residual):
            total = total if term is None else total + term
        return total, mask, mask1

    def dtype_of_sum(self, *, residual_in_fp32: bool) -> torch.dtype:
        """The dtype of the returned sum."""
        if self.residual is not None:
            return self.residual.dtype
        return torch.float32 if residual_in_fp32 else self.x.dtype


class Outputs(NamedTuple):
    """A norm for each affine, the sum, and the dropout masks of x and x1: None without dropout."""

    normed: tuple[Tensor, ...]
    total: Tensor
    mask: Tensor | None
    mask1: Tensor | None


def norms_of(
    terms: Terms, norm: Norm, affines: Sequence[Affine], *, residual_in_fp32: bool,
    out_dtype: torch.dtype | None = None,
) -> Outputs:  # fmt: skip
    """The norms of the sum, in ``out_dtype`` or the dtype of x."""
    total, mask, mask1 = terms.summed()
    normed = tuple(norm.of(total, affine).to(out_dtype or terms.x.dtype) for affine in affines)
    return Outputs(normed, total.to(terms.dtype_of_sum(residual_in_fp32=residual_in_fp32)), mask, mask1)


def _dropped(x: Tensor, dropout_p: float) -> tuple[Tensor, Tensor | None]:
    if dropout_p == 0.0:
        return x, None
    kept = torch.rand_like(x) >= dropout_p
    return torch.where(kept, x / (1.0 - dropout_p), 0.0), kept
