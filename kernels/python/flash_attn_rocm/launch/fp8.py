"""Attention of q, k and v in fp8 by kernels with products of fp8: the rule, and the operator ``fwd_fp8``."""

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import DEQUANTISED, DTYPES, Inputs, Options, is_featured
from flash_attn_rocm.canary import first_use
from flash_attn_rocm.diagnosis.notice import fall_back
from flash_attn_rocm.library import plans
from flash_attn_rocm.machine.remembered import FP8, Family
from flash_attn_rocm.reference.operators import NAMESPACE
from flash_attn_rocm.serving import machine
from flash_attn_rocm.serving.layouts import Device, is_aligned
from flash_attn_rocm.serving.support import (
    FAILURES,
    NO_GRADIENTS_OF_CODES,
    Support,
    device_of,
    row_words,
)
from flash_attn_rocm.values import kinds, paths

OP, NAME = kinds.ATTENDING[paths.FP8], DTYPES[DEQUANTISED]
FWD_FP8 = torch.ops.flash_attn_rocm.fwd_fp8.default
FEW = 16  # queries of a sequence: then split keys fill a GPU (kernels/host/plan)
Three = tuple[Tensor, Tensor, Tensor]


@torch.library.register_fake(f"{NAMESPACE}::fwd_fp8")
def _fwd_fp8_fake(*_arguments: object) -> None:
    """Writes into its arguments and returns nothing, so there is no shape to infer."""


def unserved(inputs: Inputs, options: Options) -> str:
    """Why no kernel multiplies the codes of checked arguments, or "". Independent of addresses."""
    if reason := machine.current().unserved(inputs.q.device):
        return reason
    arch, head_dim = device_of(inputs.q.device).arch, inputs.q.shape[-1]
    if not plans.has_kernel(arch, NAME, head_dim, OP):
        return f"no kernel for {arch} has products of fp8 with head dim {head_dim}"
    if inputs.q.dtype == torch.float8_e4m3fnuz and not plans.multiplies_fnuz(arch):
        return f"products of fp8 take no float8_e4m3fnuz on {arch}"
    beside = {
        "another head dim of v": inputs.v.shape[-1] != head_dim,
        "softcap, ALiBi or dropout": is_featured(inputs, options),
        "a mask": inputs.attn_mask is not None,
        "a cache": inputs.block_table is not None or inputs.seqused_k is not None,
        "left padding": inputs.leftpad_k is not None,
        "chunks": options.chunk > 0,
        f"up to {FEW} queries": options.max_seqlen_q <= FEW,
        "split keys": options.num_splits > 1,
    }
    for what, there in beside.items():
        if there:
            return f"kernels with products of fp8 take no {what}"
    return FAILURES.get(Family(arch, NAME, head_dim, FP8), "")


def support_of(inputs: Inputs) -> Support:
    """How a call that is served is computed."""
    return Support(
        ok=True, reason="q, k and v are read as they are, and products are of fp8", path=paths.FP8,
        backward_reason=NO_GRADIENTS_OF_CODES,
        row=row_words(inputs.q.device, paths.FP8, NAME, inputs.q.shape[-1]),
    )  # fmt: skip


def attend(inputs: Inputs, options: Options, q_descale: Tensor | None) -> Three | None:
    """out, the log-sum-exp and no probabilities. None: no kernel multiplies the codes of the call."""
    if unserved(inputs, options):
        return None
    device = device_of(inputs.q.device)
    if failure := first_use.fp8_failure(answer, inputs.q, device):
        fall_back(failure, stacklevel=4)
        return None
    out, lse = answer(inputs, options, q_descale, device)
    return out, lse, out.new_empty(0)


def answer(
    inputs: Inputs, options: Options, q_descale: Tensor | None, _device: Device
) -> tuple[Tensor, Tensor]:
    """out and the log-sum-exp by the kernel."""
    q, k, v = (x if is_aligned(x) else _copied(x) for x in inputs[:3])
    out = q.new_empty(inputs.out_shape, dtype=DEQUANTISED)
    lse = q.new_empty(inputs.lse_shape, dtype=torch.float32)
    if inputs.cu_seqlens_q is not None:  # rows behind all sequences
        out.zero_()
        lse.fill_(torch.inf)
    sink = None if inputs.sink is None else inputs.sink.float().contiguous()
    FWD_FP8(
        q, k, v, inputs.cu_seqlens_q, inputs.cu_seqlens_k, sink, q_descale, inputs.k_descale,
        inputs.v_descale, out, lse, options.softmax_scale, options.window_left, options.window_right,
        options.max_seqlen_q, options.max_seqlen_k,
    )  # fmt: skip
    return out, lse


def _copied(x: Tensor) -> Tensor:
    """A contiguous copy, of bytes: PyTorch has few operations on fp8."""
    return x.view(torch.uint8).clone(memory_format=torch.contiguous_format).view(x.dtype)
