"""Caches of 8 bits on CPU tensors: against float64 on the numbers that the codes are, and kernels' arguments.

PyTorch's own conversions say what a code is, and what a number becomes.
"""

import re
import warnings

import pytest
import torch
from archs import archs_with
from exact import largest, plain
from flash_attn_rocm import (
    FlashAttnArgumentError,
    FlashAttnFallbackWarning,
    explain,
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
    mla_decode,
)
from flash_attn_rocm.launch import latent
from flash_attn_rocm.machine import remembered
from flash_attn_rocm.values import tolerances

FORMATS = {
    torch.float8_e4m3fn: 448.0, torch.float8_e4m3fnuz: 240.0, torch.float8_e5m2: 57344.0, torch.int8: 127.0,
}  # fmt: skip
NONE, HEADS, KEYS = "none", "heads", "keys"
STORES = ("dense", "rows", "pages")
LENGTHS, PAGE, CAPACITY = (41, 7), 16, 48
QUIET = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
CODED = pytest.mark.needs_kernels("decode_8bit")
INT = {"dtype": torch.int32}


def numbers(codes):
    return codes.double()


def rounded(x, dtype):
    """The codes of numbers: saturated, and without -0."""
    x = x.clamp(-FORMATS[dtype], FORMATS[dtype])
    x = x.round() if dtype == torch.int8 else x
    codes = x.to(dtype)
    return codes if dtype == torch.int8 else torch.where(codes.float() == 0.0, 0.0, codes.float()).to(dtype)


class Cache:
    """Two sequences of random codes in a cache, and the numbers that they are, in float64."""

    def __init__(self, dtype, kind, store, head_dim=64, nheads_k=2):
        self.store, sizes = store, (2, CAPACITY, nheads_k, head_dim)
        self.codes, self.descales, self.numbers = [], [], []
        for _ in range(2):
            x = torch.randn(sizes)
            descale = torch.rand(sizes[:3] if kind == KEYS else (2, nheads_k)) + 0.1
            descale *= 3.0 / FORMATS[dtype] if kind != NONE else 1.0
            of = descale[..., None] if kind == KEYS else descale[:, None, :, None]
            of = torch.ones(()) if kind == NONE else of
            codes = rounded(x / of, dtype)
            self.codes.append(self.placed(codes.view(torch.uint8), 0x7F).view(dtype))
            self.descales.append(
                None
                if kind == NONE
                else descale
                if kind == HEADS
                else self.placed(descale[..., None], 1e6)[..., 0]
            )
            self.numbers.append(numbers(codes) * of.double())

    def placed(self, x, other):
        """In the cache's places, with ``other`` in rows that belong to no sequence."""
        if self.store == "dense":
            return x
        if self.store == "rows":
            whole = x.new_full((3, *x.shape[1:]), other)
            whole[2], whole[0] = x[0], x[1]
            return whole
        whole = x.new_full((7, PAGE, *x.shape[2:]), other)
        whole[self.table.long()] = x.unflatten(1, (3, PAGE))
        return whole

    @property
    def table(self):
        return torch.tensor([[5, 0, 3], [6, 2, 1]], **INT)

    @property
    def places(self):
        """The arguments that say where sequences are."""
        if self.store == "pages":
            return {"block_table": self.table}
        return {"cache_batch_idx": torch.tensor([2, 0], **INT)} if self.store == "rows" else {}

    def attend(self, q, lengths=LENGTHS, **options):
        """out and the log-sum-exp."""
        return flash_attn_with_kvcache(
            q, *self.codes, cache_seqlens=torch.tensor(lengths, **INT), return_softmax_lse=True,
            k_descale=self.descales[0], v_descale=self.descales[1], **self.places, **options,
        )  # fmt: skip


def holds(found, q, cache, lengths=LENGTHS, begins=(0, 0), *, widened=False, **rules):
    """out and the log-sum-exp of each sequence within the rule for a cache of 16 bits with these numbers.

    Keys that are ``widened`` are rounded to q's dtype, and scores lose as much.
    """
    for b, (begin, end) in enumerate(zip(begins, lengths, strict=True)):
        k, v = (x[b : b + 1, begin:end] for x in cache.numbers)
        exact, sums = plain(q[b : b + 1].double(), k, v, most=CAPACITY, **rules)
        low = plain(q[b : b + 1], k.to(q.dtype), v.to(q.dtype), most=CAPACITY, **rules)[0]
        bound = tolerances.allowed(largest(low, exact), terms=end, largest=v.abs().max().item())
        assert largest(found[0][b : b + 1], exact) <= bound
        scores = q[b].double().abs().amax((0, 1)) @ k.abs().amax((0, 1, 2)) * q.shape[-1] ** -0.5
        rounding = float(scores) * torch.finfo(q.dtype).eps / 2 if widened else 1e-5
        torch.testing.assert_close(found[1][b : b + 1].double(), sums, rtol=1e-5, atol=rounding)


@QUIET
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", [NONE, HEADS, KEYS])
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_a_cache_of_8_bits_is_the_numbers_of_its_codes(dtype, kind, store):
    cache = Cache(dtype, kind, store)
    for rows, kept in ((1, torch.float16), (20, torch.bfloat16)):
        q = torch.randn(2, rows, 4, 64).to(kept)
        holds(cache.attend(q, causal=True), q, cache, causal=True)
        holds(cache.attend(q, window_size=(9, 5), softcap=3.0), q, cache, window=(9, 5), softcap=3.0)


@QUIET
def test_keys_before_the_first_do_not_count():
    cache, q = Cache(torch.int8, KEYS, "rows"), torch.randn(2, 3, 4, 64).half()
    found = cache.attend(q, cache_leftpad=torch.tensor([5, 2], **INT), causal=True)
    holds(found, q, cache, begins=(5, 2), causal=True)


@QUIET
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_float64_queries(dtype):
    cache, q = Cache(dtype, HEADS, "dense"), torch.randn(2, 3, 4, 64, dtype=torch.float64)
    out, lse = cache.attend(q)
    for b, end in enumerate(LENGTHS):
        exact, sums = plain(q[b : b + 1], *(x[b : b + 1, :end] for x in cache.numbers))
        torch.testing.assert_close(out[b : b + 1], exact)
        torch.testing.assert_close(lse[b : b + 1], sums)


@QUIET
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", [NONE, HEADS, KEYS])
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_new_keys_are_rounded_on_the_way(dtype, kind, store):
    cache = Cache(dtype, kind, store)
    before = [x.clone() for x in cache.codes]
    q, k, v = (torch.randn(2, 3, heads, 64).half() * 2 for heads in (4, 2, 2))
    v[0, 0, 0, :3] = v.new_tensor([6e4, -6e4, -1e-7])  # too large, and -0 in most formats
    found = cache.attend(q, k=k, v=v, causal=True)
    for place, (x, codes, old) in enumerate(zip((k, v), cache.codes, before, strict=True)):
        descale = {NONE: torch.ones(2, 3, 2), KEYS: x.abs().amax(-1).float() / FORMATS[dtype]}.get(
            kind, cache.descales[place][:, None].expand(2, 3, 2) if kind == HEADS else None
        )
        wanted = rounded(x.float() / descale[..., None], dtype)
        bits, changed = old.view(torch.uint8).clone(), []
        for b, length in enumerate(LENGTHS):
            for i in range(3):
                at = (cache.table[b, (length + i) // PAGE], (length + i) % PAGE)
                row = (2, 0)[b] if store == "rows" else b
                where = tuple(map(int, at)) if store == "pages" else (row, length + i)
                bits[where] = wanted[b, i].view(torch.uint8)
                changed.append(where)
                if kind == KEYS:
                    torch.testing.assert_close(cache.descales[place][where], descale[b, i])
            cache.numbers[place][b, length : length + 3] = numbers(wanted[b]) * descale[b][..., None].double()
        assert torch.equal(codes.view(torch.uint8), bits)
        if dtype != torch.int8:
            assert not (torch.stack([codes[at].view(torch.uint8) for at in changed]) == 0x80).any()
    holds(found, q, cache, lengths=[length + 3 for length in LENGTHS], causal=True)


def varlen(cache, q, ends_q, most_q, **options):
    """Packed queries over pages, with each descale that the cache has."""
    ends = torch.tensor([0, LENGTHS[0], sum(LENGTHS)], **INT)
    return flash_attn_varlen_func(
        q, *cache.codes, torch.tensor(ends_q, **INT), ends, most_q, max(LENGTHS), causal=True,
        block_table=cache.table, k_descale=cache.descales[0], v_descale=cache.descales[1], **options,
    )  # fmt: skip


@QUIET
@pytest.mark.parametrize("rows", [(1, 1), (20, 5)])
def test_packed_queries_over_pages_with_one_scale_of_all_as_vllm_calls(rows):
    cache, ends = Cache(torch.float8_e4m3fn, NONE, "pages"), (0, rows[0], sum(rows))
    scales = torch.tensor(0.5), torch.tensor(2.0)
    cache.descales = [scale.expand(2, 2) for scale in scales]
    cache.numbers = [x * scale.double() for x, scale in zip(cache.numbers, scales, strict=True)]
    assert all(x.stride() == (0, 0) for x in cache.descales)
    q = torch.randn(sum(rows), 4, 64).half()
    with torch.no_grad():
        out, lse, _ = varlen(cache, q, ends, max(rows), return_attn_probs=True)
    for b, length in enumerate(LENGTHS):
        own = slice(ends[b], ends[b + 1])
        k, v = (x[b : b + 1, :length] for x in cache.numbers)
        exact, sums = plain(q[None, own].double(), k, v, causal=True)
        low = plain(q[None, own], k.half(), v.half(), causal=True)[0]
        bound = tolerances.allowed(largest(low, exact), terms=length, largest=v.abs().max().item())
        assert largest(out[None, own], exact) <= bound
        torch.testing.assert_close(lse[None, :, own].double(), sums, rtol=1e-5, atol=1e-5)


def kvcache(**change):
    q, cache = torch.zeros(2, 1, 4, 64).half(), torch.zeros(2, 32, 2, 64, dtype=torch.float8_e4m3fn)
    return flash_attn_with_kvcache(**{"q": q, "k_cache": cache, "v_cache": cache.clone()} | change)


ONES, OF_KEYS = torch.ones(2, 2), torch.ones(2, 32, 2)
EIGHT = "torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.int8"
NUMBERS = {name: torch.zeros(2, 32, 2, 64).half() for name in ("k_cache", "v_cache")}
NEW = {name: torch.zeros(2, 1, 2, 64).half() for name in "kv"} | {"cache_seqlens": 3}
WAY_OUT = "pass (x.float() * descale).to(torch.bfloat16)"
NO_Q = (
    "q: expected dtype torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e4m3fnuz, or without "
    f"kernels torch.float32 or torch.float64, got torch.float8_e5m2; {WAY_OUT}"
)
ONE_KIND = "v_descale: expected one for what k_descale has one, for each head or for each key"
SHAPE = (
    "{}_descale: expected shape (2, 2), one for each head of a sequence, or (2, 32, 2), one for each key, "
    "got {}"
)
OWN = "{}_descale: expected memory for each key, because new keys write theirs, got a stride of 0"
ALONE = "{}_descale: expected only beside a cache of 8 bits, got one beside torch.float16"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"q": torch.zeros(2, 1, 4, 64, dtype=torch.float8_e5m2)}, [NO_Q]),
        (
            {"v_cache": torch.zeros(2, 32, 2, 64, dtype=torch.int8)},
            ["v_cache: expected dtype torch.float8_e4m3fn like k_cache, got torch.int8"],
        ),
        (
            NUMBERS | {"k_cache": torch.zeros(2, 32, 2, 64, dtype=torch.float8_e5m2fnuz)},
            [f"k_cache: expected dtype torch.float16 like q, or {EIGHT}, got torch.float8_e5m2fnuz"],
        ),
        ({"k_descale": ONES}, ["v_descale: expected beside k_descale, got None"]),
        ({"v_descale": ONES}, ["k_descale: expected beside v_descale, got None"]),
        (
            {"k_descale": 0.5, "v_descale": torch.ones(2, 2, dtype=torch.float64)},
            [
                "k_descale: expected a torch.float32 tensor (2, 2) or (2, 32, 2), got float",
                "v_descale: expected dtype torch.float32, got torch.float64",
            ],
        ),
        (
            {"k_descale": torch.ones(1), "v_descale": torch.ones(2, 32, 4)},
            [SHAPE.format("k", "(1,)"), SHAPE.format("v", "(2, 32, 4)"), ONE_KIND],
        ),
        ({"k_descale": ONES, "v_descale": OF_KEYS}, [ONE_KIND]),
        (NUMBERS | {"k_descale": ONES, "v_descale": ONES}, [ALONE.format(name) for name in "kv"]),
        (
            NEW | {"k": torch.zeros(2, 1, 2, 64, dtype=torch.float8_e4m3fn)},
            [f"k: expected dtype torch.float16 like q, got torch.float8_e4m3fn; {WAY_OUT}"],
        ),
        (
            NEW | {f"{name}_descale": torch.ones(1, 1, 1).expand(2, 32, 2) for name in "kv"},
            [OWN.format(name) for name in "kv"],
        ),
    ],
)
def test_wrong_arguments(change, words):
    with pytest.raises(FlashAttnArgumentError) as caught:
        kvcache(**change)
    assert [*caught.value.problems] == words


SHARED = "v_descale: expected memory of its own, because new keys write theirs, got k_descale"


def test_one_tensor_for_descales_that_are_written():
    with pytest.raises(FlashAttnArgumentError) as caught:
        kvcache(**NEW, k_descale=OF_KEYS, v_descale=OF_KEYS)
    assert [*caught.value.problems] == [SHARED]


@CODED
def test_one_tensor_for_descales_that_are_written_in_a_recalled_call(host_fwd, kernels_on):
    kernels_on(archs_with("decode_8bit")[0])
    for _ in range(2):
        kvcache(**NEW, k_descale=OF_KEYS.clone(), v_descale=OF_KEYS.clone())
    with pytest.raises(FlashAttnArgumentError, match=SHARED):
        kvcache(**NEW, k_descale=OF_KEYS, v_descale=OF_KEYS)


@QUIET
def test_a_step_of_0_along_one_head_shares_no_memory():
    cache, new = torch.zeros(2, 32, 1, 64, dtype=torch.int8), torch.ones(2, 1, 1, 64).half()
    descales = [torch.zeros(2, 32, 1).as_strided((2, 32, 1), (32, 1, 0)) for _ in "kv"]
    kvcache(
        k_cache=cache, v_cache=cache.clone(), k=new, v=new, cache_seqlens=3, k_descale=descales[0],
        v_descale=descales[1],
    )  # fmt: skip
    assert [x[0, 3].item() for x in descales] == pytest.approx([1 / 127] * 2)


def test_packed_keys_of_8_bits_are_refused():
    q, k = torch.zeros(5, 4, 64).half(), torch.zeros(7, 2, 64, dtype=torch.int8)
    ends = torch.tensor([0, 5], **INT), torch.tensor([0, 7], **INT)
    with pytest.raises(FlashAttnArgumentError) as caught:
        flash_attn_varlen_func(q, k, k, *ends, 5, 7)
    assert [each.partition(";")[0] for each in caught.value.problems] == [
        f"{name}: expected dtype torch.float16 like q, got torch.int8" for name in "kv"
    ]
    with pytest.raises(FlashAttnArgumentError, match=r"k: expected dtype .* got torch.int8; pass \(x.float"):
        flash_attn_func(q[None], k[None], k[None])


NO_GRADIENTS = (
    "q: expected no gradients beside a cache of 8 bits, which has none: call under torch.no_grad(), or pass "
    "detached tensors"
)
DROPPED = "dropout_p: expected 0.0 beside a cache of 8 bits, got 0.25"


def test_gradients_and_dropout_are_refused():
    cache, q = Cache(torch.int8, HEADS, "pages"), torch.zeros(5, 4, 64).half().requires_grad_()
    with pytest.raises(FlashAttnArgumentError) as caught:
        varlen(cache, q, (0, 2, 5), 3, dropout_p=0.25)
    assert [*caught.value.problems] == [NO_GRADIENTS, DROPPED]


@QUIET
def test_transforms_are_refused():
    cache, q = Cache(torch.int8, HEADS, "pages"), torch.zeros(3, 5, 4, 64).half()
    with pytest.raises(RuntimeError, match="8 bits has no derivative and no vmap\n  next: call it"):
        torch.func.vmap(lambda x: varlen(cache, x, (0, 2, 5), 3))(q)


@QUIET
@pytest.mark.parametrize("kind", [NONE, HEADS, KEYS])
def test_latent_attention(kind):
    q, cache = torch.randn(2, 3, 4, 576).half(), torch.randn(2, 40, 1, 576)
    descale = {NONE: None, HEADS: torch.rand(2, 1) + 0.5, KEYS: torch.rand(2, 40, 1) + 0.5}[kind]
    of = 1.0 if descale is None else descale[..., None] if kind == KEYS else descale[:, None, :, None]
    codes = rounded(cache / of, torch.float8_e4m3fn)
    k = numbers(codes) * of
    found = mla_decode(q, codes, torch.tensor([40, 9], **INT), kv_descale=descale)
    wanted = mla_decode(q.double(), k.double(), torch.tensor([40, 9], **INT))
    assert largest(found, wanted) <= 2**-9 * wanted.abs().max()


@pytest.mark.parametrize(
    ("descale", "words"),
    [
        (
            torch.ones(2, 2),
            "kv_descale: expected shape (2, 1), one for each head of a sequence, or (2, 40, 1)",
        ),
        (1.0, "kv_descale: expected a torch.float32 tensor (2, 1) or (2, 40, 1), got float"),
    ],
)
def test_wrong_descales_of_latent_attention(descale, words):
    q, cache = torch.zeros(2, 3, 4, 576).half(), torch.zeros(2, 40, 1, 576, dtype=torch.int8)
    with pytest.raises(FlashAttnArgumentError) as caught:
        mla_decode(q, cache, kv_descale=descale)
    (found,) = caught.value.problems
    assert found.startswith(words)


@QUIET
def test_torch_compile():
    cache, q = Cache(torch.float8_e4m3fn, KEYS, "pages"), torch.randn(2, 3, 4, 64).half()
    torch.compiler.reset()
    compiled = torch.compile(cache.attend, fullgraph=True, backend="aot_eager")
    assert all(torch.equal(a, b) for a, b in zip(compiled(q), cache.attend(q), strict=True))


@CODED
@pytest.mark.parametrize("kind", [NONE, HEADS, KEYS])
@pytest.mark.parametrize("store", STORES)
def test_few_queries_are_given_codes(host_fwd, kernels_on, kind, store):
    cache, q = Cache(torch.float8_e4m3fnuz, kind, store), torch.randn(2, 3, 4, 64).half()
    with warnings.catch_warnings(action="ignore"):
        wanted = cache.attend(q, causal=True, num_splits=1)
    kernels_on(archs_with("decode_8bit")[0])
    for _ in range(2):  # the second time by the decision
        found = cache.attend(q, causal=True, num_splits=1)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    for call in host_fwd:
        assert call["path"] == "split"
        assert call["k"] is cache.codes[0]
        assert call["v"] is cache.codes[1]
        assert all(
            a is b for a, b in zip((call["k_descale"], call["v_descale"]), cache.descales, strict=True)
        )


@CODED
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(("rows", "head_dim"), [(20, 64), (3, 80), (3, 40), (20, 40)])
def test_other_calls_are_given_a_dense_copy(host_fwd, kernels_on, rows, head_dim, store):
    cache, q = Cache(torch.int8, KEYS, store, head_dim), torch.randn(2, rows, 4, head_dim).half()
    kernels_on(archs_with("decode_8bit")[0])
    holds(cache.attend(q, causal=True), q, cache, widened=True, causal=True)
    (call,) = host_fwd
    assert call["k"].dtype == call["v"].dtype == torch.float16
    assert call["k"].shape[:2] == (2, CAPACITY)
    assert all(call[name] is None for name in ("block_table", "cache_batch_idx", "k_descale", "v_descale"))


@CODED
@pytest.mark.parametrize("rows", [1, 20])
def test_another_head_dim_of_v_is_left_to_pytorch(host_fwd, kernels_on, rows):
    (k, _), q = Cache(torch.int8, NONE, "dense").codes, torch.randn(2, rows, 4, 64).half()
    kernels_on(archs_with("decode_8bit")[0])
    reason = "the head dim of v is 32 and that of q and k 64, and caches have one for both"
    assert explain(flash_attn_with_kvcache, q, k, k[..., :32]).reason == reason
    with pytest.warns(FlashAttnFallbackWarning, match=reason):
        found = flash_attn_with_kvcache(q, k, k[..., :32])
    exact, _ = plain(q.double(), k.double(), k[..., :32].double())
    assert largest(found, exact) <= 2**-9 * exact.abs().max()
    assert not host_fwd


@CODED
def test_packed_queries_are_given_packed_copies(host_fwd, kernels_on):
    cache, q = Cache(torch.float8_e5m2, HEADS, "pages"), torch.randn(25, 4, 64).half()
    with warnings.catch_warnings(action="ignore"):
        wanted = varlen(cache, q, (0, 20, 25), 20)
    kernels_on(archs_with("decode_8bit")[0])
    torch.testing.assert_close(varlen(cache, q, (0, 20, 25), 20), wanted, rtol=2**-9, atol=2**-10)
    (call,) = host_fwd
    longest = max(LENGTHS)
    assert call["k"].shape == (2 * longest, 2, 64)
    assert call["cu_seqlens_k"].tolist() == [0, longest, 2 * longest]
    assert call["seqused_k"].tolist() == [*LENGTHS]
    assert call["block_table"] is None


@CODED
def test_no_value_is_read_on_the_host(kernels_on, monkeypatch):
    """So that calls can be captured in a graph."""
    cache, q = Cache(torch.float8_e4m3fn, KEYS, "pages"), torch.randn(2, 20, 4, 64).half()
    few, new = torch.randn(2, 1, 4, 64).half(), torch.randn(2, 1, 2, 64).half()
    lengths, ends = torch.tensor(LENGTHS, **INT), torch.tensor([0, 20, 25], **INT)
    kernels_on(archs_with("decode_8bit")[0])
    launches = []
    monkeypatch.setattr("flash_attn_rocm.launch.widening.WIDEN", lambda *given: launches.append("widen"))
    monkeypatch.setattr("flash_attn_rocm.launch.forward_pass.FWD", lambda *given: launches.append("fwd"))
    monkeypatch.setattr("flash_attn_rocm.launch.append.KERNEL", lambda *given: launches.append("append"))

    def read(_tensor):
        raise AssertionError

    for name in ("tolist", "item", "__int__", "__bool__"):
        monkeypatch.setattr(torch.Tensor, name, read)
    descales = {"k_descale": cache.descales[0], "v_descale": cache.descales[1], "block_table": cache.table}
    flash_attn_with_kvcache(q, *cache.codes, cache_seqlens=lengths, **descales)
    flash_attn_with_kvcache(few, *cache.codes, new, new, cache_seqlens=lengths, **descales)
    flash_attn_varlen_func(q.flatten(0, 1)[:25], *cache.codes, ends, ends, 20, 20, **descales)
    assert launches == ["widen", "fwd", "append", "fwd", "widen", "fwd"]


def copied(head_dim, words):
    return f"8 bits widened to float16 first, {2 * 2 * CAPACITY * 2 * head_dim * 2} bytes; {words}"


@CODED
@pytest.mark.parametrize(
    ("rows", "head_dim", "path", "words"),
    [
        (1, 64, "split", "decode over a cache of 8 bits; 1 row of 2 heads packed"),
        (
            20,
            64,
            "matrix|tiled",
            copied(64, "20 query"),
        ),
        (1, 40, "split", copied(40, "1 row of")),
    ],
)
def test_explain_says_whether_the_cache_is_copied(kernels_on, rows, head_dim, path, words):
    cache, q = Cache(torch.int8, KEYS, "pages", head_dim), torch.randn(2, rows, 4, head_dim).half()
    kernels_on(archs_with("decode_8bit")[0])
    found = explain(
        flash_attn_with_kvcache, q, *cache.codes, k_descale=cache.descales[0], v_descale=cache.descales[1],
        **cache.places,
    )  # fmt: skip
    assert re.fullmatch(path, found.path)
    assert found.reason.startswith(words)
    assert "no gradients through a cache" in found.backward_reason


@pytest.mark.needs_kernels("mla")
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("arch", archs_with("mla"))
def test_explain_of_latent_attention(kernels_on, arch, dtype):
    kernels_on(arch)
    name = {"bf16": "bfloat16", "fp16": "float16"}[dtype]
    q = torch.zeros(2, 3, 4, 576, dtype=getattr(torch, name))
    cache = torch.zeros(2, 40, 1, 576, dtype=torch.int8)
    found = explain(mla_decode, q, cache)
    reads_codes = arch in archs_with("mla_8bit", dtype)
    copied = f"8 bits widened to {name} first, {2 * 40 * 576 * 2} bytes"
    assert found.reason.startswith(f"{'over a cache of 8 bits' if reads_codes else copied}; all heads packed")
    assert found.row.startswith(f"fa_mla{'_8bit' if reads_codes else ''}_{dtype}_d576: row ")


@pytest.mark.needs_kernels("mla")
@pytest.mark.parametrize("coded", [True, False])
@pytest.mark.parametrize("arch", archs_with("mla_8bit"))
def test_explain_counts_the_copy_of_unaligned_latent_rows(kernels_on, arch, coded):
    kernels_on(arch)
    q = torch.zeros(2, 3, 4, 576, dtype=torch.bfloat16)
    cache = torch.zeros(2, 40, 1, 577, dtype=torch.int8 if coded else torch.bfloat16)[..., :576]
    size = 2 * 40 * 576 * (1 if coded else 2)
    assert explain(mla_decode, q, cache).reason.startswith(f"kv_cache copied to aligned rows first, {size} b")
    assert "copied" not in explain(mla_decode, q, cache.contiguous()).reason


@pytest.mark.needs_kernels("mla")
@pytest.mark.parametrize("broken", [remembered.LATENT, remembered.CODED])
@pytest.mark.parametrize("arch", archs_with("mla_8bit"))
def test_a_call_over_codes_fails_with_its_own_kernels_only(kernels_on, monkeypatch, arch, broken):
    kernels_on(arch)
    monkeypatch.setitem(latent.FAILURES, remembered.Family(arch, "bf16", 576, broken), "wrong in its check")
    q = torch.zeros(2, 3, 4, 576, dtype=torch.bfloat16)
    codes, keys = (torch.zeros(2, 40, 1, 576, dtype=dtype) for dtype in (torch.int8, torch.bfloat16))
    assert explain(mla_decode, q, codes).ok == (broken == remembered.LATENT)
    assert explain(mla_decode, q, keys).ok == (broken == remembered.CODED)
