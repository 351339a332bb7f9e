"""The results of random calls beside those of float64, and how a mutant's differ from the original's.

Runs in the verify container, in the folder of the numerics suite.
"""

import os

import torch
from flash_attn_rocm.arguments.normal_form import TORCH_DTYPES
from flash_attn_rocm.suite import alike_cases, backward_cases, fp8_cases, int8_cases, nan_cases
from flash_attn_rocm.suite.fuzz import made
from flash_attn_rocm.suite.rule import as_taken, attention, dscores_allowed

from mutation import calls
from mutation.exactness import Compared, worse

GRADIENTS = ("dq", "dk", "dv")
SHOWN = 200  # characters of a failure


def kept(task):
    """Saves the original's results of the calls in ``numbers``."""
    with on_emulator() as target:
        found = {n: results_of(made(case, target.device), target) for n, case in cases_of(task)}
    torch.save(found, task["original"])


def compared(task):
    """Why the mutant is less exact than the original, whose results are saved, or no words."""
    original = torch.load(task["original"])
    found = []
    with on_emulator() as target:
        for n, case in cases_of(task):
            if words := refused(target, case):
                return f"random call {n}: {words[:SHOWN]}"
            after = results_of(made(case, target.device), target)
            if not original[n]:
                return f"random call {n}: its result is promised bit for bit"
            found += [beside(*each) for each in zip(original[n], after, strict=True)]
    return worse(found)


def on_emulator():
    """The slow sanitizers are off."""
    os.environ["FA_FAKE_HIP_CHECKS"] = ""
    return calls.on_emulator()


def cases_of(task):
    """(number, case) of the random calls in ``numbers``."""
    every = calls.random_for(task["kernel"], task["seed"], task["calls"])
    return [(n, every[n]) for n in task["numbers"]]


def refused(target, case):
    """Why the suite refuses a call, or no words."""
    try:
        made(case, target.device).check(target, target.shown)
    except (AssertionError, RuntimeError) as error:
        return str(error)
    return str(target.shown.findings[0]) if target.shown.findings else ""


def results_of(call, target):
    """(name, result, float64) of each result that is rounded. Empty if bits are promised, or all are NaN."""
    if isinstance(call, nan_cases.Call):
        return []
    if isinstance(call, backward_cases.Call):
        return [*_gradients(call, target)]
    if isinstance(call, fp8_cases.Call):
        return [*_fp8(call, target)]
    if isinstance(call, int8_cases.Call):
        return [*_int8(call, target)]
    return [*_attention(call, target)] if hasattr(call, "launched") else []


def _attention(call, target):
    for each in call.launched(target):
        taken = as_taken(each)
        given = (x.double() for x in (taken.q, taken.k, taken.v))
        out, lse = attention(*given, call.rules, each.slopes, each.kept, each.bias, each.sink)
        yield "out", each.out.detach(), out
        if each.lse is not None:
            yield "log-sum-exp", each.lse, lse


def _fp8(call, target):
    """The results, which are float64 of bf16 and fp32."""
    for b, (out, lse) in enumerate(call.run(target)):
        exact, sums, *_ = call.exact(b)
        yield "out", out.bfloat16(), exact
        yield "log-sum-exp", lse.float(), sums


def _int8(call, target):
    """The results, which are float64 of the kernel's dtype and fp32."""
    (out, lse), (exact, sums, *_) = call.run(target), call.exact()
    yield "out", out.to(TORCH_DTYPES[call.case.kernel.dtype]), exact
    yield "log-sum-exp", lse.float(), sums


def _gradients(call, target):
    *gradients, delta = call.run(target)[:4]
    lengths = (call.case.rows, call.case.keys, call.case.keys)
    outs, sums = call.forward()
    for b, found in enumerate(zip(*map(call.parts, gradients, lengths), strict=True)):
        yield from zip(GRADIENTS, found, exact_gradients(call, b), strict=True)
    for rows, dout, out in zip(call.parts(delta, call.case.rows, 1), call.dout, outs, strict=True):
        yield "delta", rows, (dout.double() * out.double()).sum(-1).T
    if getattr(call, "dscores", None) is not None:
        given = zip(call.sequences, call.dout, outs, sums, call.dscores, strict=True)
        for each, *more, found in given:
            yield "dscores", found[..., : len(each.k)], dscores_allowed(each, *more, call.rules)[0]


def exact_gradients(call, b):
    if isinstance(call, alike_cases.Call):
        return [exact for exact, _ in call.exact(b)]
    each, dout = as_taken(call.sequences[b]), call.dout[b].double()
    leaves = [x.double().requires_grad_() for x in (each.q, each.k, each.v)]
    out, _ = attention(*leaves, call.rules, each.slopes, each.kept, each.bias)
    return torch.autograd.grad(out, leaves, dout)


def beside(original, mutant):
    """One result of the original and of the mutant."""
    (name, one, exact), (_, other, _) = original, mutant
    kind = torch.finfo(one.dtype)
    one, other, exact = (x.detach().double().flatten() for x in (one, other, exact))
    differ = (one != other) & ~(one.isnan() & other.isnan())
    size = torch.maximum(one.abs(), other.abs()).clamp(min=kind.tiny)
    step = kind.eps * torch.ldexp(torch.ones_like(size), torch.frexp(size).exponent - 1)
    columns = ((one - exact).abs(), (other - exact).abs(), (one - other).abs(), step)
    errors = columns[0][columns[0].isfinite()]
    elements = torch.stack(columns, 1)[differ].tolist()
    largest = errors.max().item() if len(errors) else 0.0
    return Compared(name, elements, len(errors), errors.sum().item(), largest)
