"""Attention of q, k and v in fp8 by kernels with products of fp8: the rule, and the operator ``fwd_fp8``.

torch.compile takes the operator ``attend_fp8`` as one opaque call: copies and the check at first use are
decided at run time.
"""

from functools import cache

import torch
from torch import Tensor

from flash_attn_rocm.arguments import flops
from flash_attn_rocm.arguments.normal_form import DEQUANTISED, DTYPES, Inputs, Options, is_featured
from flash_attn_rocm.canary import first_use
from flash_attn_rocm.diagnosis.notice import fall_back
from flash_attn_rocm.launch import dequantising, forward_pass, watched
from flash_attn_rocm.library import plans
from flash_attn_rocm.library.host import LIMITS
from flash_attn_rocm.machine.remembered import FP8, Family
from flash_attn_rocm.reference import operators
from flash_attn_rocm.serving import machine, resets
from flash_attn_rocm.serving.layouts import Device, is_aligned, small_in_rows
from flash_attn_rocm.serving.support import (
    FAILURES,
    NO_GRADIENTS_OF_CODES,
    Support,
    device_of,
    launch_words,
    row_words,
)
from flash_attn_rocm.values import kinds, paths
from flash_attn_rocm.values.tracing import constant_when_traced
from flash_attn_rocm.values.tuning import REGIMES

OP, NAME = kinds.ATTENDING[paths.FP8], DTYPES[DEQUANTISED]
FWD_FP8 = torch.ops.flash_attn_rocm.fwd_fp8.default
if resets.THREATENED:
    FWD_FP8 = watched.fp8(FWD_FP8, operators.arguments_of(FWD_FP8))
FEW = next(iter(REGIMES.values()))[0][1]  # queries of a sequence: then split keys fill a GPU
OPERATOR = (
    "attend_fp8(Tensor q, Tensor k, Tensor v, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? sink, "
    "Tensor? q_descale, Tensor? k_descale, Tensor? v_descale, float softmax_scale, SymInt window_left, "
    "SymInt window_right, SymInt max_seqlen_q, SymInt max_seqlen_k, str arch, int compute_units) "
    "-> (Tensor, Tensor)"
)
Two = tuple[Tensor, Tensor]
Three = tuple[Tensor, Tensor, Tensor]


@torch.library.register_fake(f"{operators.NAMESPACE}::fwd_fp8")
def _fwd_fp8_fake(*_arguments: object) -> None:
    """Writes into its arguments and returns nothing, so there is no shape to infer."""


def unserved(inputs: Inputs, options: Options) -> str:
    """Why no kernel multiplies the codes of checked arguments, or "". Independent of addresses."""
    if reason := machine.current().unserved(inputs.q.device):
        return reason
    head_dim = inputs.q.shape[-1]
    reasons = _reasons(inputs.q.device, inputs.q.dtype == torch.float8_e4m3fnuz)
    if reason := reasons[min(head_dim, len(reasons) - 1)]:
        return reason
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
    if torch.compiler.is_compiling():
        return ""  # a graph learns of failures when it runs
    return FAILURES.get(Family(device_of(inputs.q.device).arch, NAME, head_dim, FP8), "")


@constant_when_traced
def _reasons(device: torch.device, fnuz: bool) -> tuple[str, ...]:  # noqa: FBT001 - passed by position
    """For each head dim, and last for larger ones, why no kernel multiplies codes, or ""."""
    return _reasons_on(device_of(device).arch, fnuz)


@cache
def _reasons_on(arch: str, fnuz: bool) -> tuple[str, ...]:  # noqa: FBT001
    refused = fnuz and not plans.multiplies_fnuz(arch)
    there = f"products of fp8 take no float8_e4m3fnuz on {arch}" if refused else ""
    none = f"no kernel for {arch} has products of fp8 with head dim"
    dims = range(LIMITS.head_dim + 1)
    found = (there if plans.has_kernel(arch, NAME, at, OP) else f"{none} {at}" for at in dims)
    return (*found, f"{none}s above {LIMITS.head_dim}")


def support_of(inputs: Inputs, options: Options) -> Support:
    """How a call that is served is computed."""
    launches = launch_words(inputs, options, inputs.q.shape[-1]) if resets.THREATENED else ""
    return Support(
        ok=True, reason="q, k and v are read as they are, and products are of fp8", path=paths.FP8,
        backward_reason=NO_GRADIENTS_OF_CODES, launches=launches,
        row=row_words(inputs.q.device, paths.FP8, NAME, inputs.q.shape[-1]),
    )  # fmt: skip


def attend(inputs: Inputs, options: Options, q_descale: Tensor | None) -> Three | None:
    """out, the log-sum-exp and no probabilities. None: no kernel multiplies the codes of the call."""
    if unserved(inputs, options):
        return None
    flops.register()
    found: Two = torch.ops.flash_attn_rocm.attend_fp8(
        *inputs[:3], inputs.cu_seqlens_q, inputs.cu_seqlens_k, inputs.sink, q_descale, inputs.k_descale,
        inputs.v_descale, options.softmax_scale, options.window_left, options.window_right,
        options.max_seqlen_q, options.max_seqlen_k, *device_of(inputs.q.device),
    )  # fmt: skip
    return *found, found[0].new_empty(0)


def answer(
    inputs: Inputs, options: Options, q_descale: Tensor | None, _device: Device
) -> tuple[Tensor, Tensor]:
    """out and the log-sum-exp by the kernel."""
    inputs = small_in_rows(inputs)
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


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    sink: Tensor | None,
    q_descale: Tensor | None,
    k_descale: Tensor | None,
    v_descale: Tensor | None,
    softmax_scale: float,
    window_left: int,
    window_right: int,
    max_seqlen_q: int,
    max_seqlen_k: int,
    arch: str,
    compute_units: int,
) -> Two:
    inputs = Inputs(
        q, k, v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, sink=sink, k_descale=k_descale,
        v_descale=v_descale,
    )  # fmt: skip
    options = Options(
        softmax_scale, window_left, window_right, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k
    )
    device = Device(arch, compute_units)
    if failure := first_use.fp8_failure(answer, q, device):
        fall_back(failure, stacklevel=2)
        return forward_pass.in_16_bits(dequantising.dequantised(inputs, q_descale), options, device)
    return answer(inputs, options, q_descale, device)


def _attend_fake(q: Tensor, k: Tensor, v: Tensor, *_arguments: object) -> Two:
    inputs = Inputs(q, k, v)
    return q.new_empty(inputs.out_shape, dtype=DEQUANTISED), operators.new_lse(inputs)


operators.LIBRARY.define(OPERATOR)
operators.LIBRARY.impl("attend_fp8", _attend, "CompositeExplicitAutograd")
torch.library.register_fake(f"{operators.NAMESPACE}::attend_fp8", _attend_fake, lib=operators.LIBRARY)


def _copied(x: Tensor) -> Tensor:
    """A contiguous copy, of bytes: PyTorch has few operations on fp8."""
    return x.view(torch.uint8).clone(memory_format=torch.contiguous_format).view(x.dtype)
