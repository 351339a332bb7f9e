"""The check at first use: compares calls with PyTorch's results (``canary.reference``).

``values.tolerances`` has the limits, with all other tolerances.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import BackwardCall, Inputs
from flash_attn_rocm.canary import reference, rows
from flash_attn_rocm.canary.making import Call, made
from flash_attn_rocm.canary.rows import Row
from flash_attn_rocm.library import plans
from flash_attn_rocm.machine.remembered import CODED, MASKED, MASKED_GRADIENTS, Family
from flash_attn_rocm.serving.layouts import Device
from flash_attn_rocm.values import kinds, paths, tolerances

SECONDS = 30.0  # time limit; calls take milliseconds
Answer = Callable[..., tuple[Tensor, Tensor]]  # of Inputs, Options, a generator's state, a device; path
Backward = Callable[[BackwardCall, str, str], tuple[Tensor, ...]]  # of a call, on an arch, on a path
Some = TypeVar("Some", Tensor, Tensor | None)
# The ops with a kernel for each head dim, by the work of their family.
OPS = {
    "": tuple(
        kinds.ATTENDING[path] for path in paths.FORWARD if path not in (paths.LATENT, paths.FP8, paths.INT8)
    ),
    MASKED: (plans.MASKED,),
    paths.SEPARATE: (plans.BACKWARD, plans.UNEVEN_BACKWARD),
    paths.FUSED: (kinds.GRADIENTS[paths.FUSED],),
    MASKED_GRADIENTS: (plans.MASKED_BACKWARD,),
}


def attention_problem(family: Family, answer: Answer, device: Device, where: torch.device) -> str:
    """The error in out and the log-sum-exp, or ""."""
    for call in attention_calls(family):
        state = reference.dropout_state(call)
        given = (_on(call.inputs, where), call.options, moved(state, where), device)
        wanted = {"path": call.path} if call.path else {}
        found = ended(where, lambda: answer(*given, **wanted))  # noqa: B023
        if problem := answer_problem(call, family, found):
            return problem
    return ""


def answer_problem(call: Call, family: Family, found: tuple[Tensor, ...] | None) -> str:
    """The error in a call's out and log-sum-exp, or "". ``found`` is None for a hang."""
    if found is None:
        return endless(call.name)
    out, lse = reference.forward(call)
    wrong = _difference("out", found[0], out, tolerances.canary_allowed(family.dtype, _largest(out)))
    if not wrong and found[0].cpu()[out == 0].any():
        wrong = "out is not 0 where a row sees no key"
    wrong = wrong or _difference("log-sum-exp", found[1], lse, tolerances.canary_lse_allowed(_largest(lse)))
    return f"{call.name}: {wrong}" if wrong else ""


def gradients_problem(family: Family, backward: Backward, where: torch.device) -> str:
    """The error in the gradients, or "". PyTorch computes out and the log-sum-exp."""
    path = paths.SEPARATE if family.work == MASKED_GRADIENTS else family.work
    for call in gradient_calls(family):
        on_cpu, wanted = reference.backward(call)
        dout, out, lse = (moved(x, where) for x in on_cpu[:3])
        inputs, state = _on(on_cpu.inputs, where), moved(on_cpu.rng_state, where)
        given = BackwardCall(dout, out, lse, inputs, call.options, state)
        cancelled = _cancelled(call)
        found = ended(where, lambda: backward(given, family.arch, path))  # noqa: B023
        if found is None:
            return endless(call.name)
        for what, one, other in zip(
            ("dq", "dk", "dv", "the gradient of attn_mask"), found, wanted, strict=False
        ):
            allowed = tolerances.canary_allowed(family.dtype, _largest(other)) + cancelled.get(what, 0.0)
            if wrong := _difference(what, one, other, allowed):
                return f"{call.name}: {wrong}"
    return ""


def attention_calls(family: Family) -> Iterator[Call]:
    """Small calls for the family's paths, on the CPU."""
    return made(_rows(family), family)


def gradient_calls(family: Family) -> Iterator[Call]:
    """Small calls for the loops of the family's gradient kernels."""
    takes_features = family.work != paths.FUSED or plans.fused_takes_features(*family[:3])
    return made([row for row in _rows(family) if takes_features or not row.featured], family)


def _rows(family: Family) -> list[Row]:
    """Those of all kinds with kernels for the family."""
    if family.work == CODED:  # without a kernel for the head dim, all are widened
        return [*rows.CODES]
    there = [op for op in OPS[family.work] if plans.has_kernel(*family[:3], op)]
    found: Iterator[Row] = itertools.chain.from_iterable(
        getattr(rows, name) for name in dict.fromkeys(kinds.CANARY[op] for op in there)
    )
    return [row for row in found if family.dtype == "bf16" or not row.tiny]


def _cancelled(call: Call) -> dict[str, float]:
    """The error left in dq and dk where two sums over head_dim cancel: dout v and dout out.

    A row's weights of its keys add up to 1. To the sum for a key each row may add as much.
    """
    q, k, v, *_ = call.padded
    head_dim, rows = q.shape[-1], q.shape[1] * q.shape[2] // k.shape[2]
    factors = (abs(call.options.softmax_scale), _largest(call.dout), _largest(v))
    return {
        "dq": tolerances.canary_cancelled(head_dim, *factors, _largest(k)),
        "dk": tolerances.canary_cancelled(head_dim, *factors, _largest(q), rows),
    }


def _largest(x: Tensor) -> float:
    return x.abs().nan_to_num_(0.0, 0.0).max().item()


def _difference(what: str, found: Tensor, wanted: Tensor, most: float) -> str:
    found = found.cpu().float()
    error = (found - wanted).abs().max().item()
    if not error <= most:  # infinite numbers' differences are NaN, too
        same = (found == wanted) | (found.isnan() & wanted.isnan())
        error = (found - wanted).masked_fill(same, 0.0).abs().max().item()
    if error <= most:  # False for NaN
        return ""
    return f"{what} differs by {error:.3g} from the reference implementation, and {most:.3g} is allowed"


def _on(inputs: Inputs, where: torch.device) -> Inputs:
    return Inputs(*(moved(x, where) for x in inputs))


def moved(x: Some, where: torch.device) -> Some:
    """A copy on the device, with unchanged strides."""
    if x is None or where.type == "cpu":
        return x
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=where).copy_(x)


def endless(name: str) -> str:
    return f"{name}: it did not end within {SECONDS:.0f} s"


def ended(where: torch.device, launch: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...] | None:
    """The result of a launch. None after the time limit."""
    if where.type != "cuda":
        return launch()
    # On a separate stream, so that a hang blocks only this check.
    stream = torch.cuda.Stream(where)
    with torch.cuda.stream(stream):
        found = launch()
        event = torch.cuda.Event()
        event.record(stream)
    end = time.monotonic() + SECONDS
    while not event.query():
        if time.monotonic() > end:
            return None
        time.sleep(1e-4)
    return found
