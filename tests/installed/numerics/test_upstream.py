"""Upstream's tests of the public functions at sizes for an emulator.

See tests/installed/shared/upstream.py. A few cases represent all. FA_FULL=1 in the environment runs all of
them.
"""

import pytest
import upstream
from flash_attn_rocm.library import plans
from flash_attn_rocm.suite.backward_cases import kernels_of
from flash_attn_rocm.suite.forward_cases import Kernel
from flash_attn_rocm.suite.rule import found_gradients
from flash_attn_rocm.suite.target import BACKWARD_OP, FUSED_OP
from flash_attn_rocm.values import paths
from here import ARCH, BACKWARD, FORWARD, FUSED, FUSED_FEATURES, LARGE
from shares import FULL


def forward_cases():
    """Those with kernels for their head dim: all, or without LARGE those up to the largest one."""
    most = max(head_dim for _, head_dim in FORWARD)
    return [case for case in upstream.cases(full=FULL) if LARGE or case.head_dim <= most]


@pytest.mark.divided
@pytest.mark.parametrize("case", forward_cases(), ids=str)
def test_upstreams_cases(target, shown, case):
    verdict = upstream.run(
        case, target.device, lambda function, *given, **options: target.attend(function, *given, **options)[0]
    )
    padded = plans.padded_head_dim(ARCH, case.dtype, case.head_dim)
    assert (case.dtype, padded) in FORWARD
    instance = target.answering(f"fa_fwd_{case.dtype}_d{padded}")
    shown.compared(instance, str(case), verdict.error, verdict.allowed)
    assert not verdict.wrong


def gradient_cases():
    """Each case with kernels, separate or fused: with FA_FULL with both, where there are."""
    for number, case in enumerate(upstream.gradient_cases(full=FULL) if BACKWARD else ()):
        padded = plans.padded_head_dim(ARCH, case.dtype, case.head_dim, plans.BACKWARD)
        if (case.dtype, padded) not in BACKWARD:
            continue
        featured = case.alibi or case.softcap or case.dropout_p
        fused = (case.dtype, padded) in (FUSED_FEATURES if featured else FUSED)
        ops = [BACKWARD_OP, FUSED_OP] if fused else [BACKWARD_OP]
        for op in ops if FULL else [ops[number % len(ops)]]:
            yield pytest.param(case, Kernel(op, case.dtype, padded), id=f"{op}-{case}")


@pytest.mark.divided
@pytest.mark.parametrize(("case", "kernel"), [*gradient_cases()])
def test_gradients_of_upstreams_cases(target, shown, monkeypatch, case, kernel):
    path = paths.FUSED if kernel.op == FUSED_OP else paths.SEPARATE
    monkeypatch.setenv(plans.BACKWARD_VARIABLE, path)
    launched = kernels_of(kernel)
    verdicts = upstream.run_gradients(case, target.device, lambda function: target.attend(function)[0])
    assert not target.kernels or target.kernels[-3:] == launched
    found_gradients(shown, {"dq": str(kernel), "dk": launched[1], "dv": launched[1]}, str(case), verdicts)
