"""Head dims above 256: kernels whose waves divide it, through the public functions (see rule.py)."""

import warnings

import pytest
import torch
from flash_attn_rocm import (
    FlashAttnFallbackWarning,
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
    set_strict,
)
from flash_attn_rocm.suite.rule import DTYPES, Rules, Sequence, judge
from here import WIDE

CAUSAL = Rules(right=0)
# Padded to the next kernel's, one element above the others' limit, head dims of known models, and rows of one
# and of several workgroups.
CASES = {
    "one more than 256": (257, 40, 40, (4, 2), CAUSAL),
    "image decoder": (512, 150, 150, (1, 1), Rules()),
    "global layer": (512, 33, 97, (6, 1), CAUSAL),
    "window": (320, 70, 130, (2, 2), Rules(40, 7)),
    "one query": (384, 1, 77, (4, 1), Rules()),
}


def tensors(target, dtype, head_dim, rows, keys, heads, *, batch=1):
    generator = torch.Generator().manual_seed(head_dim)
    sizes = ((rows, heads[0]), (keys, heads[1]), (keys, heads[1]))
    values = (torch.randn(batch, n, h, head_dim, generator=generator) for n, h in sizes)
    return [x.to(DTYPES[dtype]).to(target.device) for x in values]


def check(shown, target, case, dtype, sequences, rules):
    kernel = f"fa_fwd_wide_{dtype}_d512"
    assert target.runtime is None or target.kernels[-1] == kernel
    judge(shown, target.answering(kernel), case, sequences, rules)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [dtype for dtype, _ in WIDE])
def test_dense(target, shown, dtype, name):
    head_dim, rows, keys, heads, rules = CASES[name]
    q, k, v = tensors(target, dtype, head_dim, rows, keys, heads)
    options = {"window_size": (rules.left, rules.right)}
    (out, lse, _), _ = target.attend(flash_attn_func, q, k, v, return_attn_probs=True, **options)
    assert out.shape == q.shape
    check(shown, target, name, dtype, [Sequence(q[0], k[0], v[0], out[0], lse[0])], rules)


@pytest.mark.parametrize("dtype", [dtype for dtype, _ in WIDE])
def test_packed_sequences(target, shown, dtype):
    rows, keys = (5, 0, 40), (20, 7, 33)
    q, k, v = tensors(target, dtype, 320, sum(rows), sum(keys), (4, 2))
    q, k, v = q[0], k[0], v[0]
    ends = [
        torch.tensor([0, a, a + b, a + b + c], dtype=torch.int32, device=target.device)
        for a, b, c in (rows, keys)
    ]
    (out, lse, _), _ = target.attend(
        flash_attn_varlen_func, q, k, v, *ends, 40, 33, causal=True, return_attn_probs=True
    )
    cut = (q.split(rows), k.split(keys), v.split(keys), out.split(rows), lse.split(rows, dim=1))
    check(shown, target, "packed", dtype, [Sequence(*each) for each in zip(*cut, strict=True)], CAUSAL)


@pytest.mark.parametrize("dtype", [dtype for dtype, _ in WIDE])
@pytest.mark.parametrize("head_dim", [264, 512])
def test_a_cache_that_grows(target, shown, dtype, head_dim):
    """The new key of each sequence is written by the kernel for caches."""
    lengths, capacity = (50, 3), 64
    q, k, v = tensors(target, dtype, head_dim, 1, capacity, (4, 2), batch=2)
    new_k, new_v = (x[:, :1].contiguous() for x in (k, v))
    used = torch.tensor(lengths, dtype=torch.int32, device=target.device)
    (out, lse), kernels = target.attend(
        flash_attn_with_kvcache, q, k, v, new_k, new_v, cache_seqlens=used, causal=True,
        return_softmax_lse=True,
    )  # fmt: skip
    assert kernels is None or kernels[0] == f"fa_append_{dtype}"
    for b, length in enumerate(lengths):
        assert torch.equal(k[b, length], new_k[b, 0])
        assert torch.equal(v[b, length], new_v[b, 0])
    sequences = [Sequence(q[b], k[b, : n + 1], v[b, : n + 1], out[b], lse[b]) for b, n in enumerate(lengths)]
    check(shown, target, "cache", dtype, sequences, CAUSAL)


@pytest.fixture
def lenient():
    set_strict(False)
    yield
    set_strict(None)


@pytest.mark.usefixtures("lenient")
@pytest.mark.parametrize("dtype", [dtype for dtype, _ in WIDE])
def test_gradients_come_from_the_pytorch_implementation(target, dtype):
    q, k, v = (x.requires_grad_() for x in tensors(target, dtype, 512, 20, 30, (2, 1)))
    out, kernels = target.attend(flash_attn_func, q, k, v, causal=True)
    assert kernels is None or kernels == (f"fa_fwd_wide_{dtype}_d512",)
    dout = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlashAttnFallbackWarning)  # said once for both dtypes
        found = torch.autograd.grad(out, (q, k, v), dout)
    leaves = [x.detach().double().requires_grad_() for x in (q, k, v)]
    several = [x.repeat_interleave(2, dim=2) for x in leaves[1:]]
    seen = torch.ones(20, 30, dtype=torch.bool, device=target.device).tril(10)
    scores = torch.einsum("bqhd,bkhd->bhqk", leaves[0], several[0]) * 512**-0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    exact = torch.autograd.grad(torch.einsum("bhqk,bkhd->bqhd", weights, several[1]), leaves, dout.double())
    for one, other in zip(found, exact, strict=True):
        assert (one.double() - other).abs().max() <= 8 * torch.finfo(one.dtype).eps * other.abs().max()
