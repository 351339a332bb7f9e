"""v of another head dim than q and k: kernels take it directly or padded. Tests the reasons' words."""

import pytest
import torch
from archs import ARCH, archs_with
from exact import check, plain
from flash_attn_rocm import (
    attention,
    explain,
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
)

OWN, OWN_GRADIENTS = archs_with("fwd_uneven"), archs_with("bwd_dq_uneven")
needs_own = pytest.mark.skipif(not OWN, reason="the wheel has no such kernels")
WORDS = "head dim 128 of v with 192 of q and k: padded to 192; "


def tensors(rows=40, keys=50, of_q=192, of_v=128):
    sizes = ((rows, 4, of_q), (keys, 2, of_q), (keys, 2, of_v))
    return [torch.randn(2, *each).half() for each in sizes]


@needs_own
@pytest.mark.parametrize("arch", OWN)
def test_calls_are_explained(kernels_on, arch):
    kernels_on(arch)
    q, k, v = tensors()
    cut = [torch.tensor([0, n], dtype=torch.int32) for n in (40, 50)]
    for found in (
        explain(q, k, v, causal=True),
        explain(q, k, v, window_size=(5, 5)),
        explain(flash_attn_varlen_func, *(x[0] for x in (q, k, v)), *cut, 40, 50),
        explain(attention, q, k, v, chunk=24, causal=True),
        explain(attention, q, k, v, torch.ones(2, 1, 1, 50, dtype=torch.bool)),
    ):
        assert (found.path, found.splits, found.backward) == ("uneven", 1, "separate")
        assert found.reason == "a kernel for head_dim 192 and another one of v; keys are not split"


def test_others_are_padded(kernels_on):
    kernels_on(ARCH)
    q, k, v = tensors()
    few, *_ = tensors(rows=3)
    for found in (
        explain(q, k, v, softcap=3.0),
        explain(q, k, v, alibi_slopes=torch.rand(4)),
        explain(q, k, v, dropout_p=0.1),
        explain(few, k, v, causal=True),
    ):
        assert found.path in {"matrix", "tiled", "split"}
        assert found.reason.startswith(WORDS)
        assert found.backward == "separate"
    larger = explain(*tensors(of_q=64, of_v=96))
    assert larger.reason.startswith("head dim 96 of v with 64 of q and k: padded to 96; ")
    wide = explain(*tensors(of_q=64, of_v=300))
    assert (wide.path, wide.backward) == ("wide", "pytorch")


@pytest.mark.parametrize(("of_q", "of_v"), [(192, 128), (150, 100), (64, 32), (64, 80)])
def test_forward_and_backward(kernels_on, host_operators, of_q, of_v):
    kernels_on((OWN_GRADIENTS or [ARCH])[0])
    check(
        tensors(of_q=of_q, of_v=of_v),
        ours=lambda q, k, v: flash_attn_func(q, k, v, causal=True),
        reference=lambda q, k, v: plain(q, k, v, causal=True)[0],
    )
    forwards, backwards = host_operators
    pair = (192, 128) if OWN_GRADIENTS and of_q > 128 else None
    for given in (*forwards, *backwards):
        dims = given["q"].shape[-1], given["v"].shape[-1]
        assert pair in {None, dims}
        assert pair or dims[0] == dims[1]
        assert given["out"].shape[-1] == dims[1]
    assert forwards
    assert backwards


def test_a_call_again_takes_what_was_decided(kernels_on, host_operators):
    kernels_on((OWN_GRADIENTS or [ARCH])[0])
    for _ in range(2):
        q, k, v = (x.requires_grad_() for x in tensors())
        out = flash_attn_func(q, k, v, causal=True)
        assert out.shape == (2, 40, 4, 128)
        gradients = torch.autograd.grad(out.sum(), (q, k, v))
        assert [x.shape for x in gradients] == [q.shape, k.shape, v.shape]
    (first, again), backwards = host_operators
    assert first["v"].shape == again["v"].shape
    assert len(backwards) == 2


def test_caches_have_one_for_both(kernels_on, host_operators):
    kernels_on(ARCH)
    found = explain(flash_attn_with_kvcache, *tensors(), cache_seqlens=7)
    words = "the head dim of v is 128 and that of q and k 192, and caches have one for both"
    assert (found.path, found.reason) == ("pytorch", words)
    assert host_operators == ([], [])


def test_the_arch_without_such_kernels_pads(kernels_on):
    without = [arch for arch in archs_with("fwd") if arch not in OWN]
    for arch in without:
        kernels_on(arch)
        assert explain(*tensors(), causal=True).reason.startswith(WORDS)
