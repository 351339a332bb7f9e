"""Chunks: a query sees keys of its chunk only. For kernels each chunk is a sequence."""

import random

import pytest
import torch
from archs import ARCH
from conftest import kernels_off
from exact import check
from flash_attn_rocm import (
    FlashAttnArgumentError,
    attention,
    explain,
    flash_attn_func,
    flash_attn_varlen_func,
)
from flash_attn_rocm.arguments.normal_form import BackwardCall, Inputs, Options
from flash_attn_rocm.reference import operators
from flash_attn_rocm.rewrite import chunks
from test_sinks import by_formula

pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")


def seen(rows, keys, chunk, *, causal=False, window=(-1, -1)):
    """(rows, keys): row i is at the position i + keys - rows."""
    at, key = torch.arange(rows)[:, None] + keys - rows, torch.arange(keys)
    left, right = (side if 0 <= side < keys else -1 for side in window)
    found = key // chunk == at.div(chunk, rounding_mode="floor")
    found &= (key >= at - left) if left >= 0 else True
    right = 0 if causal else right
    return found & (key <= at + right) if right >= 0 else found


def formula(q, k, v, shown, sink=None):
    none = torch.full((q.shape[2],), float("-inf"), dtype=q.dtype)
    return by_formula(q, k, v, none if sink is None else sink, shown)[0]


def drawn(seed):
    """Sizes and rules of a call. Often chunks are shorter than rows or keys, and sometimes one element."""
    source = random.Random(seed)
    torch.manual_seed(seed)
    rows, keys = source.randint(1, 40), source.randint(1, 40)
    chunk = source.choice([1, source.randint(1, 12), source.randint(1, 60)])
    windows = [(-1, -1), (source.randint(0, 9), source.randint(0, 9)), (-1, 3), (5, -1)]
    rules = {"causal": source.random() < 0.5, "window_size": source.choice(windows)}
    return rows, keys, chunk, rules


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("seed", range(20))
def test_output_and_gradients(seed, dtype):
    rows, keys, chunk, rules = drawn(seed)
    q, k, v = torch.randn(2, rows, 4, 8), *torch.randn(2, 2, keys, 2, 8)
    shown = seen(rows, keys, chunk, causal=rules["causal"], window=rules["window_size"])
    check(
        tuple(x.to(dtype) for x in (q, k, v)),
        ours=lambda q, k, v: attention(q, k, v, chunk=chunk, **rules),
        reference=lambda q, k, v: formula(q, k, v, shown),
    )


@pytest.mark.parametrize("blocks", [4, 512])
def test_blocks_of_rows_cut_across_chunks(monkeypatch, blocks):
    monkeypatch.setattr("flash_attn_rocm.reference.blocks.BLOCK_ROWS", blocks)
    q, k, v = torch.randn(3, 2, 37, 2, 8, dtype=torch.float64)
    for rows in (9, 37):
        out = attention(q[:, :rows], k, v, chunk=7)
        torch.testing.assert_close(out, formula(q[:, :rows], k, v, seen(rows, 37, 7)))
    out = attention(q, k[:, :9], v[:, :9], chunk=7)
    torch.testing.assert_close(out, formula(q, k[:, :9], v[:, :9], seen(37, 9, 7)))


def test_with_a_mask_sinks_and_dropout():
    q, k, v = torch.randn(3, 2, 21, 4, 8, dtype=torch.float64)
    mask, sink = torch.rand(2, 4, 21, 21) < 0.7, torch.randn(4, dtype=torch.float64)
    out = attention(q, k, v, mask, chunk=8, sink=sink)
    torch.testing.assert_close(out, formula(q, k, v, mask & seen(21, 21, 8), sink))
    _, _, weights = attention(q, k, v, dropout_p=0.3, chunk=8, return_attn_probs=True)
    assert (weights[:, :, ~seen(21, 21, 8)] == 0).all()
    assert (weights[:, :, seen(21, 21, 8)] != 0).all()


def test_packed_sequences_count_from_their_own_first_key():
    q, k, v = torch.randn(3, 30, 2, 8, dtype=torch.float64)
    ends = torch.tensor([0, 13, 13, 30], dtype=torch.int32)
    out = flash_attn_varlen_func(q, k, v, ends, ends, 17, 17, causal=True, chunk=5)
    for begin, end in ((0, 13), (13, 30)):
        some = [x[None, begin:end] for x in (q, k, v)]
        torch.testing.assert_close(out[None, begin:end], attention(*some, causal=True, chunk=5))


@pytest.mark.parametrize("wide", [21, 22, 2**31, 2**70])
def test_one_chunk_for_all_keys_is_none(wide):
    q, k, v = torch.randn(3, 2, 21, 4, 8, dtype=torch.float64)
    assert torch.equal(attention(q, k, v, chunk=wide), flash_attn_func(q, k, v))
    assert not chunks.divide(Inputs(q, k, v), Options(1.0, max_seqlen_q=21, max_seqlen_k=21, chunk=wide))


@pytest.mark.parametrize(
    ("chunk", "words"),
    [
        (-1, "chunk: expected an integer of 0 (none) or more, got -1"),
        (2.5, "chunk: expected an integer of 0 (none) or more, got 2.5"),
        (True, "chunk: expected an integer of 0 (none) or more, got True"),
        (None, "chunk: expected an integer of 0 (none) or more, got None"),
    ],
)
def test_wrong_chunks(qkv, chunk, words):
    with pytest.raises(FlashAttnArgumentError) as caught:
        attention(*qkv, chunk=chunk)
    assert words in str(caught.value)


def test_pages_have_none():
    q, pages = torch.zeros(3, 2, 8).half(), torch.zeros(2, 16, 2, 8).half()
    ends, table = torch.tensor([0, 3], dtype=torch.int32), torch.zeros(1, 2, dtype=torch.int32)
    with pytest.raises(FlashAttnArgumentError, match="chunk: cannot be combined with block_table"):
        flash_attn_varlen_func(q, pages, pages, ends, ends, 3, 3, block_table=table, chunk=2)


def strided(*shape, dtype):
    """transformers' layout: heads before rows."""
    return torch.randn(shape[0], shape[2], shape[1], shape[3]).to(dtype).transpose(1, 2)


@pytest.mark.parametrize("slopes", [None, (4,), (2, 4)])
@pytest.mark.parametrize("seed", range(20))
def test_what_kernels_are_told_is_the_same(asked, seed, slopes):
    rows, keys, chunk, rules = drawn(100 + seed)
    given = [
        strided(2, n, heads, 64, dtype=torch.float16).requires_grad_()
        for n, heads in ((rows, 4), (keys, 2), (keys, 2))
    ]
    sink = torch.randn(4, requires_grad=True)
    given.append(sink)
    more = {"chunk": chunk, "alibi_slopes": None if slopes is None else torch.rand(slopes), **rules}
    found = results(given, more)
    assert all(options.chunk in (0, chunk) for _, options in asked)
    if rows <= keys <= chunk:
        assert all(inputs.cu_seqlens_q is None for inputs, _ in asked)
    else:
        assert all(options.chunk == 0 for _, options in asked)
        assert all(options.max_seqlen_q <= chunk and options.max_seqlen_k <= chunk for _, options in asked)
    assert len(asked) == 2
    kernels_off(asked)
    for a, b in zip(found, results(given, more), strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a.float(), b.float(), rtol=2**-9, atol=2**-8)


def results(given, more):
    """out, the log-sum-exp and all gradients."""
    *qkv, sink = given
    out, lse, _ = attention(*qkv, sink=sink, return_attn_probs=True, **more)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(7)).to(out.dtype)
    return [out.detach(), lse, *torch.autograd.grad(out, given, weights)]


def test_packed_sequences_on_kernels(asked):
    q, k, v = (torch.randn(30, heads, 64).half() for heads in (4, 2, 2))
    ends_q = torch.tensor([0, 13, 13, 30], dtype=torch.int32)
    ends_k = torch.tensor([0, 5, 11, 30], dtype=torch.int32)
    leaves = [x.requires_grad_() for x in (q, k, v)]

    def run():
        cut = (ends_q, ends_k, 17, 19)
        out, lse, _ = flash_attn_varlen_func(*leaves, *cut, causal=True, chunk=6, return_attn_probs=True)
        return [out, lse, *torch.autograd.grad(out.float().square().sum(), leaves)]

    found = run()
    assert [options.max_seqlen_q for _, options in asked] == [6, 6]
    kernels_off(asked)
    for a, b in zip(found, run(), strict=True):
        torch.testing.assert_close(a.float(), b.float(), rtol=2**-9, atol=2**-8)


def test_explain_names_the_kernels(qkv, kernels_on):
    kernels_on(ARCH)
    found = explain(attention, *qkv, causal=True, chunk=3)
    assert found
    assert found.backward in {"separate", "fused"}
    mask = torch.ones(5, 7).bool()
    assert not explain(attention, *qkv, mask, chunk=3)


def test_an_empty_batch_and_no_keys(asked):
    q, k = torch.zeros(0, 5, 2, 64).half(), torch.zeros(0, 7, 2, 64).half()
    assert attention(q, k, k, chunk=2).shape == q.shape
    q, k = torch.ones(2, 5, 2, 64).half(), torch.ones(2, 0, 2, 64).half()
    out, lse, _ = attention(q, k, k, chunk=2, return_attn_probs=True)
    assert (out == 0).all()
    assert lse.isposinf().all()


def test_gradients_of_the_operator_have_the_shapes_that_it_says():
    q, k, v = torch.randn(3, 2, 9, 2, 64).half()
    inputs = Inputs(q, k, v, sink=torch.zeros(2))
    options = Options(0.125, max_seqlen_q=9, max_seqlen_k=9, chunk=4)
    out, lse, _ = operators.forward(inputs, options, None, want_probabilities=False)
    call = BackwardCall(out, out, lse, inputs, options)
    for real, fake in zip(operators.backward(call), operators.fake_gradients(inputs, 0), strict=True):
        assert (real.shape, real.dtype) == (fake.shape, fake.dtype)
