"""Who answers a call, a kernel or the PyTorch implementation, and its connection to autograd."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from flash_attn_rocm import _kernels, _ops, _philox
from flash_attn_rocm._notice import fall_back
from flash_attn_rocm._options import Inputs, Options
from flash_attn_rocm._support import ArchOf, support_of

Three = tuple[Tensor, Tensor, Tensor]
CALLERS = 5  # from the warning to the line that called the public function


def attend(
    inputs: Inputs, options: Options, *, want_probabilities: bool = False, arch_of: ArchOf | None = None
) -> Three:
    """Differentiable attention of checked arguments; ``arch_of`` stands in for the machine's devices.

    Returns out like q, the log-sum-exp (batch, nheads, seqlen_q) fp32, (nheads, total_q) of packed
    sequences, and with dropout when wanted the probabilities, otherwise an empty tensor.
    """
    support = support_of(inputs, options, arch_of=arch_of)
    if not support.ok:
        fall_back(support.reason, stacklevel=CALLERS)
    drops = options.dropout_p > 0.0
    state = _philox.new_state(inputs.q.device) if drops else None
    want = want_probabilities and drops
    q, k, v = inputs[:3]
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        found: Three = _Attention.apply(options, state, support.ok, want, *_distinct(inputs))
        return found
    return _forward(inputs, options, state, by_kernel=support.ok, want_probabilities=want)


def _distinct(inputs: Inputs) -> Inputs:
    """torch.compile does not take a function of autograd that gets one tensor twice; views are two."""
    q, k, v, cu_k = inputs.q, inputs.k, inputs.v, inputs.cu_seqlens_k
    if v is q or v is k:
        inputs = inputs._replace(v=v.view_as(v))
    if k is q:
        inputs = inputs._replace(k=k.view_as(k))
    if cu_k is inputs.cu_seqlens_q and cu_k is not None:
        inputs = inputs._replace(cu_seqlens_k=cu_k.view_as(cu_k))
    return inputs


def _forward(
    inputs: Inputs, options: Options, state: Tensor | None, *, by_kernel: bool, want_probabilities: bool
) -> Three:
    if by_kernel:
        return *_kernels.forward(inputs, options), inputs.q.new_empty(0)
    return _ops.forward(inputs, options, state, want_probabilities=want_probabilities)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - autograd's context has no type
        options: Options,
        state: Tensor | None,
        by_kernel: bool,  # noqa: FBT001 - autograd passes by position
        want_probabilities: bool,  # noqa: FBT001
        *tensors: Tensor | None,
    ) -> Three:
        inputs = Inputs(*tensors)
        out, lse, probabilities = _forward(
            inputs, options, state, by_kernel=by_kernel, want_probabilities=want_probabilities
        )
        ctx.save_for_backward(out, lse, state, *tensors)
        ctx.options = options
        ctx.mark_non_differentiable(lse, probabilities)
        return out, lse, probabilities

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        dout: Tensor,
        *_unused: Tensor,
    ) -> tuple[Tensor | None, ...]:
        out, lse, state, *tensors = ctx.saved_tensors
        gradients = _ops.backward(dout, out, lse, Inputs(*tensors), ctx.options, state)
        return (None,) * 4 + gradients + (None,) * 7
