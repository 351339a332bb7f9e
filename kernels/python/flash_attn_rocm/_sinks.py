"""Attention with a learned sink for each head: one more key, whose score is the sink and whose value is 0.

Of out and lse without it, out * sigmoid(lse - sink) is the answer, and lse' = log(exp(lse) + exp(sink)) its
log-sum-exp.  The backward pass computes probabilities from the log-sum-exp and subtracts sum(dout * out), so
the same kernels give the gradients of q, k and v from the answer and lse'.  The sink's gradient is
-sum(exp(sink - lse') * sum(dout * out)), as of any score whose value is 0.  gpt-oss has such sinks.
"""

from typing import Any

import torch
from torch import Tensor

from flash_attn_rocm import _gradients, _interface, _ops, _philox
from flash_attn_rocm._notice import fall_back
from flash_attn_rocm._options import BackwardCall, Inputs, Options
from flash_attn_rocm._support import device_of, gradients_unserved


def attend(inputs: Inputs, options: Options, sinks: Tensor) -> Tensor:
    """Differentiable attention of checked arguments, shaped like q, with ``sinks`` (nheads,) of any dtype."""
    found: Tensor = _Attention.apply(options, sinks, *inputs)
    return found


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - autograd's context has no type
        options: Options,
        sinks: Tensor,
        *tensors: Tensor | None,
    ) -> Tensor:
        inputs = Inputs(*tensors)
        state = _philox.new_state(inputs.q.device) if options.dropout_p > 0.0 else None
        plain, lse, _ = _interface.forward(inputs, options, state, want_probabilities=False)
        total = torch.logaddexp(lse, _of_heads(sinks, lse))
        # A row that sees no key has out 0 and lse +inf, and keeps them.
        share = torch.where(lse.isposinf(), 1.0, (lse - total).exp())
        out = (plain * share.transpose(-1, -2).unsqueeze(-1)).to(plain.dtype)
        ctx.save_for_backward(out, total, state, sinks, *tensors)
        ctx.options = options
        return out

    @staticmethod
    def backward(
        ctx: Any,  # noqa: ANN401
        dout: Tensor,
    ) -> tuple[Tensor | None, ...]:
        _interface._refuse_second_derivative()  # noqa: SLF001 - as that of attention without sinks
        out, total, state, sinks, *tensors = ctx.saved_tensors
        inputs = Inputs(*tensors)
        call = BackwardCall(dout, out, total, inputs, ctx.options, state)
        if reason := gradients_unserved(inputs):
            fall_back(reason, stacklevel=2)
            gradients = _ops.backward(call)
        else:
            gradients = _gradients.backward(call, device_of(inputs.q.device).arch)
        delta = (dout.to(total.dtype) * out.to(total.dtype)).sum(-1).transpose(-1, -2)
        of_rows = (_of_heads(sinks, total) - total).exp() * delta
        heads = [axis for axis in range(total.dim()) if axis != total.dim() - 2]
        return None, -of_rows.sum(heads).to(sinks.dtype), *gradients, *(None,) * (len(tensors) - 3)


def _of_heads(sinks: Tensor, lse: Tensor) -> Tensor:
    """(nheads, 1) in the dtype of lse, which is (…, nheads, rows)."""
    return sinks.to(lse.dtype).unsqueeze(-1)
