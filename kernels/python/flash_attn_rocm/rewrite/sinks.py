"""Sinks: a learned number per head joins the softmax, as the score of one more key with value 0.

From out and lse without it, out * sigmoid(lse - sink) is the answer, and log(exp(lse) + exp(sink)) its
log-sum-exp. Forward kernels end with this step (kernels/device/scores/sink.hpp). The backward pass computes
probabilities from the log-sum-exp and subtracts sum(dout * out), so its kernels need no sink. The sink's
gradient is -sum(exp(sink - lse) * sum(dout * out)) over its head's rows, as for any score with value 0.

A row without visible keys has out 0, and keeps the log-sum-exp +inf.
"""

import torch
from torch import Tensor


def shares(lse: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    """The keys' share of all probability, and the log-sum-exp with the sink, which broadcasts to lse."""
    return torch.sigmoid(lse - sink), torch.logaddexp(lse, sink)


def for_kernels(lse: Tensor, sink: Tensor) -> Tensor:
    """The log-sum-exp that gradient kernels read: NaN for a sink of NaN, and so are its head's gradients.

    For +inf, which forward kernels write then, they are 0 as in rows without visible keys.
    """
    return lse.masked_fill(sink.isnan().unsqueeze(-1), torch.nan)


def mark(dv: Tensor, sink: Tensor) -> None:
    """Writes NaN into heads of v whose queries have a sink of NaN.

    Kernels with a mask read every log-sum-exp as a number: dq and dk are NaN by the sums of dout * out.
    """
    of_heads = sink.isnan().view(dv.shape[-2], -1).any(-1)
    dv.masked_fill_(of_heads.unsqueeze(-1), torch.nan)


def gradient(sink: Tensor, lse: Tensor, sums: Tensor) -> Tensor:
    """The gradient of sink (nheads,), from the log-sum-exp with it and the sums of dout * out.

    Both are (…, nheads, rows). Rows without visible keys may have unwritten sums, and count 0. Kernels write
    the log-sum-exp +inf for a sink of NaN, too.
    """
    score = sink.to(lse.dtype).unsqueeze(-1)
    of_rows = (score - lse).exp() * sums
    of_rows = torch.where(lse.isposinf() & ~score.isnan(), 0.0, of_rows)
    others = [axis for axis in range(lse.dim()) if axis != lse.dim() - 2]
    return -of_rows.sum(others).to(sink.dtype)
