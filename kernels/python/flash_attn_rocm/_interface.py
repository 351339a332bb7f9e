"""``flash_attn_func``: checks, chooses who answers, and connects to autograd."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from flash_attn_rocm import _reference
from flash_attn_rocm._notice import fall_back
from flash_attn_rocm._options import Options, require, resolve
from flash_attn_rocm._support import ArchOf, support_of

# What kernels can read, in elements (kernels/include/fa/kernel/params.hpp; the library checks it again).
KERNEL_ALIGNMENT = 8
KERNEL_ROW_STRIDE_END = 1 << 24


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,  # noqa: FBT001, FBT002 - upstream's signature
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,  # noqa: ARG001, FBT001, FBT002 - every answer is deterministic
    return_attn_probs: bool = False,  # noqa: FBT001, FBT002
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """softmax(softmax_scale * q k^T + mask) v, with the semantics of flash_attn 2.8.

    q (batch, seqlen_q, nheads, headdim), k and v (batch, seqlen_k, nheads_k, headdim), one device, all
    torch.float16 or all torch.bfloat16, nheads a multiple of nheads_k, headdim <= 256.

    ``softmax_scale`` is headdim ** -0.5 by default.  Row i has its diagonal at key
    i + seqlen_k - seqlen_q; ``causal`` hides the keys after it, and ``window_size`` (left, right) those
    further than that from it (-1: no bound).  ``softcap`` > 0 makes scores softcap * tanh(score /
    softcap).  ``alibi_slopes`` (nheads,) or (batch, nheads) fp32 subtracts slope * distance from the
    diagonal.  ``dropout_p`` drops probabilities, seeded by torch.manual_seed.

    Returns out, shaped and typed like q; with ``return_attn_probs`` also the log-sum-exp (batch, nheads,
    seqlen_q) fp32 and, when dropout_p > 0, the probabilities (batch, nheads, seqlen_q, seqlen_k),
    negative where they were dropped (else an empty tensor).  Rows that see no key give out 0 and
    log-sum-exp +inf.

    The forward pass runs a kernel when one serves the call (see ``explain``), otherwise the PyTorch
    implementation, with one FlashAttnFallbackWarning for each reason.  The backward pass is always the
    PyTorch implementation; it recomputes the probabilities.  In strict mode a call without a kernel
    raises FlashAttnUnsupportedError.  Wrong arguments raise FlashAttnArgumentError with all problems.
    """
    require(
        q,
        k,
        v,
        window_size=window_size,
        softcap=softcap,
        dropout_p=dropout_p,
        alibi_slopes=alibi_slopes,
    )
    options = resolve(
        q,
        k,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=window_size,
        softcap=softcap,
        dropout_p=dropout_p,
    )
    out, lse, probabilities = attend(
        q, k, v, alibi_slopes, options, want_probabilities=return_attn_probs and dropout_p > 0.0
    )
    return (out, lse, probabilities) if return_attn_probs else out


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alibi_slopes: Tensor | None,
    options: Options,
    *,
    want_probabilities: bool,
    arch_of: ArchOf | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """``flash_attn_func`` on checked arguments; ``arch_of`` stands in for the machine's devices."""
    support = support_of(q, options, alibi=alibi_slopes is not None, arch_of=arch_of)
    if not support.ok:
        fall_back(support.reason, stacklevel=4)
    seed = int(torch.randint(1 << 62, ())) if options.dropout_p > 0.0 else 0
    out, lse, probabilities = _Attention.apply(
        q, k, v, alibi_slopes, options, seed, support.ok, want_probabilities
    )
    return out, lse, probabilities


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - autograd's context has no type
        q: Tensor,
        k: Tensor,
        v: Tensor,
        alibi_slopes: Tensor | None,
        options: Options,
        seed: int,
        by_kernel: bool,  # noqa: FBT001 - autograd passes by position
        want_probabilities: bool,  # noqa: FBT001
    ) -> tuple[Tensor, Tensor, Tensor]:
        if by_kernel:
            out, lse = _by_kernel(q, k, v, options)
            probabilities = q.new_empty(0)
        else:
            out, lse, probabilities = _reference.forward(
                q, k, v, alibi_slopes, options, seed=seed, want_probabilities=want_probabilities
            )
        ctx.save_for_backward(q, k, v, out, lse, alibi_slopes)
        ctx.options, ctx.seed = options, seed
        ctx.mark_non_differentiable(lse, probabilities)
        return out, lse, probabilities

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,  # noqa: ANN401
        dout: Tensor,
        *_unused: Tensor,
    ) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse, alibi_slopes = ctx.saved_tensors
        gradients = _reference.backward(dout, q, k, v, out, lse, alibi_slopes, ctx.options, seed=ctx.seed)
        return *gradients, None, None, None, None, None


def _by_kernel(q: Tensor, k: Tensor, v: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    q, k, v = (_aligned(each) for each in (q, k, v))
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = torch.empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32, device=q.device)
    torch.ops.flash_attn_rocm.fwd(q, k, v, out, lse, options.softmax_scale, options.causal)
    return out, lse


def _aligned(tensor: Tensor) -> Tensor:
    """The tensor, or a contiguous copy of it when a kernel could not read its rows."""
    steps = (*tensor.stride()[:-1], tensor.storage_offset())
    aligned = tensor.stride(-1) == 1 and all(step % KERNEL_ALIGNMENT == 0 for step in steps)
    if aligned and tensor.stride(1) < KERNEL_ROW_STRIDE_END:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)
