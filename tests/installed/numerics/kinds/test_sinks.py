"""Sinks on every kernel of the forward: one more key, with value 0 and a score of its own (see rule.py)."""

import math

import pytest
import torch
from flash_attn_rocm import attention, flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from flash_attn_rocm.autograd import recall
from flash_attn_rocm.library import plans
from flash_attn_rocm.serving import layouts
from flash_attn_rocm.suite.rule import DTYPES, Rules, Sequence, judge
from flash_attn_rocm.values import paths
from here import DECODE, FORWARD, MASKED, TALL, UNEVEN, WIDE

# Of each head: none, less than its scores, among them, and far above them.
SINKS = (-math.inf, -3.0, 1.0, 200.0)
HEADS, HEADS_K = 4, 2


def tensors(target, dtype, dims, rows, keys, batch=1):
    generator = torch.Generator().manual_seed(dims[0])
    sizes = ((rows, HEADS, dims[0]), (keys, HEADS_K, dims[0]), (keys, HEADS_K, dims[1]))
    made = (torch.randn(batch, *each, generator=generator).to(DTYPES[dtype]) for each in sizes)
    return [x.to(target.device) for x in made]


def causal(rows, keys):
    return torch.arange(keys) <= torch.arange(rows)[:, None] + keys - rows


def with_sink(q, k, v, out, lse, seen):
    """The sink as a key: `seen` (rows, keys) for all heads."""
    q, k, v, out, lse = (x.cpu() for x in (q, k, v, out, lse))
    bias = torch.zeros(HEADS, len(q), len(k) + 1)
    bias[..., :-1].masked_fill_(~seen, -math.inf)
    bias[..., -1] = torch.tensor(SINKS)[:, None]
    k, v = (torch.cat((x, torch.zeros_like(x[:1]))) for x in (k, v))
    return Sequence(q, k, v, out, lse, bias=bias)


def check(target, shown, kernels, sequences):
    """`kernels`: of the last call, its answer's first."""
    assert target.runtime is None or target.kernels == kernels
    answering = next(name for name in kernels if "mask_ranges" not in name)
    judge(shown, target.answering(answering), "sinks", sequences, Rules())


def flat(target):
    """Slopes of ALiBi that change no score, and take the loop with features."""
    return torch.zeros(HEADS, device=target.device)


def sinks(target):
    return torch.tensor(SINKS, device=target.device)


@pytest.mark.parametrize(("dtype", "head_dim"), FORWARD)
def test_forward(target, shown, dtype, head_dim):
    q, k, v = tensors(target, dtype, (head_dim, head_dim), 37, 53)
    options = {"causal": True, "sink": sinks(target), "return_attn_probs": True}
    (out, lse, _), _ = target.attend(flash_attn_func, q, k, v, **options)
    check(
        target, shown, (f"fa_fwd_{dtype}_d{head_dim}",),
        [with_sink(q[0], k[0], v[0], out[0], lse[0], causal(37, 53))],
    )  # fmt: skip


@pytest.mark.parametrize(("dtype", "head_dim"), FORWARD)
def test_packed_sequences_with_features(target, shown, dtype, head_dim):
    """The loop with features, and sinks in the tensors' type."""
    rows, keys = (5, 0, 30), (20, 7, 33)
    q, k, v = (x[0] for x in tensors(target, dtype, (head_dim, head_dim), sum(rows), sum(keys)))
    ends = [
        torch.tensor([0, *torch.tensor(n).cumsum(0)], dtype=torch.int32, device=target.device)
        for n in (rows, keys)
    ]
    (out, lse, _), _ = target.attend(
        flash_attn_varlen_func, q, k, v, *ends, 30, 33, causal=True, alibi_slopes=flat(target),
        sink=sinks(target).to(q.dtype), return_attn_probs=True,
    )  # fmt: skip
    cut = zip(q.split(rows), k.split(keys), v.split(keys), out.split(rows), lse.split(rows, 1), strict=True)
    found = [with_sink(*each, causal(len(each[0]), len(each[1]))) for each in cut]
    check(target, shown, (f"fa_fwd_{dtype}_d{head_dim}",), found)


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(("dtype", "head_dim"), DECODE)
def test_a_cache_of_few_queries(target, shown, dtype, head_dim, splits, features):
    """In parts of the keys, their results are joined with the sink once."""
    lengths = (150, 20)
    q, k, v = tensors(target, dtype, (head_dim, head_dim), 2, 160, batch=2)
    used = torch.tensor(lengths, dtype=torch.int32, device=target.device)
    (out, lse), _ = target.attend(
        flash_attn_with_kvcache, q, k, v, cache_seqlens=used, causal=True, num_splits=splits,
        alibi_slopes=flat(target) if features else None, sink=sinks(target), return_softmax_lse=True,
    )  # fmt: skip
    joins = (f"fa_combine_{dtype}",) if splits > 1 else ()
    found = [with_sink(q[b], k[b, :n], v[b, :n], out[b], lse[b], causal(2, n)) for b, n in enumerate(lengths)]
    check(target, shown, (f"fa_decode_{dtype}_d{head_dim}", *joins), found)


# Values of bf16 beyond fp16's take another loop.
MASKED_VALUES = [(*each, size) for each in MASKED for size in (1, 2.0**40) if size == 1 or each[0] == "bf16"]


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
@pytest.mark.parametrize(("dtype", "head_dim", "size"), MASKED_VALUES)
def test_masks(target, shown, dtype, head_dim, size, kind):
    q, k, v = tensors(target, dtype, (head_dim, head_dim), 37, 53)
    v = v * size
    seen = torch.rand(37, 53, generator=torch.Generator().manual_seed(1)) < 0.5
    mask = seen if kind == torch.bool else torch.zeros(37, 53).masked_fill(~seen, -math.inf)
    (out, lse, _), _ = target.attend(
        attention, q, k, v, mask.to(target.device), sink=sinks(target), return_attn_probs=True
    )
    ranges = ("fa_mask_ranges_fp16",) if kind == torch.bool else ()
    kernels = (*ranges, f"fa_fwd_masked_{dtype}_d{head_dim}")
    check(target, shown, kernels, [with_sink(q[0], k[0], v[0], out[0], lse[0], seen)])


@pytest.mark.parametrize(("dtype", "head_dim"), MASKED)
def test_masks_and_dropout(target, shown, dtype, head_dim):
    """Dropout has a loop of its own. With so small a probability it drops nothing here. It returns no lse."""
    q, k, v = tensors(target, dtype, (head_dim, head_dim), 37, 53)
    seen = torch.rand(37, 53, generator=torch.Generator().manual_seed(1)) < 0.5
    given, sink = (q, k, v, seen.to(target.device)), sinks(target)
    (_, lse, _), _ = target.attend(attention, *given, sink=sink, return_attn_probs=True)
    torch.manual_seed(0)
    out, _ = target.attend(attention, *given, dropout_p=2.0**-30, sink=sink)
    kernels = ("fa_mask_ranges_fp16", f"fa_fwd_masked_{dtype}_d{head_dim}")
    check(target, shown, kernels, [with_sink(q[0], k[0], v[0], out[0], lse[0], seen)])


@pytest.mark.parametrize(("dtype", "head_dim"), MASKED)
def test_rows_of_the_lowest_bias(target, dtype, head_dim):
    """Padding of transformers: the mean of v for the head without a sink, and 0 for the others."""
    q, k, v = tensors(target, dtype, (head_dim, head_dim), 9, 24)
    mask = torch.zeros(9, 24, device=target.device)
    mask[:4] = torch.finfo(torch.float32).min
    out, _ = target.attend(attention, q, k, v, mask, sink=sinks(target))
    assert out.isfinite().all()
    mean = v[0, :, 0].float().mean(0).expand(4, head_dim)
    torch.testing.assert_close(out[0, :4, 0].float(), mean, atol=2**-8, rtol=2**-7)
    assert (out[0, :4, 1:].abs() < 1e-6).all()


@pytest.mark.parametrize("dtype", [dtype for dtype, _ in UNEVEN])
def test_another_head_dim_of_v(target, shown, dtype):
    q, k, v = tensors(target, dtype, (192, 128), 37, 53)
    (out, lse, _), _ = target.attend(flash_attn_func, q, k, v, sink=sinks(target), return_attn_probs=True)
    seen = torch.ones(37, 53, dtype=torch.bool)
    found = [with_sink(q[0], k[0], v[0], out[0], lse[0], seen)]
    check(target, shown, (f"fa_fwd_uneven_{dtype}_d192",), found)


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("dtype", [dtype for dtype, _ in WIDE])
def test_head_dims_above_256(target, shown, dtype, splits):
    q, k, v = tensors(target, dtype, (512, 512), 20, 150)
    (out, lse), _ = target.attend(
        flash_attn_with_kvcache, q, k, v, num_splits=splits, sink=sinks(target), return_softmax_lse=True
    )
    joins = (f"fa_combine_{dtype}",) if splits > 1 else ()
    found = [with_sink(q[0], k[0], v[0], out[0], lse[0], torch.ones(20, 150, dtype=torch.bool))]
    check(target, shown, (f"fa_fwd_wide_{dtype}_d512", *joins), found)


@pytest.mark.parametrize("path", [paths.TALL, paths.REFERENCE])
def test_other_paths(target, shown, monkeypatch, path):
    """Of calls with many rows, and of calls for no other kernel."""
    instances = TALL if path == paths.TALL else [(dtype, 64) for dtype in DTYPES]
    monkeypatch.setattr(layouts, "plan", lambda *_: plans.Plan(path, 1, "the test's"))
    recall.forget()
    try:
        for dtype, head_dim in instances:
            q, k, v = tensors(target, dtype, (head_dim, head_dim), 33, 40)
            options = {"causal": True, "sink": sinks(target), "return_attn_probs": True}
            (out, lse, _), _ = target.attend(flash_attn_func, q, k, v, **options)
            of_path = f"fa_fwd_tall_{dtype}_d{head_dim}" if path == paths.TALL else f"fa_reference_{dtype}"
            found = [with_sink(q[0], k[0], v[0], out[0], lse[0], causal(33, 40))]
            check(target, shown, (of_path,), found)
    finally:
        recall.forget()


@pytest.mark.parametrize("splits", [1, 3])
def test_rows_without_keys_are_0(target, splits):
    q, k, v = tensors(target, "fp16", (64, 64), 9, 5)
    options = {"causal": True, "sink": sinks(target), "return_softmax_lse": True}
    (out, lse), _ = target.attend(flash_attn_with_kvcache, q, k, v, num_splits=splits, **options)
    assert (out[:, :4] == 0).all()
    assert lse[..., :4].isposinf().all()
    assert lse[..., 4:].isfinite().all()
