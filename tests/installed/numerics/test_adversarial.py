"""Forward attention on hard inputs for an online softmax, held to the common rule (rule.py)."""

import math

import pytest
import torch
from flash_attn_rocm import flash_attn_func, flash_attn_with_kvcache
from flash_attn_rocm.suite.rule import DTYPES, Rules, Sequence, judge
from here import DECODE, FORWARD

ROWS, KEYS = 33, 200
SPIKE = KEYS // 3
TILE = 64  # keys, the most of any kernel
instances = pytest.mark.parametrize(("dtype", "head_dim"), FORWARD)


def normal(rows, head_dim, seed):
    return torch.randn(rows, 1, head_dim, generator=torch.Generator().manual_seed(seed))


def along(scores, head_dim):
    """q and k with equal rows of q: with softmax_scale 1 key j has about ``scores[j]``.

    The largest is spread evenly over q and k. This keeps fp16 from overflowing.
    """
    size = math.sqrt(max(scores.abs().max().item(), 1.0) / head_dim)
    q = torch.full((ROWS, 1, head_dim), size)
    return q, (scores / (size * head_dim))[:, None, None] + normal(len(scores), head_dim, 1) * 2e-3


def alone(score):
    scores = torch.zeros(KEYS)
    scores[SPIKE] = score
    return scores


FAR = torch.arange(KEYS)
# The keys' scores by name.  Exponentials and rescaling are in powers of two: a rescale waits for 8.
SCORES = {
    "every key rises by less than a rescale waits for": FAR * 0.08,
    "the later ones rise by less than a rescale waits for": 4.0 * (FAR >= TILE),
    "every second key calls for a rescale": FAR * 5.0,
    "every key falls": FAR * -5.0,
    "all are equal": torch.zeros(KEYS),
    "all are far below zero": torch.full((KEYS,), -6000.0),
    "their sum is near 1": torch.full((KEYS,), -math.log(KEYS)),
    "one dominates": alone(90.0),
    "one is alone": alone(1000.0),
    # From this case on, rounding of scale * score shows in an fp16 output.
    "one is alone and large": alone(6000.0),
    "one is alone and very large": alone(40000.0),
}


def attend(target, shown, dtype, head_dim, name, rules, inputs):
    q, k, v = (x.to(DTYPES[dtype]).to(target.device) for x in inputs)
    (out, lse, _), _ = target.attend(
        flash_attn_func, q[None], k[None], v[None], return_attn_probs=True, **rules.arguments
    )
    instance = target.answering(f"fa_fwd_{dtype}_d{head_dim}")
    judge(shown, instance, name, [Sequence(q, k, v, out[0], lse[0])], rules)


@pytest.mark.divided
@instances
@pytest.mark.parametrize("right", [-1, 0])
@pytest.mark.parametrize("name", SCORES)
def test_scores(target, shown, dtype, head_dim, name, right):
    inputs = *along(SCORES[name], head_dim), normal(KEYS, head_dim, 2)
    attend(target, shown, dtype, head_dim, name, Rules(scale=1.0, right=right), inputs)


@instances
def test_rows_that_see_their_first_key_after_others(target, shown, dtype, head_dim):
    """Some rows of a wave see nothing of a tile, and the first keys of all are far below zero."""
    inputs = *along(SCORES["all are far below zero"], head_dim), normal(KEYS, head_dim, 2)
    attend(target, shown, dtype, head_dim, "late", Rules(scale=1.0, left=5, right=0), inputs)


@instances
@pytest.mark.parametrize("right", [-1, 0])
def test_scores_eight_times_as_large(target, shown, dtype, head_dim, right):
    inputs = [normal(rows, head_dim, seed) * 8**0.5 for seed, rows in enumerate((ROWS, KEYS, KEYS))]
    attend(target, shown, dtype, head_dim, "8 times", Rules(right=right), inputs)


@instances
def test_each_row_has_a_spike_of_its_own(target, shown, dtype, head_dim):
    q, k, v = (normal(rows, head_dim, seed) for seed, rows in enumerate((ROWS, KEYS, KEYS)))
    k[::6][:ROWS] = q * 6
    attend(target, shown, dtype, head_dim, "spikes", Rules(), (q, k, v))


@instances
def test_weights_that_are_small_beside_one_add_up(target, shown, dtype, head_dim):
    """They are 2^-14.4, a denormal of fp16. MI200's matrix unit flushes it to zero."""
    scores = torch.zeros(KEYS)
    scores[0] = 10.0
    v = normal(KEYS, head_dim, 2).abs()
    v[0] = 0
    attend(target, shown, dtype, head_dim, "small weights", Rules(scale=1.0), (*along(scores, head_dim), v))


@instances
def test_a_row_beside_one_of_large_scores(target, shown, dtype, head_dim):
    """Its scores become large after some tiles. Rows of one wave share only their code."""
    q, k, v = (normal(rows, head_dim, seed) for seed, rows in enumerate((ROWS, KEYS, KEYS)))
    q[..., 0], k[:, 0, 0] = 0, 128 * (torch.arange(KEYS) >= 64)
    q[0] = 0
    q[0, 0, 0] = 64
    attend(target, shown, dtype, head_dim, "beside large scores", Rules(scale=0.125), (q, k, v))


@pytest.mark.parametrize("softcap", [0.0, 4000.0])
@pytest.mark.parametrize(("dtype", "head_dim"), DECODE)
def test_packed_rows_that_see_their_first_key_when_the_maximum_of_others_rises(
    target, shown, dtype, head_dim, softcap
):
    """The window of the first queries begins in one tile of 32 keys, that of the last ones in the next."""
    queries, first_key = 8, 156
    rules = Rules(scale=1.0, softcap=softcap, left=KEYS - queries - first_key, right=0)
    q, k = along(SCORES["every second key calls for a rescale"], head_dim)
    q, k, v = (x.to(DTYPES[dtype]).to(target.device) for x in (q[:queries], k, normal(KEYS, head_dim, 2)))
    options = {"num_splits": 1, "return_softmax_lse": True}
    (out, lse, *_), _ = target.attend(
        flash_attn_with_kvcache, q[None], k[None], v[None], **options, **rules.arguments
    )
    instance = target.answering(f"fa_decode_{dtype}_d{head_dim}")
    judge(shown, instance, "packed rows in turn", [Sequence(q, k, v, out[0], lse[0])], rules)


# Keys of the first tiles are so far below the last ones that fp32 rounds their scores coarsely. RDNA's
# kernels kept this rounding when the maximum rose: log-sum-exps were off by 1.7 and 470 times the limit.
STEEP = pytest.mark.parametrize("slope", [16.0, 4096.0])


def steep(target, function, slope, inputs, **options):
    """The sequence of a call with ALiBi."""
    q, k, v = (x.to(target.device) for x in inputs)
    slopes = torch.tensor([slope], device=target.device)
    (out, lse, *_), _ = target.attend(function, q[None], k[None], v[None], alibi_slopes=slopes, **options)
    return Sequence(q, k, v, out[0], lse[0], slopes)


@pytest.mark.divided
@instances
@STEEP
def test_slopes_with_early_keys_far_below_the_last(target, shown, dtype, head_dim, slope):
    inputs = [normal(rows, head_dim, rows).to(DTYPES[dtype]) for rows in (ROWS, KEYS, KEYS)]
    found = steep(target, flash_attn_func, slope, inputs, return_attn_probs=True)
    instance = target.answering(f"fa_fwd_{dtype}_d{head_dim}")
    judge(shown, instance, f"slope {slope}", [found], Rules())


@pytest.mark.divided
@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize(("dtype", "head_dim"), DECODE)
@STEEP
def test_slopes_with_early_keys_far_below_the_last_in_parts(target, shown, dtype, head_dim, splits, slope):
    inputs = [normal(rows, head_dim, rows).to(DTYPES[dtype]) for rows in (5, KEYS, KEYS)]
    options = {"num_splits": splits, "return_softmax_lse": True}
    found = steep(target, flash_attn_with_kvcache, slope, inputs, **options)
    instance = target.answering(f"fa_decode_{dtype}_d{head_dim}")
    judge(shown, instance, f"slope {slope}, {splits} parts", [found], Rules())


@instances
def test_nan_in_v_is_in_its_column_only(target, dtype, head_dim):
    """With every NaN pattern at risk in rounding."""
    q, k, v = (normal(n, head_dim, i).to(DTYPES[dtype])[None] for i, n in enumerate((ROWS, KEYS, KEYS)))
    for column, bits in enumerate((0x7FFF, -1, 0x7FF0, 0x7FC1)):
        v.view(torch.int16)[0, SPIKE, 0, 2 * column] = bits
    assert v[0, SPIKE, 0, :8:2].isnan().all()
    out, _ = target.attend(flash_attn_func, *(x.to(target.device) for x in (q, k, v)))
    found = out.cpu().isnan()
    assert found[..., :8:2].all()
    assert found.sum() == 4 * ROWS


@instances
@pytest.mark.parametrize(("op", "rows"), [("fwd", ROWS), ("decode", 8)])
def test_a_row_without_keys_is_0_beside_nan_in_v(target, dtype, head_dim, op, rows):
    """Its wave multiplies the tile's V for the rows below it."""
    blind = 5
    q, k = (normal(n, head_dim, n).to(DTYPES[dtype])[None] for n in (rows, rows - blind))
    there = (x.to(target.device) for x in (q, k, torch.full_like(k, math.nan)))
    (out, lse, _), kernels = target.attend(flash_attn_func, *there, causal=True, return_attn_probs=True)
    assert kernels is None or kernels == (f"fa_{op}_{dtype}_d{head_dim}",)
    assert (out[:, :blind] == 0).all()
    assert (lse[..., :blind] == math.inf).all()
    assert out[:, blind:].isnan().all()


def with_bad_keys(head_dim, dtype, rows):
    """One key of each head has a non-finite element: +inf, -inf or NaN."""
    bad = torch.tensor([math.inf, -math.inf, math.nan])
    q, k, v = (normal(n, 3 * head_dim, i).view(1, n, 3, head_dim) for i, n in enumerate((rows, KEYS, KEYS)))
    k[0, SPIKE, :, 0] = bad
    return [x.to(DTYPES[dtype]) for x in (q, k, v)]


def by_the_formula(q, k, v):
    """out and log-sum-exp of upstream's formula in float64: fmax ignores NaN, and a NaN sum gives
    +inf (flash_attn 2.8, csrc/flash_attn/src/softmax.h, normalize_softmax_lse)."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    highest = scores.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf).amax(-1, keepdim=True)
    p = torch.exp(scores - highest)
    total = p.sum(-1)
    lse = torch.where(total.isnan(), math.inf, highest[..., 0] + total.log())
    return ((p @ v) / total[..., None]).transpose(1, 2), lse


def has_no_number_where_the_formula_has_none(out, lse, inputs):
    wanted, wanted_lse = by_the_formula(*inputs)
    assert 0 < wanted.isnan().sum() < wanted.numel()
    assert torch.equal(out.cpu().isnan(), wanted.isnan())
    assert torch.equal(lse.cpu() == math.inf, wanted_lse == math.inf)
    assert not lse.isnan().any()


@instances
def test_infinite_keys_and_nan(target, dtype, head_dim):
    inputs = with_bad_keys(head_dim, dtype, ROWS)
    there = (x.to(target.device) for x in inputs)
    (out, lse, _), _ = target.attend(flash_attn_func, *there, return_attn_probs=True)
    has_no_number_where_the_formula_has_none(out, lse, inputs)


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize(("dtype", "head_dim"), DECODE)
def test_infinite_keys_and_nan_in_parts(target, dtype, head_dim, splits):
    inputs = with_bad_keys(head_dim, dtype, 5)
    there = (x.to(target.device) for x in inputs)
    (out, lse), _ = target.attend(flash_attn_with_kvcache, *there, num_splits=splits, return_softmax_lse=True)
    has_no_number_where_the_formula_has_none(out, lse, inputs)
