"""The doctor's check of PyTorch's fused attention, here on the CPU's, and on broken ones."""

import re
import sys

import pytest
import torch
from flash_attn_rocm.diagnosis import fused, probe
from flash_attn_rocm.diagnosis.facts import Fused

CPU = torch.device("cpu")


def test_one_that_works():
    assert probe.probe("flash", CPU) == Fused("flash", "works")


def broken(monkeypatch, change):
    right = probe.scaled_dot_product_attention
    monkeypatch.setattr(
        probe, "scaled_dot_product_attention", lambda q, k, v, **o: change(right(q, k, v, **o), q, o)
    )
    return probe.probe("flash", CPU)


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, out):
        return out.clone()

    @staticmethod
    def backward(ctx, dout):
        return dout * 1.2


def only_bf16_causal(out, q, options):
    return out * 0 if q.dtype == torch.bfloat16 and options["is_causal"] else out


# Seen in released builds, except for the last two.
BROKEN = {
    "zeros": (lambda out, q, o: out * 0, "float16: out, dq, dk, dv wrong"),
    "nan": (lambda out, q, o: out * torch.nan, "float16: out, dq, dk, dv wrong"),
    "one case": (only_bf16_causal, "bfloat16 causal: out, dq, dk, dv wrong"),
    "gradients": (lambda out, q, o: WrongGradient.apply(out), "float16: dq, dk, dv wrong"),
    "a row": (lambda out, q, o: torch.cat([out[:, :, :-1], out[:, :, -1:] + 1], 2), "float16: out wrong"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_one_that_is_wrong(monkeypatch, name):
    change, words = BROKEN[name]
    assert broken(monkeypatch, change) == Fused("flash", "fails", words)


def test_one_that_raises(monkeypatch):
    def fail(*_given):
        message = "CUDA error: invalid argument\nCUDA kernel errors might be asynchronously reported"
        raise RuntimeError(message)

    assert broken(monkeypatch, fail) == Fused("flash", "fails", "float16: CUDA error: invalid argument")


def test_one_that_leaves_its_error_to_what_follows(monkeypatch):
    """TheRock #7992: the next kernel fails, whichever it is."""

    class Poisoned(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function is torch.Tensor.mul:
                message = "CUDA error: invalid argument"
                raise RuntimeError(message)
            return super().__torch_function__(function, types, args, kwargs or {})

    found = broken(monkeypatch, lambda out, q, o: out.as_subclass(Poisoned))
    assert found == Fused("flash", "fails", "float16: CUDA error: invalid argument")


SAYS = 'import json; print("noise"); print(json.dumps({"name": "x", "state": "works", "words": ""}))'


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (SAYS, Fused("x", "works")),
        ("import os; os.abort()", Fused("flash", "fails", "its process was ended by SIGABRT")),
        ("import sys; sys.exit('bad')", Fused("flash", "fails", "its process ended with status 1: bad")),
        ("print('[]')", Fused("flash", "fails", "its process ended with status 0: ")),
        ("import time; time.sleep(60)", Fused("flash", "fails", "it did not end within 1 s")),
    ],
)
def test_its_process_may_end_as_it_likes(monkeypatch, code, found):
    monkeypatch.setattr(fused, "NAMES", ("flash",))
    monkeypatch.setattr(fused, "LONGEST", 1 if "sleep" in code else 60)
    assert fused.look((sys.executable, "-c", code)) == (found,)


def test_its_processes_on_this_machine_find_no_gpu():
    found = fused.look()
    assert [(each.name, each.state) for each in found] == [("flash", "fails"), ("memory-efficient", "fails")]
    for each in found:
        assert re.match(r"its process ended with status 1: \w+Error: .*(CUDA|GPU)", each.words)
