"""Sinks: a learned number per head joins the softmax, as the score of one more key with value 0.

From out and lse without it, out * sigmoid(lse - sink) is the answer, and log(exp(lse) + exp(sink)) its
log-sum-exp. So kernels need no support: one elementwise pass over out follows them, for any number of parts
of the keys. The backward pass computes probabilities from the log-sum-exp and subtracts sum(dout * out), so
these two suffice for the gradients of q, k and v. The sink's gradient is -sum(exp(sink - lse) * sum(dout *
out)) over its head's rows, as for any score with value 0.

A row without visible keys has out 0, and keeps the log-sum-exp +inf.

Inside the kernel a sink would cost under 1 %, but a trial slowed every causal forward of head dim 128 on
CDNA 4 by 2.9 % (modelled).
"""

import torch
from torch import Tensor


def joined(out: Tensor, lse: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    """Applies sink (nheads,) to out (…, rows, nheads, headdim), in place, and to lse (…, nheads, rows)."""
    share, total = shares(lse, sink.to(lse.dtype).unsqueeze(-1))
    return out.mul_(share.transpose(-1, -2).unsqueeze(-1)), total


def shares(lse: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    """The keys' share of all probability, and the log-sum-exp with the sink, which broadcasts to lse."""
    return torch.sigmoid(lse - sink), torch.logaddexp(lse, sink)


def gradient(sink: Tensor, lse: Tensor, sums: Tensor) -> Tensor:
    """The gradient of sink (nheads,), from the log-sum-exp with it and the sums of dout * out.

    Both are (…, nheads, rows). Rows without visible keys may have unwritten sums, and count 0.
    """
    of_rows = (sink.to(lse.dtype).unsqueeze(-1) - lse).exp() * sums
    of_rows = torch.where(lse.isposinf(), 0.0, of_rows)
    others = [axis for axis in range(lse.dim()) if axis != lse.dim() - 2]
    return -of_rows.sum(others).to(sink.dtype)
