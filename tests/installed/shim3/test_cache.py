"""flash_attn_with_kvcache against the definition: drawn calls, and the calls without a copy."""

import random
from types import SimpleNamespace

import flash_attn_interface as fa3
import pytest
import torch
from exact import attend, close, rotated
from flash_attn_3 import _cache

SEEDS = range(200)
HEAD_DIM, HALF = 32, 8


def randn(*shape):
    return torch.randn(shape, dtype=torch.float64)


def int32(values):
    return None if values is None else torch.tensor(values, dtype=torch.int32)


def cumulative(lengths):
    return int32([sum(lengths[:n]) for n in range(len(lengths) + 1)])


def drawn_cache(source, batch, nheads_k, of_v):
    """The two caches, and ``row(cache, b, position)``: the place of a key of sequence b in them."""
    page = source.choice([None, 1, 3, 16])
    capacity = 18 if page == 3 else source.choice([16, 32])
    indexed = source.random() < 0.4
    held = batch + 2 if indexed else batch
    index = source.sample(range(held), batch) if indexed else None
    blocks = held if page is None else held * capacity // page
    sizes = (blocks, capacity) if page is None else (blocks + 3, page)
    table = None if page is None else torch.randperm(blocks + 3)[:blocks].view(held, -1).int()
    rows = range(batch) if index is None else index

    def row(b, position):
        if table is None:
            return rows[b], position
        return int(table[rows[b], position // page]), position % page

    return SimpleNamespace(
        k=randn(*sizes, nheads_k, HEAD_DIM), v=randn(*sizes, nheads_k, of_v), capacity=capacity, row=row,
        given={"page_table": table, "cache_batch_idx": int32(index)},
    )  # fmt: skip


def drawn_rows(source, batch, most):
    """Lengths of each sequence, and whether they are packed. Dense ones are equal and at least 1."""
    packed = source.random() < 0.4
    equal = source.randint(1, most)
    return [source.randint(0, most) if packed else equal for _ in range(batch)], packed


def together(parts, packed):
    return torch.cat(parts) if packed else torch.stack(parts)


def drawn_call(seed):
    """A call and the inputs of its definition."""
    source = random.Random(seed)
    torch.manual_seed(seed)
    batch, nheads_k, of_v = source.randint(1, 3), source.choice([1, 2]), source.choice([HEAD_DIM, 5])
    cache = drawn_cache(source, batch, nheads_k, of_v)
    rows, packed = drawn_rows(source, batch, 6)
    new, new_packed = drawn_rows(source, batch, 5) if source.random() < 0.6 else ([0] * batch, False)
    have = [source.randint(0, cache.capacity - n) for n in new]
    windows = [(-1, -1), (source.randint(0, 9), source.randint(0, 9)), (-1, source.randint(0, 20))]
    rotary = any(new) and source.random() < 0.6
    return SimpleNamespace(
        cache=cache, rows=rows, packed=packed, new=new, new_packed=new_packed, have=have,
        pad=[source.randint(0, n) for n in have] if source.random() < 0.4 else None,
        rules={
            "causal": source.random() < 0.5, "window_size": source.choice(windows),
            "attention_chunk": source.choice([0, 0, source.randint(1, 12)]),
            "s_aux": randn(2 * nheads_k) if source.random() < 0.4 else None,
        },
        cos=randn(64, HALF) if rotary else None, sin=randn(64, HALF) if rotary else None,
        first=[n // 2 for n in have] if rotary and source.random() < 0.5 else None,
        interleaved=source.random() < 0.5,
        q=[randn(n, 2 * nheads_k, HEAD_DIM) for n in rows],
        k=[randn(n, nheads_k, HEAD_DIM) for n in new], v=[randn(n, nheads_k, of_v) for n in new],
        num_splits=source.choice([0, 1, 3]),
    )  # fmt: skip


def is_local(call):
    """Whether the mask depends on positions. Sides of a window without hidden keys are ignored."""
    left, right = call.rules["window_size"]
    wide = left >= call.cache.capacity - 1, right >= max(call.rows) - 1
    sides = [side >= 0 and not drops for side, drops in zip((left, right), wide, strict=True)]
    return call.rules["causal"] or call.rules["attention_chunk"] > 0 or any(sides)


def turned(call, b):
    """The rows and new keys of sequence b, rotated where angles are given."""
    q, k = call.q[b], call.k[b]
    if call.cos is None:
        return q, k
    first = (call.first or call.have)[b]
    rows, keys = torch.arange(len(q)) * int(is_local(call)), torch.arange(len(k))
    return [
        rotated(x, call.cos, call.sin, first + at, interleaved=call.interleaved)
        for x, at in ((q, rows), (k, keys))
    ]


def answer(call):
    """The definition's results: the caches after writing, out and the log-sum-exp."""
    k_cache, v_cache = call.cache.k.clone(), call.cache.v.clone()
    outs, lses = [], []
    for b in range(len(call.q)):
        q, k = turned(call, b)
        for n in range(len(k)):
            k_cache[call.cache.row(b, call.have[b] + n)] = k[n]
            v_cache[call.cache.row(b, call.have[b] + n)] = call.v[b][n]
        keys = range(call.pad[b] if call.pad else 0, call.have[b] + call.new[b])
        places = [call.cache.row(b, n) for n in keys]
        held = (torch.stack([x[p] for p in places]) if places else x[0, :0] for x in (k_cache, v_cache))
        out, lse = attend(q, *held, **call.rules)
        outs.append(out)
        lses.append(lse)
    lse = torch.cat(lses, 1) if call.packed else torch.stack(lses)
    return k_cache, v_cache, together(outs, call.packed), lse


def asked(call):
    new = any(call.new)
    return fa3.flash_attn_with_kvcache(
        together(call.q, call.packed), call.cache.k, call.cache.v,
        together(call.k, call.new_packed) if new else None,
        together(call.v, call.new_packed) if new else None,
        rotary_cos=call.cos, rotary_sin=call.sin, cache_seqlens=int32(call.have),
        cache_leftpad=int32(call.pad), **call.cache.given,
        cu_seqlens_q=cumulative(call.rows) if call.packed else None,
        cu_seqlens_k_new=cumulative(call.new) if new and call.new_packed else None,
        max_seqlen_q=max(call.rows) if call.packed else None, rotary_seqlens=int32(call.first),
        rotary_interleaved=call.interleaved, num_splits=call.num_splits, **call.rules,
        return_softmax_lse=True,
    )  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cache(seed):
    call = drawn_call(seed)
    k_cache, v_cache, out, lse = answer(call)
    found = asked(call)
    close(call.cache.k, k_cache)
    close(call.cache.v, v_cache)
    close(found[0], out)
    close(found[1], lse)
    assert [x.numel() for x in found[2:]] == [0, 0]


def paged(page, **given):
    """A call with pages: the answering function, and whether keys are copied first."""
    k, v = (randn(8, page, 1, HEAD_DIM) for _ in range(2))
    table = torch.arange(8, dtype=torch.int32).view(2, 4)
    q = given.pop("q", randn(2, 3, 2, HEAD_DIM))
    return fa3.flash_attn_with_kvcache(q, k, v, cache_seqlens=10, page_table=table, **given)


PACKED = {"q": randn(6, 2, HEAD_DIM), "cu_seqlens_q": cumulative([2, 4]), "max_seqlen_q": 4}
DIRECT = {
    "pages": (16, {}), "packed q": (16, PACKED),
    "rows of the table": (16, {"cache_batch_idx": int32([1, 0])}),
}  # fmt: skip
COPIED = {
    "short pages": (4, {}), "packed q, short pages": (4, PACKED), "a chunk": (16, {"attention_chunk": 4}),
    "keys in front": (16, {"cache_leftpad": int32([1, 2])}),
}  # fmt: skip


@pytest.mark.parametrize("name", [*DIRECT, *COPIED])
def test_what_is_copied(name, monkeypatch):
    copies = []
    original = _cache._by_sequence
    monkeypatch.setattr(_cache, "_by_sequence", lambda *a: copies.append(a) or original(*a))
    page, given = (DIRECT | COPIED)[name]
    paged(page, **given)
    assert bool(copies) == (name in COPIED)


def test_keys_that_do_not_fit_are_refused_and_not_written():
    k, v = randn(2, 8, 1, HEAD_DIM), randn(2, 8, 1, HEAD_DIM)
    before = k.clone(), v.clone()
    new = randn(5, 1, HEAD_DIM)
    with pytest.raises(ValueError, match="k: expected rows that fit into the cache's 8, got 9 with those"):
        fa3.flash_attn_with_kvcache(
            randn(2, 1, 2, HEAD_DIM), k, v, new, new, cache_seqlens=int32([7, 5]),
            cu_seqlens_k_new=cumulative([2, 3]),
        )  # fmt: skip
    assert torch.equal(k, before[0])
    assert torch.equal(v, before[1])


def test_new_rows_of_no_sequence_are_not_written():
    """As in serving with a graph: the tensors are longer than the sequences."""
    k, v = torch.zeros(2, 8, 1, HEAD_DIM), torch.zeros(2, 8, 1, HEAD_DIM)
    fa3.flash_attn_with_kvcache(
        torch.ones(6, 2, HEAD_DIM), k, v, torch.ones(6, 1, HEAD_DIM), torch.ones(6, 1, HEAD_DIM),
        cache_seqlens=0, cu_seqlens_q=cumulative([1, 2]), cu_seqlens_k_new=cumulative([1, 2]), max_seqlen_q=2,
        rotary_cos=torch.ones(3, HALF), rotary_sin=torch.zeros(3, HALF),
    )  # fmt: skip
    assert k[..., 0, 0].tolist() == [[1, 0, 0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"k": randn(2, 1, 1, HEAD_DIM)}, "v, cache_seqlens: expected where new keys are given, got None"),
        ({"rotary_cos": randn(9, HALF)}, "rotary_sin, k: expected where rotary_cos or rotary_sin is given"),
        ({"attention_chunk": -1}, "attention_chunk: expected an integer of 0 .none. or more, got -1"),
        ({"attention_chunk": 2, "cache_seqlens": torch.ones(2)}, r"seqused_k: expected torch.int32 \(2,\)"),
        ({"cu_seqlens_q": cumulative([1, 1])}, "max_seqlen_q: expected an integer, got None"),
    ],
)
def test_arguments_that_break_the_rules(given, words):
    k, v = randn(2, 8, 1, HEAD_DIM), randn(2, 8, 1, HEAD_DIM)
    q = randn(2, 2, HEAD_DIM) if "cu_seqlens_q" in given else randn(2, 1, 2, HEAD_DIM)
    with pytest.raises(ValueError, match=words):
        fa3.flash_attn_with_kvcache(q, k, v, **given)


def coded_cache(per_key):
    """Two sequences over pages of codes, their descales, and what they are."""
    found, table = [], int32([[2, 0], [3, 1]])
    for _ in "kv":
        codes = torch.randn(2, 32, 2, HEAD_DIM).to(torch.float8_e4m3fn)
        pages = torch.empty(4, 16, 2, HEAD_DIM, dtype=torch.uint8)
        pages[table.long()] = codes.view(torch.uint8).unflatten(1, (2, 16))
        descale = torch.rand(4, 16, 2) + 0.5 if per_key else torch.tensor([[0.5, 2.0]]).expand(2, 2)
        of = descale[table.long()].flatten(1, 2)[..., None] if per_key else descale[:, None, :, None]
        found.append((pages.view(torch.float8_e4m3fn), descale, codes.double() * of))
    return *zip(*found, strict=True), table


@pytest.mark.parametrize("per_key", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_cache_of_8_bits_beside_queries_of_16(packed, per_key):
    caches, descales, numbers, table = coded_cache(per_key)
    q = torch.randn(2, 3, 4, HEAD_DIM).half()
    cut = {"cu_seqlens_q": int32([0, 3, 6]), "max_seqlen_q": 3} if packed else {}
    found = fa3.flash_attn_with_kvcache(
        q.flatten(0, 1) if packed else q, *caches, cache_seqlens=int32([30, 5]), page_table=table,
        causal=True, k_descale=descales[0], v_descale=descales[1], **cut,
    )  # fmt: skip
    wanted = fa3.flash_attn_with_kvcache(q.double(), *numbers, cache_seqlens=int32([30, 5]), causal=True)
    torch.testing.assert_close(found.view_as(wanted).double(), wanted, rtol=2**-10, atol=2**-10)


def test_new_keys_that_are_codes_are_copied():
    caches, descales, numbers, table = coded_cache(per_key=False)
    q, new = torch.randn(2, 1, 4, HEAD_DIM).half(), torch.randn(2, 1, 2, HEAD_DIM).to(torch.float8_e4m3fn)
    found = fa3.flash_attn_with_kvcache(
        q, *caches, new, new, cache_seqlens=int32([30, 5]), page_table=table, k_descale=descales[0],
        v_descale=descales[1],
    )  # fmt: skip
    for x, descale in zip(numbers, descales, strict=True):
        x[[0, 1], [30, 5]] = new[:, 0].double() * descale[..., None]
    wanted = fa3.flash_attn_with_kvcache(q.double(), *numbers, cache_seqlens=int32([31, 6]))
    torch.testing.assert_close(found.double(), wanted, rtol=2**-10, atol=2**-10)
