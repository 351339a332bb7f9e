"""Sequences of different lengths, and packed tensors, on CPU tensors."""

import itertools

import pytest
import torch
from exact import assert_log_sum_exp, check, plain
from flash_attn_rocm import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)

LENGTHS = {  # of queries and of keys. An empty one of each, short prompts, more queries than keys
    "ragged": ([5, 0, 17, 1, 3], [9, 4, 0, 33, 3]),
    "one": ([113], [203]),
    "rows_1_to_8": ([1, 2, 3, 4, 5, 6, 7, 8], [8, 7, 6, 5, 4, 3, 2, 1]),
    "all_empty": ([0, 0], [3, 0]),
}
NHEADS, NHEADS_K = 6, 2
pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")


def cumulative(lengths):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)


def packed(lengths, dtype, head_dim=40):
    q = torch.randn(sum(lengths[0]), NHEADS, head_dim)
    k, v = (torch.randn(sum(lengths[1]), NHEADS_K, head_dim) for _ in range(2))
    return tuple(x.to(dtype).requires_grad_() for x in (q, k, v))


def cut(lengths):
    return (*map(cumulative, lengths), *map(max, lengths))


def by_sequence(q, k, v, lengths, slopes=None, **rules):
    """The results of ``plain`` for each sequence, one after another."""
    ends = [[0, *itertools.accumulate(each)] for each in lengths]
    outs, lses = [], []
    for b in range(len(lengths[0])):
        rows, keys = (slice(end[b], end[b + 1]) for end in ends)
        own = slopes[b : b + 1] if slopes is not None and slopes.dim() == 2 else slopes
        out, lse = plain(
            q[None, rows], k[None, keys], v[None, keys], slopes=own, most=max(lengths[1]), **rules
        )
        outs.append(out[0])
        lses.append(lse[0])
    return torch.cat(outs), torch.cat(lses, dim=1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_output_and_gradients(dtype, name, causal):
    lengths = LENGTHS[name]
    check(
        packed(lengths, dtype),
        ours=lambda q, k, v: flash_attn_varlen_func(q, k, v, *cut(lengths), causal=causal),
        reference=lambda q, k, v: by_sequence(q, k, v, lengths, causal=causal)[0],
    )


RULES = {
    "window": ({"window_size": (3, 2)}, {"window": (3, 2)}),
    "causal_window": ({"window_size": (4, 0), "causal": True}, {"window": (4, 0), "causal": True}),
    "softcap": ({"softcap": 2.0, "causal": True}, {"softcap": 2.0, "causal": True}),
    "scale": ({"softmax_scale": 0.4}, {"scale": 0.4}),
}


@pytest.mark.parametrize("rules", RULES)
def test_features(rules):
    lengths = ([5, 0, 17, 1, 3], [9, 4, 21, 33, 3])
    given, wanted = RULES[rules]
    check(
        packed(lengths, torch.bfloat16),
        ours=lambda q, k, v: flash_attn_varlen_func(q, k, v, *cut(lengths), **given),
        reference=lambda q, k, v: by_sequence(q, k, v, lengths, **wanted)[0],
    )


@pytest.mark.parametrize("sizes", [(NHEADS,), (5, NHEADS)])
def test_alibi(sizes):
    slopes, lengths = torch.rand(sizes), LENGTHS["ragged"]
    check(
        packed(lengths, torch.float16),
        ours=lambda q, k, v: flash_attn_varlen_func(q, k, v, *cut(lengths), causal=True, alibi_slopes=slopes),
        reference=lambda q, k, v: by_sequence(q, k, v, lengths, causal=True, slopes=slopes)[0],
    )


def test_log_sum_exp_is_heads_by_rows():
    lengths = LENGTHS["ragged"]
    q, k, v = (x.detach() for x in packed(lengths, torch.float16))
    _, lse, probabilities = flash_attn_varlen_func(
        q, k, v, *cut(lengths), causal=True, return_attn_probs=True
    )
    exact = by_sequence(q.double(), k.double(), v.double(), lengths, causal=True)[1]
    assert lse.shape == (NHEADS, sum(lengths[0]))
    assert probabilities.numel() == 0
    assert_log_sum_exp(lse, exact, (q, k))


def test_rows_after_the_last_sequence_are_zero():
    q, k, v = (x.detach() for x in packed(([4], [6]), torch.float16))
    cu_q, cu_k = cumulative([3]), cumulative([5])
    out, lse, _ = flash_attn_varlen_func(q, k, v, cu_q, cu_k, 3, 5, return_attn_probs=True)
    assert (out[3] == 0).all()
    assert (lse[:, 3] == torch.inf).all()


def test_a_sequence_does_not_see_its_neighbours():
    lengths = LENGTHS["rows_1_to_8"]
    q, k, v = (x.detach() for x in packed(lengths, torch.bfloat16))
    expected = flash_attn_varlen_func(q, k, v, *cut(lengths), causal=True)
    torch.nan_to_num_(k[:8].fill_(torch.nan), nan=7.0)
    v[:8] = 9.0
    found = flash_attn_varlen_func(q, k, v, *cut(lengths), causal=True)
    assert torch.equal(found[1:], expected[1:])
    assert not torch.equal(found[:1], expected[:1])


@pytest.mark.parametrize("page", [16, 48, 256])
def test_paged_keys_give_the_same_bits(page):
    lengths = LENGTHS["ragged"]
    q, k, v = (x.detach() for x in packed(lengths, torch.float16))
    table, (k_pages, v_pages) = paged(lengths[1], page, k, v)
    expected = flash_attn_varlen_func(q, k, v, *cut(lengths), causal=True)
    found = flash_attn_varlen_func(q, k_pages, v_pages, *cut(lengths), causal=True, block_table=table)
    assert torch.equal(found, expected)


def paged(lengths, page, *tensors):
    """A table in a random order of blocks, and each tensor in such blocks. Unused rows hold NaN."""
    most = max(-(-length // page) for length in lengths) + 1
    table = torch.randperm(len(lengths) * most).view(len(lengths), most).int()
    caches = []
    for tensor in tensors:
        cache = tensor.new_full((table.numel(), page, *tensor.shape[1:]), torch.nan)
        row = 0
        for b, length in enumerate(lengths):
            for position in range(length):
                cache[table[b, position // page], position % page] = tensor[row]
                row += 1
        caches.append(cache)
    return table, caches


def test_there_is_no_gradient_through_pages():
    lengths = ([2], [3])
    q, k, v = packed(lengths, torch.float16)
    table, (k_pages, v_pages) = paged(lengths[1], 16, k.detach(), v.detach())
    out = flash_attn_varlen_func(q, k_pages, v_pages, *cut(lengths), block_table=table)
    with pytest.raises(RuntimeError, match=r"\(block_table\) is not defined"):
        out.sum().backward()


def test_dropout():
    lengths = ([5, 0, 12], [9, 4, 21])
    q, k, v = packed(lengths, torch.bfloat16)
    state = torch.get_rng_state()
    out, _, signed = flash_attn_varlen_func(q, k, v, *cut(lengths), dropout_p=0.3, return_attn_probs=True)
    assert signed.shape == (3, NHEADS, 12, 21)
    rows = [[0, *itertools.accumulate(each)] for each in lengths]

    def ours(q, k, v):
        torch.set_rng_state(state)
        return flash_attn_varlen_func(q, k, v, *cut(lengths), dropout_p=0.3)

    def reference(q, k, v):
        outs = []
        for b, (n, m) in enumerate(zip(*lengths, strict=True)):
            own = [
                x[None, r[b] : r[b + 1]] for x, r in zip((q, k, v), (rows[0], rows[1], rows[1]), strict=True)
            ]
            outs.append(plain(*own, kept=(signed[b : b + 1, :, :n, :m] > 0) / 0.7)[0][0])
        return torch.cat(outs)

    assert torch.equal(ours(q, k, v), out)
    check((q, k, v), ours=ours, reference=reference)


@pytest.mark.parametrize("rules", [{}, {"causal": True, "window_size": (7, 0)}])
def test_packed_arguments_are_their_parts(rules):
    qkv = torch.randn(2, 9, 3, 4, 32).half().requires_grad_()
    same_bits(
        qkv,
        lambda qkv: flash_attn_qkvpacked_func(qkv, **rules),
        lambda qkv: flash_attn_func(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], **rules),
    )
    q, kv = qkv.detach()[:, :5, 0], torch.randn(2, 9, 2, 2, 32).half().requires_grad_()
    same_bits(
        kv,
        lambda kv: flash_attn_kvpacked_func(q, kv, **rules),
        lambda kv: flash_attn_func(q, kv[:, :, 0], kv[:, :, 1], **rules),
    )


@pytest.mark.parametrize("rules", [{}, {"causal": True, "softcap": 3.0}])
def test_packed_arguments_of_ragged_sequences_are_their_parts(rules):
    lengths = [4, 0, 5]
    cu, most = cumulative(lengths), max(lengths)
    qkv = torch.randn(9, 3, 4, 32).half().requires_grad_()
    same_bits(
        qkv,
        lambda x: flash_attn_varlen_qkvpacked_func(x, cu, most, **rules),
        lambda x: flash_attn_varlen_func(x[:, 0], x[:, 1], x[:, 2], cu, cu, most, most, **rules),
    )
    q, cu_q, kv = torch.randn(6, 4, 32).half(), cumulative([1, 2, 3]), torch.randn(9, 2, 2, 32).half()
    same_bits(
        kv.requires_grad_(),
        lambda kv: flash_attn_varlen_kvpacked_func(q, kv, cu_q, cu, 3, most, **rules),
        lambda kv: flash_attn_varlen_func(q, kv[:, 0], kv[:, 1], cu_q, cu, 3, most, **rules),
    )


def same_bits(leaf, one, other):
    results = []
    for function in (one, other):
        out = function(leaf)
        results.append((out, *torch.autograd.grad(out.float().square().sum(), leaf)))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
