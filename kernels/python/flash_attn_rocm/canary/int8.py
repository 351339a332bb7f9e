"""The check at first use of the kernels that quantise, and of those with products of int8."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import Inputs, Options
from flash_attn_rocm.canary import fp8, rows
from flash_attn_rocm.canary.calls import ended, moved
from flash_attn_rocm.canary.making import Call, made
from flash_attn_rocm.library import plans
from flash_attn_rocm.machine.remembered import Family
from flash_attn_rocm.reference import quantising
from flash_attn_rocm.serving.layouts import Device

# Of a call, a device.
Int8 = Callable[[Inputs, Options, Device], tuple[Tensor, Tensor]]


def int8_problem(family: Family, answer: Int8, device: Device, where: torch.device) -> str:
    """The error in out and the log-sum-exp, or ""."""
    for call in int8_calls(family):
        inputs = Inputs(*(moved(x, where) for x in call.inputs))
        found = ended(where, lambda: answer(inputs, call.options, device))  # noqa: B023
        if problem := fp8.problem_of(call, found, family.arch):
            return f"{call.name}: {problem}"
    return ""


def int8_calls(family: Family) -> Iterator[Call]:
    """Small calls that execute all code of the kernels. On the CPU."""
    return (_quantised(call, family.arch) for call in made(rows.QUANTISED, family))


def _quantised(call: Call, arch: str) -> Call:
    """The call, compared with attention of the codes' numbers."""
    q, k, v = quantising.numbers(*call.padded[:3], of_v=plans.codes_of_values(arch))
    return call._replace(padded=call.padded._replace(q=q, k=k, v=v))
