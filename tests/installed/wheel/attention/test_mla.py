"""Latent attention against float64, on CPU tensors: the PyTorch implementation, and kernels' arguments."""

import re
import warnings

import pytest
import torch
from archs import archs_with
from flash_attn_rocm import (
    FlashAttnArgumentError,
    FlashAttnFallbackWarning,
    FlashAttnUnsupportedError,
    explain,
    mla_decode,
    set_strict,
)
from flash_attn_rocm.arguments.normal_form import Inputs, Options
from flash_attn_rocm.launch import latent, packed_rows
from flash_attn_rocm.reference import operators
from flash_attn_rocm.suite.reference_attention import largest
from flash_attn_rocm.values import tolerances
from torch.utils.flop_counter import FlopCounterMode

QUIET = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
PAGE = 16


def given(batch=2, rows=3, heads=4, keys=40, *, head_dim=576, dtype=torch.float16):
    q = torch.randn(batch, rows, heads, head_dim, dtype=dtype)
    return q, torch.randn(batch, keys, 1, head_dim, dtype=dtype)


def exact(q, cache, lengths, width=512, scale=None, *, causal=True):
    """out and the log-sum-exp in float64."""
    outs, sums = [], []
    for one, keys, length in zip(q.double(), cache.double(), lengths, strict=True):
        k = keys[:length, 0]
        scores = one.transpose(0, 1) @ k.T * (q.shape[-1] ** -0.5 if scale is None else scale)
        ahead = torch.arange(length) - torch.arange(len(one))[:, None] - (length - len(one))
        scores = scores.masked_fill(ahead > 0, -torch.inf) if causal else scores
        sums.append(scores.logsumexp(-1).masked_fill((scores == -torch.inf).all(-1), torch.inf))
        outs.append((scores.softmax(-1).nan_to_num(0.0) @ k[:, :width]).transpose(0, 1))
    return torch.stack(outs), torch.stack(sums)


def holds(found, wanted, cache, dtype):
    (out, lse), (right, sums) = found, wanted
    error = tolerances.least_error(
        0.0, {torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype], largest(right)
    )
    assert largest(out.double() - right) <= tolerances.allowed(2 * error, terms=64, largest=largest(cache))
    assert torch.equal(lse == torch.inf, sums == torch.inf)
    assert (lse - sums).nan_to_num(0.0).abs().max() <= 1e-4


def paged(cache, lengths):
    """The cache in blocks, in a shuffled order."""
    batch, keys, _, head_dim = cache.shape
    blocks = -(-keys // PAGE)
    table = torch.randperm(batch * blocks + 1, dtype=torch.int32)[: batch * blocks].view(batch, blocks)
    store = torch.full((batch * blocks + 1, PAGE, 1, head_dim), torch.nan, dtype=cache.dtype)
    whole = torch.nn.functional.pad(cache, (0, 0, 0, 0, 0, blocks * PAGE - keys))
    store[table.long()] = whole.view(batch, blocks, PAGE, 1, head_dim)
    return store, table, torch.tensor(lengths, dtype=torch.int32)


@QUIET
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lengths", [(40, 40), (40, 2), (1, 17)])
def test_a_dense_cache(dtype, causal, lengths):
    q, cache = given(dtype=dtype)
    used = torch.tensor(lengths, dtype=torch.int32)
    found = mla_decode(q, cache, used, causal=causal, return_softmax_lse=True)
    assert found[0].shape == (2, 3, 4, 512)
    holds(found, exact(q, cache, lengths, causal=causal), cache, dtype)
    assert torch.equal(mla_decode(q, cache, used, causal=causal), found[0])


@QUIET
def test_a_length_for_all_and_none():
    q, cache = given()
    for lengths, found in (((25, 25), 25), ((40, 40), None)):
        out, lse = mla_decode(q, cache, found, return_softmax_lse=True)
        holds((out, lse), exact(q, cache, lengths), cache, q.dtype)


@QUIET
def test_blocks():
    q, cache = given()
    store, table, used = paged(cache, (33, 7))
    found = mla_decode(q, store, used, block_table=table, softmax_scale=0.05, return_softmax_lse=True)
    holds(found, exact(q, cache, (33, 7), scale=0.05), cache, q.dtype)


@QUIET
def test_other_head_dims_and_dtypes():
    q, cache = given(head_dim=40, dtype=torch.float64)
    out, lse = mla_decode(q, cache, head_dim_v=24, return_softmax_lse=True)
    wanted, sums = exact(q, cache, (40, 40), 24)
    assert out.shape == (2, 3, 4, 24)
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(lse, sums)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"q": 5}, "q: expected a tensor (batch, seqlen_q, nheads, headdim), got int"),
        (
            {"kv_cache": torch.zeros(2, 40, 576).half()},
            "kv_cache: expected 4 dimensions (batch, seqlen_k, 1,",
        ),
        ({"kv_cache": torch.zeros(2, 40, 2, 576).half()}, "kv_cache: expected 1 head, got shape"),
        ({"kv_cache": torch.zeros(3, 40, 1, 576).half()}, "kv_cache: expected batch 2 like q, got shape"),
        ({"kv_cache": torch.zeros(2, 40, 1, 512).half()}, "kv_cache: expected headdim 576 like q, got shape"),
        ({"kv_cache": torch.zeros(2, 40, 1, 576)}, "kv_cache: expected dtype torch.float16 like q, or"),
        ({"q": torch.zeros(2, 3, 0, 576).half()}, "q: expected at least 1 head, got shape (2, 3, 0, 576)"),
        ({"cache_seqlens": -1}, "cache_seqlens: expected an integer from 0 to 2147483647, got -1"),
        (
            {"cache_seqlens": torch.zeros(3, dtype=torch.int32)},
            "cache_seqlens: expected shape (2,), got (3,)",
        ),
        ({"cache_seqlens": torch.zeros(2)}, "cache_seqlens: expected dtype torch.int32, got torch.float32"),
        ({"block_table": torch.zeros(2, 3, dtype=torch.int32)}, "kv_cache: expected pages of a multiple of"),
        ({"head_dim_v": 577}, "head_dim_v: expected an integer from 1 to the headdim 576, got 577"),
        ({"head_dim_v": 1.5}, "head_dim_v: expected an integer from 1 to the headdim 576, got 1.5"),
        ({"softmax_scale": float("nan")}, "softmax_scale: expected a finite number or None, got nan"),
        ({"num_splits": 513}, "num_splits: expected an integer from 0 (automatic) to 512, got 513"),
    ],
)
def test_wrong_arguments(change, words):
    q, cache = given()
    call = {"q": q, "kv_cache": cache} | change
    with pytest.raises(
        FlashAttnArgumentError, match=r"^mla_decode cannot use its arguments:\n  - "
    ) as caught:
        mla_decode(**call)
    assert any(each.startswith(words) for each in caught.value.problems), caught.value.problems


def test_all_that_is_wrong_is_said_at_once():
    q, cache = given()
    with pytest.raises(FlashAttnArgumentError) as caught:
        mla_decode(q, cache.float()[..., :512], head_dim_v=0)
    assert [each.partition(":")[0] for each in caught.value.problems] == [
        "kv_cache",
        "head_dim_v",
        "kv_cache",
    ]


@QUIET
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cache_seqlens": 41}, "cache_seqlens: expected at most 40 keys, got 41"),
        (
            {"cache_seqlens": torch.tensor([40, 41], dtype=torch.int32)},
            "cache_seqlens: expected at most 40 keys, got 41 for sequence 1",
        ),
        (
            {"block_table": torch.tensor([[0, 9]] * 2, dtype=torch.int32)},
            "block_table: expected indices of the cache's blocks, which are below 3, got 9",
        ),
    ],
)
def test_lengths_and_indices_outside_of_the_cache(change, words):
    q, cache = given()
    if "block_table" in change:
        cache = torch.zeros(3, PAGE, 1, 576, dtype=q.dtype)
    with pytest.raises(FlashAttnArgumentError, match=f"mla_decode cannot.*\n  - {re.escape(words)}"):
        mla_decode(q, cache, **change)


def test_without_a_kernel_the_answer_comes_with_a_warning():
    q, cache = given()
    with pytest.warns(FlashAttnFallbackWarning, match="the tensors are on cpu") as caught:
        mla_decode(q, cache)
    assert caught[0].filename == __file__
    set_strict(True)
    with pytest.raises(FlashAttnUnsupportedError, match=r"^mla_decode: no kernel serves this call"):
        mla_decode(q, cache)


def test_explain_says_why_no_kernel_serves():
    found = explain(mla_decode, *given())
    assert (bool(found), found.path, found.backward) == (False, "pytorch", "pytorch")
    assert "the tensors are on cpu" in found.reason
    assert "no gradients through a cache" in found.backward_reason


@QUIET
def test_no_gradients():
    q, cache = (x.requires_grad_() for x in given())
    assert not mla_decode(q, cache).requires_grad


@QUIET
def test_torch_compile():
    q, cache = given()
    used = torch.tensor([40, 9], dtype=torch.int32)
    compiled = torch.compile(mla_decode, backend="eager", fullgraph=True)
    assert torch.equal(compiled(q, cache, used), mla_decode(q, cache, used))


ARCH = next(iter(archs_with("mla")), "")
needs_kernels = pytest.mark.needs_kernels("mla")


@pytest.fixture
def launched(monkeypatch, kernels_on):
    """The PyTorch implementation stands in for kernels. Returns the arguments of each launch, by name."""
    kernels_on(ARCH)
    names = operators.arguments_of(latent.MLA)
    calls = []

    def mla(*arguments):
        call = dict(zip(names, arguments, strict=True))
        calls.append(call)
        q, cache, used, table, _, out, lse = arguments[:7]
        if cache.shape[-1] != q.shape[-1]:  # rows that hold their scales
            rows = cache.view(torch.uint8)
            inputs = Inputs(q, rows, rows[..., :512], seqused_k=used, block_table=table)
            cache, table = packed_rows._by_pytorch(inputs), None
        inputs = Inputs(q, cache, cache[..., :512], seqused_k=used, block_table=table)
        options = Options(
            call["softmax_scale"], window_right=0 if call["causal"] else -1, max_seqlen_q=q.shape[1],
            max_seqlen_k=inputs.key_capacity,
        )  # fmt: skip
        found = operators.forward(inputs, options, None, want_probabilities=False)
        out.copy_(found[0])
        lse.copy_(found[1])

    monkeypatch.setattr(latent, "MLA", mla)
    return calls


@needs_kernels
def test_what_a_kernel_is_given(launched):
    q, cache = given(rows=1, keys=300)
    used = torch.tensor([300, 17], dtype=torch.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = mla_decode(q, cache, used, num_splits=3, return_softmax_lse=True)
    holds(found, exact(q, cache, (300, 17)), cache, q.dtype)
    (call,) = launched
    assert call["kv_cache"].data_ptr() == cache.data_ptr()
    assert call["partial_out"].shape == (3, 2, 4, 1, 512)
    assert call["partial_lse"].shape == (3, 2, 4, 1)
    assert (call["causal"], call["softmax_scale"]) == (True, 576**-0.5)


@needs_kernels
def test_a_cache_without_the_head_is_read_in_place(launched):
    """For any stride of the one head's dimension."""
    q, cache = given()
    odd = cache.as_strided(cache.shape, (40 * 576, 576, 1, 1))
    mla_decode(q, odd)
    assert launched[0]["kv_cache"].data_ptr() == cache.data_ptr()
    assert launched[0]["kv_cache"].stride() == (40 * 576, 576, 576, 1)


@needs_kernels
def test_rows_that_are_not_aligned_are_copied(launched):
    q, cache = given()
    wide = torch.zeros(2, 40, 1, 577, dtype=q.dtype)[..., :576].copy_(cache)
    holds(mla_decode(q, wide, return_softmax_lse=True), exact(q, cache, (40, 40)), cache, q.dtype)
    assert launched[0]["kv_cache"].is_contiguous()


@needs_kernels
@QUIET
def test_what_no_kernel_takes(launched):
    q, cache = given(head_dim=320)
    found = explain(mla_decode, q, cache, head_dim_v=256)
    assert found.reason == (
        "the head dim is 320 and that of v 256, and kernels for latent attention have 576 and 512"
    )
    mla_decode(q, cache, head_dim_v=256)
    mla_decode(*(x.float() for x in given()))
    assert launched == []


@needs_kernels
def test_explain_says_how_a_kernel_serves(kernels_on):
    kernels_on(ARCH)
    found = explain(mla_decode, *given(keys=300), num_splits=2)
    assert (bool(found), found.path, found.splits) == (True, "latent", 2)
    assert found.reason == "all heads packed; 2 parts wanted, 2 used for 300 keys"
    assert found.row.startswith("fa_mla_fp16_d576: row ")


@QUIET
def test_an_arch_without_kernels(kernels_on):
    kernels_on("gfx900")
    assert "no kernels for gfx900" in explain(mla_decode, *given()).reason


@needs_kernels
@pytest.mark.usefixtures("launched")
def test_flops_are_counted():
    q, cache = given()
    used = torch.tensor([40, 9], dtype=torch.int32)
    with FlopCounterMode(display=False) as counter:
        mla_decode(q, cache, used)
    assert counter.get_total_flops() == 2 * 3 * 4 * (40 + 9) * (576 + 512)
