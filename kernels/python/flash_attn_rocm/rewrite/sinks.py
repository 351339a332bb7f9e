"""Sinks: a learned number for each head that joins the softmax, as the score of one more key without a value.

Of out and lse without it, out * sigmoid(lse - sink) is the answer, and log(exp(lse) + exp(sink)) its
log-sum-exp.  So kernels need not know it: one elementwise pass over out follows them, however many parts the
keys were cut into.  The backward pass computes probabilities from the log-sum-exp and subtracts
sum(dout * out), so from these two the same kernels give the gradients of q, k and v.  The sink's gradient is
-sum(exp(sink - lse) * sum(dout * out)) over its head's rows, as of any score whose value is 0.

A row that sees no key has out 0, and keeps the log-sum-exp +inf.
"""

import torch
from torch import Tensor


def joined(out: Tensor, lse: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    """out (…, rows, nheads, headdim), which is overwritten, and lse (…, nheads, rows) with sink (nheads,)."""
    share, total = shares(lse, sink.to(lse.dtype).unsqueeze(-1))
    return out.mul_(share.transpose(-1, -2).unsqueeze(-1)), total


def shares(lse: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    """What the keys have of all probability, and the log-sum-exp with the sink, which broadcasts to lse."""
    return torch.sigmoid(lse - sink), torch.logaddexp(lse, sink)


def gradient(sink: Tensor, lse: Tensor, sums: Tensor) -> Tensor:
    """Of sink (nheads,), from the log-sum-exp with it and the sums of dout * out, both (…, nheads, rows).

    Rows that see no key, whose sums nobody may have written, count 0.
    """
    of_rows = (sink.to(lse.dtype).unsqueeze(-1) - lse).exp() * sums
    of_rows = torch.where(lse.isposinf(), 0.0, of_rows)
    others = [axis for axis in range(lse.dim()) if axis != lse.dim() - 2]
    return -of_rows.sum(others).to(sink.dtype)
