"""Upstream's own tests of the public functions at sizes for an emulator (see tests/upstream.py).

A few cases represent all; with FA_FULL=1 in the environment all of them run.
"""

import os

import pytest
import upstream
from target import FORWARD

FULL = os.environ.get("FA_FULL", "") not in {"", "0"}


@pytest.mark.parametrize("case", upstream.cases(full=FULL), ids=str)
def test_upstreams_cases(target, shown, case):
    verdict = upstream.run(
        case, target.device, lambda function, *given, **options: target.attend(function, *given, **options)[0]
    )
    padded = min(d for dtype, d in FORWARD if dtype == case.dtype and d >= case.head_dim)
    instance = target.answering(f"fa_fwd_{case.dtype}_d{padded}")
    shown.compared(instance, str(case), verdict.error, verdict.allowed)
    assert not verdict.wrong
