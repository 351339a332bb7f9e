"""Counts the package's functions with ``causal`` between the public function and the launch."""

import sys
from pathlib import Path

import flash_attn_rocm
import pytest
import torch
from archs import ARCH
from flash_attn_rocm import flash_attn_func
from flash_attn_rocm.arguments.normal_form import Options
from flash_attn_rocm.library import plans
from flash_attn_rocm.serving import layouts

PACKAGE = str(Path(flash_attn_rocm.__file__).parent)
MOST = {"first": 17, "again": 6}
WITH_GRADIENTS = {"first": 19, "again": 5}


def holds(value):
    """Whether an argument has ``causal``: in Options, or as the True of a tuple or of keywords."""
    if isinstance(value, tuple):
        return isinstance(value, Options) or any(x is True or holds(x) for x in value)
    return isinstance(value, dict) and value.get("causal") is True


def passed(call):
    """The functions of the package that were passed ``causal``, one by one."""
    found = []

    def seen(frame, event, _argument):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            count = (
                code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
            )
            given = {name: frame.f_locals.get(name) for name in code.co_varnames[:count]}
            if given.get("causal") is True or any(map(holds, given.values())):
                found.append(code.co_qualname)

    sys.setprofile(seen)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found[: found.index("launch") + 1]


@pytest.mark.parametrize(("gradients", "most"), [(False, MOST), (True, WITH_GRADIENTS)])
def test_frames_of_causal(host_fwd, kernels_on, gradients, most):
    kernels_on(ARCH)
    q, k, v = (torch.randn(1, 8, 2, 64).half().requires_grad_(gradients) for _ in range(3))
    for time in most:
        found = passed(lambda: flash_attn_func(q, k, v, causal=True))
        assert found[0] == "flash_attn_func"
        assert len(found) <= most[time], "\n".join(found)


def test_the_plan_is_made_once(host_fwd, kernels_on, monkeypatch):
    kernels_on(ARCH)
    asked = []
    monkeypatch.setattr(layouts, "plan", lambda *given: (asked.append(given), plans.plan(*given))[1])
    q, k, v = (torch.randn(1, 8, 2, 64).half() for _ in range(3))
    for _ in range(2):
        flash_attn_func(q, k, v, causal=True)
    assert len(asked) == 1
