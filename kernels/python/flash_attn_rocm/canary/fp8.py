"""The check at first use of the kernels with products of fp8."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import Inputs, Options
from flash_attn_rocm.canary import reference, rows
from flash_attn_rocm.canary.calls import ended, endless, moved
from flash_attn_rocm.canary.making import Call, made, packed
from flash_attn_rocm.library import plans
from flash_attn_rocm.machine.remembered import Family
from flash_attn_rocm.reference import codes
from flash_attn_rocm.serving.layouts import Device
from flash_attn_rocm.values import tolerances

# Of a call, the descales of q, a device.
Fp8 = Callable[[Inputs, Options, Tensor | None, Device], tuple[Tensor, Tensor]]


def fp8_problem(family: Family, answer: Fp8, device: Device, where: torch.device) -> str:
    """The error in out and the log-sum-exp, or ""."""
    for call, q_descale in fp8_calls(family):
        inputs, own = Inputs(*(moved(x, where) for x in call.inputs)), moved(q_descale, where)
        found = ended(where, lambda: answer(inputs, call.options, own, device))  # noqa: B023
        if problem := problem_of(call, found, family.arch):
            return f"{call.name}: {problem}"
    return ""


def fp8_calls(family: Family) -> Iterator[tuple[Call, Tensor]]:
    """Small calls that execute all code of the kernel, with the descales of q. On the CPU."""
    fnuz = plans.multiplies_fnuz(family.arch)
    taken = [row for row in rows.CODED_PRODUCTS if fnuz or row.codes != rows.E4M3FNUZ]
    return map(_quantised, made(taken, family))


def _quantised(call: Call) -> tuple[Call, Tensor]:
    """The call, whose k and v are codes, with codes as q."""
    q, dtype, heads_k = call.padded.q.float(), call.inputs.k.dtype, call.padded.k.shape[2]
    group = q.shape[2] // heads_k
    descale = codes.own_descales(q, dtype).amax(1).unflatten(1, (heads_k, group)).amax(2)
    of = descale.repeat_interleave(group, 1)[:, None, :, None]
    encoded = codes.encode(q, of, dtype)
    bits = encoded.view(torch.uint8)
    given = (packed(bits, call.rows) if call.ragged else bits).view(dtype)
    numbers = (codes.decode(encoded) * of).double()  # the reference copies other dtypes to dense fp32
    padded = call.padded._replace(q=numbers)
    return call._replace(inputs=call.inputs._replace(q=given), padded=padded), descale


def problem_of(call: Call, found: tuple[Tensor, ...] | None, arch: str) -> str:
    """The error in out and the log-sum-exp, where probabilities are rounded to fp8, or ""."""
    if found is None:
        return endless("it")
    out, lse = reference.forward(call)
    sizes, _ = reference.forward(call._replace(padded=call.padded._replace(v=call.padded.v.abs())))
    subnormal = plans.fp8_subnormal(arch)
    allowed = tolerances.fp8_allowed(sizes, max(call.keys), sizes.max().item(), subnormal)
    if not share_of(found[0], out, allowed) <= 1:
        return "out differs from the reference implementation by more than the rounding of probabilities"
    most = tolerances.canary_lse_allowed(lse[lse.isfinite()].abs().max().item())
    if not share_of(found[1], lse, torch.full_like(lse, most)) <= 1:
        return "the log-sum-exp differs from the reference implementation"
    return ""


def share_of(found: Tensor, wanted: Tensor, allowed: Tensor) -> float:
    """The largest error as a share of what is allowed, infinite for NaN."""
    found = found.cpu().float()
    shares = ((found - wanted).abs() / allowed).masked_fill(found == wanted, 0.0)
    return shares.nan_to_num(nan=torch.inf, posinf=torch.inf).max().item()
