"""The PyTorch implementation of dense attention against attention in float64, on CPU tensors."""

import math
from contextlib import nullcontext

import pytest
import torch
from exact import assert_close_enough, assert_log_sum_exp, check, largest, plain, run, sums
from flash_attn_rocm import flash_attn_func, flash_attn_with_kvcache
from flash_attn_rocm.reference import blocks
from flash_attn_rocm.suite import reference_attention
from flash_attn_rocm.values.tolerances import GRADIENT_FACTOR, OUT_FACTOR, allowed, lse_allowed

DTYPES = [torch.float16, torch.bfloat16]
SHAPES = {  # (batch, seqlen_q, seqlen_k, nheads, nheads_k, headdim)
    "square": (2, 64, 64, 4, 4, 64),
    "ragged_gqa": (2, 37, 101, 6, 2, 64),
    "ragged_long_q": (1, 101, 37, 2, 1, 128),
    "mqa_one_row": (3, 1, 50, 8, 1, 64),
    "odd_headdim": (1, 33, 65, 3, 3, 40),
}
pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")


def inputs(shape, dtype, *, scale=1.0):
    batch, seqlen_q, seqlen_k, nheads, nheads_k, head_dim = SHAPES[shape]
    q = scale * torch.randn(batch, seqlen_q, nheads, head_dim)
    k, v = (torch.randn(batch, seqlen_k, nheads_k, head_dim) for _ in range(2))
    return tuple(x.to(dtype).requires_grad_() for x in (q, k, v))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_output_and_gradients(dtype, shape, causal):
    check(
        inputs(shape, dtype),
        ours=lambda q, k, v: flash_attn_func(q, k, v, causal=causal),
        reference=lambda q, k, v: plain(q, k, v, causal=causal)[0],
    )


@pytest.mark.parametrize("window", [(0, 0), (5, 3), (-1, 7), (7, -1), (1000, 2)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", ["ragged_gqa", "ragged_long_q"])
def test_window(shape, causal, window):
    check(
        inputs(shape, torch.bfloat16),
        ours=lambda q, k, v: flash_attn_func(q, k, v, causal=causal, window_size=window),
        reference=lambda q, k, v: plain(q, k, v, causal=causal, window=window)[0],
    )


@pytest.mark.parametrize("causal", [False, True])
def test_softcap(causal):
    check(
        inputs("ragged_gqa", torch.float16, scale=4.0),
        ours=lambda q, k, v: flash_attn_func(q, k, v, causal=causal, softcap=3.0),
        reference=lambda q, k, v: plain(q, k, v, causal=causal, softcap=3.0)[0],
    )


@pytest.mark.parametrize("per_batch", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_alibi(causal, per_batch):
    slopes = torch.rand(2, 6) if per_batch else torch.rand(6)
    check(
        inputs("ragged_gqa", torch.float16),
        ours=lambda q, k, v: flash_attn_func(q, k, v, causal=causal, alibi_slopes=slopes),
        reference=lambda q, k, v: plain(q, k, v, causal=causal, slopes=slopes)[0],
    )


def test_softmax_scale():
    check(
        inputs("square", torch.float16),
        ours=lambda q, k, v: flash_attn_func(q, k, v, softmax_scale=0.3),
        reference=lambda q, k, v: plain(q, k, v, scale=0.3)[0],
    )


@pytest.mark.parametrize(("scores", "rows"), [(1, 512), (256, 7), (1024, 3), (4096, 16)])
@pytest.mark.parametrize("options", [{"causal": True, "window_size": (9, -1)}, {"softcap": 2.0}])
def test_blocks_do_not_change_the_result(monkeypatch, scores, rows, options):
    monkeypatch.setattr(blocks, "BLOCK_SCORES", scores)
    monkeypatch.setattr(blocks, "BLOCK_ROWS", rows)
    wanted = {"window" if name == "window_size" else name: value for name, value in options.items()}
    check(
        inputs("ragged_gqa", torch.float16),
        ours=lambda q, k, v: flash_attn_func(q, k, v, **options),
        reference=lambda q, k, v: plain(q, k, v, **wanted)[0],
    )


@pytest.mark.parametrize("wrong", [0, 4, 8])
@pytest.mark.parametrize("softcap", [0.0, 1e30])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_shows(value, softcap, wrong):
    """Scores of NaN or +inf make their row NaN, and its log-sum-exp +inf, at any place.

    This also holds for PyTorch's attention. Softcap keeps it from being called.
    """
    if softcap and value == math.inf:
        softcap, value = 1.0, math.nan  # bends infinity
    q, k, v = (torch.ones(1, 9, 1, 8).half() for _ in range(3))
    k[0, wrong] = value
    out, lse, _ = flash_attn_func(q, k, v, causal=True, softcap=softcap, return_attn_probs=True)
    assert out[0, wrong:].isnan().all()
    assert (out[0, :wrong] == 1).all()
    assert (lse[0, 0, wrong:] == math.inf).all()


def test_a_blind_row_is_zero_where_v_is_nan():
    q, k = torch.ones(1, 3, 1, 8).half(), torch.ones(1, 2, 1, 8).half()
    out = flash_attn_func(q, k, torch.full_like(k, math.nan), causal=True)
    assert (out[0, 0] == 0).all()
    assert out[0, 1:].isnan().all()


def test_views_and_autocast_give_the_same_bits():
    q, k, v = (x.detach() for x in inputs("square", torch.bfloat16))
    packed = torch.stack([q, k, v], dim=2)
    expected = flash_attn_func(q, k, v)
    assert torch.equal(flash_attn_func(*packed.unbind(2)), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(flash_attn_func(q, k, v), expected)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", ["ragged_gqa", "ragged_long_q"])
def test_log_sum_exp(shape, causal):
    q, k, v = (x.detach() for x in inputs(shape, torch.float16))
    _, lse, probabilities = flash_attn_func(q, k, v, causal=causal, return_attn_probs=True)
    exact = plain(q.double(), k.double(), v.double(), causal=causal)[1]
    assert lse.shape == (q.shape[0], q.shape[2], q.shape[1])
    assert lse.dtype == torch.float32
    assert probabilities.numel() == 0
    assert_log_sum_exp(lse, exact, (q, k))


def test_rows_that_see_no_key_are_zero_with_infinite_log_sum_exp():
    q, k, v = inputs("ragged_long_q", torch.float16)
    out, lse, _ = flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    blind = q.shape[1] - k.shape[1]
    assert (out[:, :blind] == 0).all()
    assert (lse[:, :, :blind] == math.inf).all()
    assert torch.isfinite(lse[:, :, blind:]).all()
    out.sum().backward()
    assert (q.grad[:, :blind] == 0).all()
    assert all(torch.isfinite(x.grad).all() for x in (q, k, v))


@pytest.mark.parametrize("empty", ["batch", "seqlen_q", "seqlen_k"])
def test_empty_inputs(empty):
    sizes = {"batch": 2, "seqlen_q": 3, "seqlen_k": 4} | {empty: 0}
    q = torch.randn(sizes["batch"], sizes["seqlen_q"], 4, 64).half().requires_grad_()
    k, v = (torch.randn(sizes["batch"], sizes["seqlen_k"], 2, 64).half().requires_grad_() for _ in range(2))
    out, lse, _ = flash_attn_func(q, k, v, return_attn_probs=True)
    out.sum().backward()
    assert out.shape == q.shape
    assert (out == 0).all()
    assert (lse == math.inf).all()
    assert all((x.grad == 0).all() for x in (q, k, v))


def test_dropout_keeps_the_share_and_the_expectation():
    q, k, v = (x.detach() for x in inputs("square", torch.float16))
    out, lse, signed = flash_attn_func(q, k, v, dropout_p=0.3, return_attn_probs=True)
    expected, exact_lse = plain(q.double(), k.double(), v.double())
    assert_log_sum_exp(lse, exact_lse, (q, k))
    # 2 * 4 * 64 * 64 draws: five standard deviations of the dropped share are 0.013.
    assert abs((signed < 0).float().mean().item() - 0.3) < 0.013
    # Normalised, and rounded to fp16 one by one: half a step of 2**-11 of each.
    assert (signed.abs().double().sum(-1) - 1).abs().max() < 2**-11
    kept = (signed.double() * (signed > 0)).transpose(1, 2) / 0.7
    rebuilt = torch.einsum("bqhk,bkhd->bqhd", kept, v.double())
    # The probabilities are returned in fp16: half a step of 2**-11 each, and they sum to 1 / 0.7.
    assert (out.double() - rebuilt).abs().max() < 2**-11 * (1 / 0.7) * v.abs().max().double() + 2**-10
    assert not torch.allclose(out.double(), expected, atol=1e-3)


def test_dropout_follows_the_seed():
    q, k, v = (x.detach() for x in inputs("square", torch.float16))
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(flash_attn_func(q, k, v, dropout_p=0.5))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


@pytest.mark.parametrize("causal", [False, True])
def test_dropout_gradients_use_the_mask_of_the_forward_pass(monkeypatch, causal):
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 16)
    monkeypatch.setattr(blocks, "BLOCK_SCORES", blocks.ON_CPU * 16 * 64)
    q, k, v = inputs("square", torch.bfloat16)
    out, _, signed = flash_attn_func(q, k, v, dropout_p=0.4, causal=causal, return_attn_probs=True)
    dout = torch.randn_like(out)
    out.backward(dout)
    keep = (signed > 0).double() / 0.6

    def dropped(q, k, v):
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * 64**-0.5
        if causal:
            scores = scores.masked_fill(torch.ones(64, 64).triu(1).bool(), -math.inf)
        return torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores, -1) * keep.to(q.dtype), v)

    exact = run(dropped, (q, k, v), torch.float64, dout)
    low = run(dropped, (q, k, v), torch.bfloat16, dout)
    assert_close_enough([out.detach(), q.grad, k.grad, v.grad], low, exact, (q, k, v), dout)


@pytest.mark.parametrize("name", ["out", "dq", "dk", "dv"])
def test_the_rule_refuses_an_error_just_beyond_it(name):
    """A planted error: the largest within the rule, and a little more."""
    tensors = inputs("ragged_gqa", torch.float16)
    dout = torch.randn_like(tensors[0])
    exact = run(lambda q, k, v: plain(q, k, v)[0], tensors, torch.float64, dout)
    low = run(lambda q, k, v: plain(q, k, v)[0], tensors, torch.float16, dout)
    number = ("out", "dq", "dk", "dv").index(name)
    terms, size = sums(tensors, dout)[number]
    factor = GRADIENT_FACTOR if number else OUT_FACTOR
    bound = allowed(largest(low[number], exact[number]), terms=terms, largest=size, factor=factor)
    for times, right in ((0.99, True), (1.01, False)):
        found = [x.clone() for x in exact]
        found[number][0, 0, 0, 5] += times * bound
        with nullcontext() if right else pytest.raises(AssertionError, match=f"{name}: error"):
            assert_close_enough(found, low, exact, tensors, dout)


@pytest.mark.parametrize(("times", "right"), [(0.99, True), (1.01, False)])
def test_the_rule_refuses_a_log_sum_exp_just_beyond_it(times, right):
    q, k, v = (x.detach() for x in inputs("ragged_gqa", torch.float16))
    exact = plain(q.double(), k.double(), v.double())[1]
    found = exact.clone()
    size = reference_attention.magnitude(q.flatten(0, 1), k.flatten(0, 1), reference_attention.Rules())
    found[1, 2, 3] += times * lse_allowed(exact[1, 2, 3].item(), size)
    with nullcontext() if right else pytest.raises(AssertionError):
        assert_log_sum_exp(found, exact, (q, k))


def rows_of_nan(out):
    return out.isnan().any(-1).any(-1)


def test_values_of_nan_that_are_hidden():
    """The PyTorch implementation's behaviour in docs/features.md."""
    q, k, v = torch.randn(3, 1, 600, 2, 32)
    v[:, 590:] = torch.nan
    for rows in (
        rows_of_nan(flash_attn_func(q, k, v, causal=True)),
        rows_of_nan(flash_attn_func(q, k, v, window_size=(500, 0))),
    ):
        assert rows[:, 590:].all()
        assert not rows[:, :512].any()
    k, v = k.clone(), torch.randn_like(v)
    k[:, 590:] = torch.nan
    assert rows_of_nan(flash_attn_func(q, k, v, causal=True)).equal(torch.arange(600)[None] >= 590)


def test_a_cache_may_hold_nan_behind_its_lengths():
    q, k, v = torch.randn(3, 2, 9, 2, 32)
    k[:, 7:], v[:, 7:] = torch.nan, torch.nan
    out = flash_attn_with_kvcache(q, k, v, cache_seqlens=7)
    assert out.isfinite().all()
