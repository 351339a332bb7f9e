"""Rows skipped by kernels of packed sequences are defined. Here kernels skip all, and new memory is NaN."""

import pytest
import torch
from archs import ARCH
from flash_attn_rocm import flash_attn_varlen_func, flash_attn_varlen_qkvpacked_func, raw

ENDS = torch.tensor([0, 3, 9], dtype=torch.int32)
RULES = (0.0, 0.125, False, False, -1, -1, 0.0, False)


@pytest.fixture(autouse=True)
def kernels_that_write_nothing(monkeypatch, kernels_on):
    def filled(tensor):
        return tensor.fill_(torch.nan) if tensor.is_floating_point() else tensor

    new_empty, empty_like = torch.Tensor.new_empty, torch.empty_like
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda self, *a, **k: filled(new_empty(self, *a, **k)))
    monkeypatch.setattr(torch, "empty_like", lambda like, **k: filled(empty_like(like, **k)))
    library = torch.library.Library("flash_attn_rocm", "IMPL")
    for name in ("fwd", "bwd"):
        library.impl(name, lambda *_arguments: None, "CPU")
    kernels_on(ARCH)
    yield
    library._destroy()


@pytest.mark.parametrize("head_dim", [64, 40])  # unpadded, and padded
def test_packed_sequences(head_dim):
    leaves = [torch.randn(9, 2, head_dim).half().requires_grad_() for _ in range(3)]
    for _ in range(2):  # the second call is known
        out, lse, _ = flash_attn_varlen_func(*leaves, ENDS, ENDS, 2, 2, return_attn_probs=True)
        gradients = torch.autograd.grad(out.sum(), leaves)
        assert lse.isposinf().all()
        assert not any(x.any() for x in (out, *gradients))


def test_packed_tensors():
    qkv = torch.randn(9, 3, 2, 64).half().requires_grad_()
    out = flash_attn_varlen_qkvpacked_func(qkv, ENDS, 2)
    assert not out.any()
    assert not torch.autograd.grad(out.sum(), qkv)[0].any()


def test_what_the_extension_returns():
    q, k, v = (torch.randn(9, 2, 64).half() for _ in range(3))
    out, lse, *_ = raw.varlen_fwd(q, k, v, None, ENDS, ENDS, None, None, None, None, 2, 2, *RULES)
    assert not out.any()
    assert lse.isposinf().all()
    found = raw.varlen_bwd(out, q, k, v, out, lse, None, None, None, ENDS, ENDS, None, 2, 2, *RULES)
    assert [x.any().item() for x in found] == [False] * 4
