"""Dense and packed sequences, with gradients, against the definition: drawn calls of short sequences."""

import random

import flash_attn_interface as fa3
import pytest
import torch
from exact import attend, close
from flash_attn_3 import _forward

SEEDS = range(80)


def drawn(source):
    """heads of q and of k, headdim of v, and rules. Windows and chunks are often shorter than sequences."""
    nheads_k = source.choice([1, 2])
    windows = [(-1, -1), (source.randint(0, 9), source.randint(0, 9)), (-1, source.randint(0, 20))]
    windows.append((source.randint(0, 20), -1))
    rules = {
        "causal": source.random() < 0.5, "window_size": source.choice(windows),
        "attention_chunk": source.choice([0, 0, source.randint(1, 12), 2**40]),
    }  # fmt: skip
    nheads = nheads_k * source.choice([1, 3])
    if source.random() < 0.4:
        rules["s_aux"] = torch.randn(nheads, dtype=torch.float64, requires_grad=True)
    return nheads, nheads_k, source.choice([8, 5]), rules


def leaves(*shapes):
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def compare(found, wanted, tensors, rules):
    """out, the log-sum-exp and all gradients.

    The definition has no gradient for keys hidden from all rows.
    """
    tensors = [*tensors, *([rules["s_aux"]] if "s_aux" in rules else [])]
    for one, other in zip(found, wanted, strict=True):
        close(one.detach(), other.detach())
    weights = torch.randn_like(wanted[0])
    own = torch.autograd.grad(found[0], tensors, weights)
    exact = torch.autograd.grad(wanted[0], tensors, weights, allow_unused=True)
    for one, other, x in zip(own, exact, tensors, strict=True):
        close(one, torch.zeros_like(x) if other is None else other)


@pytest.mark.parametrize("seed", SEEDS)
def test_dense(seed):
    source = random.Random(seed)
    torch.manual_seed(seed)
    nheads, nheads_k, of_v, rules = drawn(source)
    batch, rows, keys = source.randint(1, 3), source.randint(1, 12), source.randint(1, 12)
    q, k, v = leaves((batch, rows, nheads, 8), (batch, keys, nheads_k, 8), (batch, keys, nheads_k, of_v))
    found = fa3.flash_attn_func(q, k, v, **rules, return_attn_probs=True)
    each = [attend(*x, **rules) for x in zip(q, k, v, strict=True)]
    compare(found, [torch.stack(x) for x in zip(*each, strict=True)], (q, k, v), rules)


@pytest.mark.parametrize("seed", SEEDS)
def test_packed(seed):
    source = random.Random(1000 + seed)
    torch.manual_seed(seed)
    nheads, nheads_k, of_v, rules = drawn(source)
    batch = source.randint(1, 3)
    rows, keys = ([source.randint(0, 9) for _ in range(batch)] for _ in range(2))
    used = [[source.randint(0, n) for n in each] if source.random() < 0.5 else None for each in (rows, keys)]
    q, k, v = leaves((sum(rows), nheads, 8), (sum(keys), nheads_k, 8), (sum(keys), nheads_k, of_v))
    found = fa3.flash_attn_varlen_func(
        q, k, v, *map(cumulative, (rows, keys)), max(rows) + source.randint(0, 2),
        max(keys) + source.randint(0, 2), *(None if n is None else int32(n) for n in used), **rules,
        return_attn_probs=True,
    )  # fmt: skip
    outs, lses = [], []
    split = zip(q.split(rows), k.split(keys), v.split(keys), strict=True)
    for b, (one_q, one_k, one_v) in enumerate(split):
        n, m = (rows if used[0] is None else used[0])[b], (keys if used[1] is None else used[1])[b]
        out, lse = attend(one_q[:n], one_k[:m], one_v[:m], **rules)
        outs += [out, out.new_zeros(rows[b] - n, nheads, of_v)]
        lses += [lse, lse.new_full((nheads, rows[b] - n), -torch.inf)]
    compare(found, (torch.cat(outs), torch.cat(lses, 1)), (q, k, v), rules)


def int32(values):
    return torch.tensor(values, dtype=torch.int32)


def cumulative(lengths):
    return int32([sum(lengths[:n]) for n in range(len(lengths) + 1)])


@pytest.mark.parametrize("kind", ["three", "heads"])
def test_one_tensor_for_all(kind):
    torch.manual_seed(0)
    shape, given = ((2, 7, 3, 4, 8), {}) if kind == "three" else ((2, 7, 8, 8), {"num_heads_q": 4})
    qkv = torch.randn(shape, dtype=torch.float64)
    q, k, v = qkv.unbind(2) if kind == "three" else qkv.split([4, 2, 2], 2)
    rules = {"causal": True, "attention_chunk": 3}
    close(fa3.flash_attn_qkvpacked_func(qkv, **rules, **given), fa3.flash_attn_func(q, k, v, **rules))


@pytest.mark.parametrize("shape", [(2, 7, 2, 4, 8), (2, 7, 9, 8)])
def test_a_tensor_that_cannot_be_split(shape):
    with pytest.raises(ValueError, match=r"qkv: expected shape \(batch, seqlen, 3, nheads, headdim\), or of"):
        fa3.flash_attn_qkvpacked_func(torch.zeros(shape), num_heads_q=4)


def test_a_batch_of_nothing():
    q, k, v = (torch.zeros(0, 5, 2, 8, requires_grad=True) for _ in range(3))
    out, lse = fa3.flash_attn_func(q, k, v, attention_chunk=2, return_attn_probs=True)
    assert (out.shape, lse.shape) == ((0, 5, 2, 8), (0, 2, 5))


def test_chunks_are_short_sequences_of_kernels(monkeypatch):
    """No piece has more rows or keys than a chunk, so no kernel looks at another chunk's."""
    calls = []
    original = _forward.flash_attn_varlen_func
    monkeypatch.setattr(
        _forward, "flash_attn_varlen_func", lambda *a, **n: calls.append(a) or original(*a, **n)
    )
    q, k, v = (torch.randn(2, 20, 2, 8) for _ in range(3))
    fa3.flash_attn_func(q, k, v, attention_chunk=8)
    [call] = calls
    assert call[3].tolist() == call[4].tolist() == [0, 0, 8, 16, 20, 20, 28, 36, 40]
    assert call[5:7] == (8, 8)


def test_a_plain_call_is_one_call_of_flash_attn_rocm(monkeypatch):
    calls = []
    original = _forward.flash_attn_func
    monkeypatch.setattr(_forward, "flash_attn_func", lambda *a, **n: calls.append(a) or original(*a, **n))
    q, k, v = (torch.randn(2, 20, 2, 8) for _ in range(3))
    fa3.flash_attn_func(q, k, v, causal=True, num_splits=3, pack_gqa=True, sm_margin=2)
    [call] = calls
    assert all(one is other for one, other in zip(call, (q, k, v), strict=True))
