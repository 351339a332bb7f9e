"""Attention as SageAttention: kernels that quantise q, k and v, and multiply codes. The rule, the operators.

q and k are rotated and become int8, with a scale for each row of q and for 32 keys. v becomes float8_e4m3fn
(float8_e4m3fnuz on MI300) with a scale for each head, or stays in 16 bits on GPUs without products of fp8.
torch.compile takes the operator ``attend_int8`` as one opaque call.
"""

from functools import cache

import torch
from torch import Tensor

from flash_attn_rocm.arguments import flops
from flash_attn_rocm.arguments.normal_form import DTYPES, Inputs, Options, is_causal, is_featured
from flash_attn_rocm.canary import first_use
from flash_attn_rocm.diagnosis.notice import fall_back
from flash_attn_rocm.launch import forward_pass, watched
from flash_attn_rocm.library import plans
from flash_attn_rocm.library.host import LIMITS, code_of
from flash_attn_rocm.machine.remembered import INT8, Family
from flash_attn_rocm.reference import operators
from flash_attn_rocm.reference.quantising import floats
from flash_attn_rocm.serving import machine, resets
from flash_attn_rocm.serving.layouts import Device, padded
from flash_attn_rocm.serving.support import (
    FAILURES,
    NO_GRADIENTS_OF_CODES,
    Support,
    device_of,
    launch_words,
    row_words,
)
from flash_attn_rocm.values import kinds, paths
from flash_attn_rocm.values.rates import INT8_PAIRS
from flash_attn_rocm.values.tracing import constant_when_traced

OP = kinds.ATTENDING[paths.INT8]
FWD_INT8 = torch.ops.flash_attn_rocm.fwd_int8.default
if resets.THREATENED:
    FWD_INT8 = watched.int8(FWD_INT8, operators.arguments_of(FWD_INT8))
OPERATOR = (
    "attend_int8(Tensor q, Tensor k, Tensor v, float softmax_scale, SymInt window_left, SymInt window_right, "
    "str arch, int compute_units) -> (Tensor, Tensor)"
)
Two = tuple[Tensor, Tensor]


@torch.library.register_fake(f"{operators.NAMESPACE}::fwd_int8")
def _fwd_int8_fake(*_arguments: object) -> None:
    """Writes into its arguments and returns nothing, so there is no shape to infer."""


def unserved(inputs: Inputs, options: Options) -> str:
    """Why checked arguments are not computed in 8 bits, or "". Independent of addresses."""
    q, k, v = inputs[:3]
    if reason := machine.current().unserved(q.device):
        return reason
    head_dim = q.shape[-1]
    reasons = _reasons(q.device, DTYPES[q.dtype])
    if reason := reasons[min(head_dim, len(reasons) - 1)]:
        return reason
    beside = {
        "another head dim of v": v.shape[-1] != head_dim,
        "softcap, ALiBi or dropout": is_featured(inputs, options),
        "mask": inputs.attn_mask is not None,
        "packed sequences": inputs.cu_seqlens_q is not None,
        "gradients": inputs.wants_gradients,
        "subclasses of tensors": any(type(x) is not Tensor for x in (q, k, v)),
    }
    for what, there in beside.items():
        if there:
            return f"kernels with products of int8 take no {what}"
    least = least_pairs(q.device)
    if not pays(q.shape[1], k.shape[1], least, causal=is_causal(options)):
        return (
            f"8 bits pay from {2 * least} queries with as many keys on, or {4 * least} in causal calls "
            "(modelled)"
        )
    if torch.compiler.is_compiling():
        return ""  # a graph learns of failures when it runs
    return FAILURES.get(Family(device_of(q.device).arch, DTYPES[q.dtype], head_dim, INT8), "")


def pays(rows: int, keys: int, least: int, *, causal: bool) -> bool:
    """Whether products of 8 bits save more time than quantising takes. ``least``: pairs for each row."""
    return 0 < least * (rows + keys) * (2 if causal else 1) <= rows * keys


@constant_when_traced
def least_pairs(device: torch.device) -> int:
    """Of each row of q and k: from these pairs on, calls are 8 % faster than in 16 bits at each head dim.

    0: no kernel on the device multiplies in int8. The forwards are modelled, and the time of quantising is
    assumed.
    """
    if machine.current().unserved(device):
        return 0
    return INT8_PAIRS.get(code_of(device_of(device).arch), 0)


@constant_when_traced
def _reasons(device: torch.device, dtype: str) -> tuple[str, ...]:
    """For each head dim, and last for larger ones, why no kernel multiplies in int8, or ""."""
    return _reasons_on(device_of(device).arch, dtype)


@cache
def _reasons_on(arch: str, dtype: str) -> tuple[str, ...]:
    none = f"no kernel for {arch} has products of int8 for {dtype} with head dim"
    dims = range(LIMITS.head_dim + 1)
    found = ("" if plans.has_kernel(arch, dtype, at, OP) else f"{none} {at}" for at in dims)
    return (*found, f"{none}s above {LIMITS.head_dim}")


def support_of(inputs: Inputs, options: Options) -> Support:
    """How a call that is served is computed."""
    q = inputs.q
    launches = launch_words(inputs, options, q.shape[-1]) if resets.THREATENED else ""
    codes = plans.codes_of_values(device_of(q.device).arch)
    of_values = str(codes).removeprefix("torch.") if codes else DTYPES[q.dtype]
    return Support(
        ok=True, reason=f"products are of int8 and {of_values}", path=paths.INT8,
        backward_reason=NO_GRADIENTS_OF_CODES, launches=launches,
        row=row_words(q.device, paths.INT8, DTYPES[q.dtype], q.shape[-1]),
    )  # fmt: skip


def attend(inputs: Inputs, options: Options) -> Two | None:
    """out and the log-sum-exp. None: the call is not computed in 8 bits."""
    if unserved(inputs, options):
        return None
    flops.register()
    found: Two = torch.ops.flash_attn_rocm.attend_int8(
        *inputs[:3], options.softmax_scale, options.window_left, options.window_right,
        *device_of(inputs.q.device),
    )  # fmt: skip
    return found


def answer(inputs: Inputs, options: Options, _device: Device) -> Two:
    """out and the log-sum-exp by the kernels."""
    q, k, v = (padded(x, x.shape[-1]) for x in inputs[:3])
    out = q.new_empty(inputs.out_shape)
    lse = q.new_empty(inputs.lse_shape, dtype=torch.float32)
    workspace = lse.new_empty(floats(q.shape, k.shape))
    FWD_INT8(
        q, k, v, workspace, out, lse, options.softmax_scale, options.window_left, options.window_right
    )  # fmt: skip
    return out, lse


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: float,
    window_left: int,
    window_right: int,
    arch: str,
    compute_units: int,
) -> Two:
    inputs = Inputs(q, k, v)
    options = Options(
        softmax_scale, window_left, window_right, max_seqlen_q=q.shape[1], max_seqlen_k=k.shape[1]
    )
    device = Device(arch, compute_units)
    if failure := first_use.int8_failure(answer, q, device):
        fall_back(failure, stacklevel=2)
        return forward_pass.in_16_bits(inputs, options, device)
    return answer(inputs, options, device)


def _attend_fake(q: Tensor, k: Tensor, v: Tensor, *_arguments: object) -> Two:
    inputs = Inputs(q, k, v)
    return q.new_empty(inputs.out_shape), operators.new_lse(inputs)


operators.LIBRARY.define(OPERATOR)
operators.LIBRARY.impl("attend_int8", _attend, "CompositeExplicitAutograd")
torch.library.register_fake(f"{operators.NAMESPACE}::attend_int8", _attend_fake, lib=operators.LIBRARY)
