"""Some of upstream's own tests, at small sizes, on the PyTorch implementation (tests/installed/shared)."""

from dataclasses import replace

import pytest
import torch
import upstream
from flash_attn_rocm.suite import reference_attention
from flash_attn_rocm.suite.reference_attention import Rules, Sequence, attention, judge, magnitude
from flash_attn_rocm.values.tolerances import lse_allowed

pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
STEP = 23


def attend(function, *arguments, **options):
    return function(*arguments, **options)


@pytest.mark.parametrize("case", upstream.cases(full=False, step=STEP), ids=str)
def test_upstreams_cases(case):
    assert not upstream.run(case, torch.device("cpu"), attend).wrong


def test_the_rule_refuses_what_is_wrong():
    case = upstream.cases(full=True)[0]

    def attend_wrongly(function, *arguments, **options):
        out, *rest = function(*arguments, **options)
        return out * 1.05, *rest

    assert not case.dropout_p
    assert "out: error" in upstream.run(case, torch.device("cpu"), attend_wrongly).wrong[0]


def sequence(dtype=torch.float16):
    q, k, v = (torch.randn(n, 2, 32).to(dtype) for n in (5, 9, 9))
    exact, lse = attention(q.double(), k.double(), v.double(), Rules())
    return Sequence(q, k, v, exact, lse)


@pytest.mark.parametrize(("times", "right"), [(0.99, True), (1.01, False)])
def test_a_planted_error_just_beyond_the_rule_is_refused(times, right):
    exact = sequence()
    bound = judge([exact], Rules()).allowed
    out, lse = exact.out.clone(), exact.lse.clone()
    out[3, 1, 7] += times * bound
    lse[1, 2] += times * lse_allowed(lse[1, 2].item(), magnitude(exact.q, exact.k, Rules()))
    for wrong, changed in (("out: error", {"out": out}), ("log-sum-exp", {"lse": lse})):
        found = judge([replace(exact, **changed)], Rules()).wrong
        assert list(found) == [] if right else found[0].startswith(wrong)


def test_a_nan_of_the_plain_computation_leaves_the_allowance_of_all_other_rows(monkeypatch):
    """On CPUs with AMX, products of bf16 give NaN beside infinite numbers (nine cases of two archs)."""
    exact = sequence(torch.bfloat16)
    spoiled, plainly = [], reference_attention.attention

    def attend_with_nan(q, *more):
        out, lse = plainly(q, *more)
        if q.dtype == torch.bfloat16:
            out = out.clone()
            out[0, 0, 0] = torch.nan
            spoiled.append(out)
        return out, lse

    monkeypatch.setattr(reference_attention, "attention", attend_with_nan)
    rounded = replace(exact, out=exact.out.bfloat16())
    verdict = judge([rounded], Rules())
    assert spoiled
    assert verdict.wrong == ()
    assert verdict.allowed >= verdict.error > 0


def test_a_kernel_that_rounds_once_may_not_be_a_step_of_the_dtype_off():
    exact = sequence()
    right = replace(exact, out=exact.out.half())
    assert judge([right], Rules(), rounded_once=True).wrong == ()
    out = right.out.clone()
    out.view(torch.int16)[3, 1, 7] += 1
    assert (
        "times what rounding may do" in judge([replace(exact, out=out)], Rules(), rounded_once=True).wrong[0]
    )


def test_every_option_is_met():
    every = upstream.cases(full=True)
    assert len(set(map(str, every))) <= len(every)
    for name in (
        "causal",
        "local",
        "alibi",
        "softcap",
        "dropout_p",
        "splits",
        "rotary",
        "page",
        "batch_idx",
        "leftpad",
    ):
        assert len({getattr(case, name) for case in every}) > 1, name
    few = upstream.cases(full=False)
    assert {case.function for case in few} == {case.function for case in every}
    assert {case.head_dim for case in few} == {case.head_dim for case in every}
