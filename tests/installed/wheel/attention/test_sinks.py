"""Sinks: one more key for each head. The sink is its score, and 0 its value."""

import random

import flash_attn_rocm as fa
import pytest
import torch
from archs import ARCH
from exact import assert_close_enough, run
from flash_attn_rocm import FlashAttnArgumentError, attention, explain, flash_attn_func
from flash_attn_rocm.rewrite import sinks as rewritten

pytestmark = [
    pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning"),
    # PyTorch's own tracer does this to every autograd function.
    pytest.mark.filterwarnings(
        "ignore:.*autograd.function.Function.* should not be instantiated:DeprecationWarning"
    ),
]

NHEADS = 4


def tensors(rows=5, keys=7, dtype=torch.float64):
    q = torch.randn(2, rows, NHEADS, 8, dtype=dtype)
    k, v = torch.randn(2, 2, keys, 2, 8, dtype=dtype)
    return q, k, v, torch.randn(NHEADS, dtype=dtype)


def by_formula(q, k, v, sinks, seen, softcap=0.0):
    """The softmax of scores and sink.

    The sink's probability has no value. Returns the log-sum-exp of both too.
    """
    k, v = (x.repeat_interleave(q.shape[2] // k.shape[2], dim=2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    scores = scores.masked_fill(~seen, float("-inf"))
    column = sinks.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
    both = torch.cat([scores, column], dim=-1)
    blind = ~seen.any(-1, keepdim=True)
    shares = both.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)[..., :-1]
    out = torch.einsum("bhij,bjhd->bihd", shares, v)
    return out, both.logsumexp(-1).masked_fill(blind[..., 0], float("inf"))


def causal(rows, keys, window=None):
    distance = torch.arange(rows)[:, None] + keys - rows - torch.arange(keys)
    return (distance >= 0) & (distance <= (keys if window is None else window))


@pytest.mark.parametrize("window", [None, 2])
def test_they_are_one_more_key(window):
    given = tensors()
    sides = (-1 if window is None else window, 0)
    found, lse, _ = flash_attn_func(*given[:3], window_size=sides, sink=given[3], return_attn_probs=True)
    for a, b in zip((found, lse), by_formula(*given, causal(5, 7, window)), strict=True):
        torch.testing.assert_close(a, b)


def test_gradients_are_those_of_the_formula():
    given = [x.requires_grad_() for x in tensors()]
    weights = torch.randn(2, 5, NHEADS, 8, dtype=torch.float64)
    out = flash_attn_func(*given[:3], causal=True, sink=given[3])
    found = torch.autograd.grad((out * weights).sum(), given)
    expected = torch.autograd.grad((by_formula(*given, causal(5, 7))[0] * weights).sum(), given)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_a_sink_alone_gets_its_gradient():
    q, k, v, sinks = tensors()
    sinks.requires_grad_()
    for _ in range(2):
        [found] = torch.autograd.grad(flash_attn_func(q, k, v, causal=True, sink=sinks).sum(), sinks)
        [expected] = torch.autograd.grad(by_formula(q, k, v, sinks, causal(5, 7))[0].sum(), sinks)
        torch.testing.assert_close(found, expected)


def packed(q, k, v, sinks):
    """The calls of all functions that take one sequence length for all, by name."""
    qkv, kv = torch.stack((q, k, v), 2), torch.stack((k, v), 2)
    rows = q.shape[1]
    ends = torch.arange(3, dtype=torch.int32) * rows
    cut, options = (ends, ends, rows, rows), {"causal": True, "sink": sinks}
    flat = [x.flatten(0, 1) for x in (q, k, v)]
    pages = [x.view(-1, 16, *x.shape[2:]) for x in (k, v)]
    table = torch.arange(len(pages[0]), dtype=torch.int32).view(2, -1)
    return {
        "dense": lambda: flash_attn_func(q, k, v, **options),
        "attention": lambda: attention(q, k, v, causal(rows, rows), sink=sinks),
        "qkvpacked": lambda: fa.flash_attn_qkvpacked_func(qkv, **options),
        "kvpacked": lambda: fa.flash_attn_kvpacked_func(q, kv, **options),
        "varlen": lambda: fa.flash_attn_varlen_func(*flat, *cut, **options),
        "varlen qkv": lambda: fa.flash_attn_varlen_qkvpacked_func(qkv.flatten(0, 1), ends, rows, **options),
        "varlen kv": lambda: fa.flash_attn_varlen_kvpacked_func(flat[0], kv.flatten(0, 1), *cut, **options),
        "paged": lambda: fa.flash_attn_varlen_func(flat[0], *pages, *cut, block_table=table, **options),
        "cache": lambda: fa.flash_attn_with_kvcache(q, k, v, **options),
        "splits": lambda: fa.flash_attn_with_kvcache(q, k, v, num_splits=3, **options),
        "paged cache": lambda: fa.flash_attn_with_kvcache(q, *pages, block_table=table, **options),
    }


@pytest.mark.parametrize("name", packed(*[torch.zeros(2, 16, 4, 8)] * 3, None))
def test_every_function_has_them(name):
    q, k, v = torch.randn(3, 2, 32, NHEADS, 8, dtype=torch.float64)
    sinks = torch.randn(NHEADS)
    found = packed(q, k, v, sinks)[name]()
    expected = by_formula(q, k, v, sinks.double(), causal(32, 32))[0]
    torch.testing.assert_close(found.view_as(q), expected)


@pytest.mark.parametrize("name", ["qkvpacked", "kvpacked", "varlen", "varlen qkv", "varlen kv"])
def test_every_function_with_gradients_has_theirs(name):
    shapes = [(2, 16, NHEADS, 8)] * 3 + [(NHEADS,)]
    leaves = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    found = torch.autograd.grad(packed(*leaves)[name]().square().sum(), leaves)
    expected = torch.autograd.grad(by_formula(*leaves, causal(16, 16))[0].square().sum(), leaves)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_rows_without_keys_are_0_and_have_no_gradient():
    q, k, v, sinks = (x.requires_grad_() for x in tensors(rows=7, keys=5))
    out, lse, _ = flash_attn_func(q, k, v, causal=True, sink=sinks, return_attn_probs=True)
    dout = torch.ones_like(out)
    dout[:, :2] = float("nan")  # for any content
    found = torch.autograd.grad(out, (k, v, sinks), dout)
    assert (out[:, :2] == 0).all()
    assert lse[..., :2].isposinf().all()
    assert found[2].isfinite().all()
    out, _, _ = flash_attn_func(q, k, v, causal=True, sink=sinks, return_attn_probs=True)
    [dq] = torch.autograd.grad(out.sum(), q)
    assert (dq[:, :2] == 0).all()


def test_minus_infinity_is_no_sink():
    q, k, v, _ = tensors()
    sinks = torch.full((NHEADS,), float("-inf"), requires_grad=True)
    out = flash_attn_func(q, k, v, sink=sinks)
    assert torch.equal(out, flash_attn_func(q, k, v))
    assert (torch.autograd.grad(out.sum(), sinks)[0] == 0).all()


def test_nan_gives_nan_as_the_formula_does():
    leaves = [x.requires_grad_() for x in tensors()]
    with torch.no_grad():
        leaves[3][1] = float("nan")
    found = torch.autograd.grad(flash_attn_func(*leaves[:3], sink=leaves[3]).sum(), leaves)
    expected = torch.autograd.grad(by_formula(*leaves, torch.ones(5, 7).bool())[0].sum(), leaves)
    for one, other in zip(found, expected, strict=True):
        assert other.isnan().any()
        torch.testing.assert_close(one, other, equal_nan=True)


def test_the_gradient_of_nan_is_nan_where_kernels_write_infinity():
    lse = torch.tensor([[float("inf"), 1.0], [float("inf"), float("inf")]])
    sums = torch.tensor([[float("nan"), 2.0], [1.0, 1.0]])
    found = rewritten.gradient(torch.tensor([1.0, float("nan")]), lse, sums)
    torch.testing.assert_close(found, torch.tensor([-2.0, float("nan")]), equal_nan=True)


def test_dropout_is_that_of_the_call():
    """The backward pass drops the forward's probabilities: attention is linear in v."""
    q, k, v, sinks = tensors()
    v.requires_grad_()
    torch.manual_seed(1)
    out, _, weights = flash_attn_func(q, k, v, 0.5, sink=sinks, return_attn_probs=True)
    dout = torch.randn_like(out)
    [found] = torch.autograd.grad(out, v, dout)
    torch.testing.assert_close((found * v).sum(), (out * dout).sum())
    lse = by_formula(q, k, v, sinks, torch.ones(5, 7, dtype=torch.bool))[1]
    assert (weights < 0).any()
    share = weights.abs().sum(-1)
    torch.testing.assert_close(share, 1 - (sinks[:, None] - lse).exp())


def test_there_is_no_second_derivative():
    given = [x.requires_grad_() for x in tensors()]
    out = flash_attn_func(*given[:3], sink=given[3])
    with pytest.raises(RuntimeError, match="attention has no second derivative"):
        torch.autograd.grad(out.sum(), given[0], create_graph=True)


def drawn(seed):
    """q, k, v and sinks in fp16 or bf16, the visible keys, and their options."""
    source = random.Random(seed)
    torch.manual_seed(seed)
    dtype = source.choice([torch.float16, torch.bfloat16])
    rows, keys, heads_k = (source.randint(*ends) for ends in ((1, 40), (1, 50), (1, 3)))
    nheads, head_dim = heads_k * source.randint(1, 3), source.choice([8, 40, 64])
    left, softcap = source.choice([-1, source.randint(0, 12)]), source.choice([0.0, 5.0])
    q = torch.randn(2, rows, nheads, head_dim)
    k, v = torch.randn(2, 2, keys, heads_k, head_dim)
    sinks = torch.randn(nheads) * source.choice([1, 4]) - source.choice([0, 6])
    seen = causal(rows, keys, None if left < 0 or left >= keys else left)
    options = {"window_size": (left, 0), "softcap": softcap}
    return tuple(x.to(dtype) for x in (q, k, v, sinks)), seen, options


@pytest.mark.parametrize("seed", range(24))
def test_drawn_cases(seed):
    """Both answers' errors against float64 follow the numerics rule."""
    (q, k, v, sinks), seen, options = drawn(seed)
    dout = torch.randn_like(q)

    def ours(q, k, v):
        return flash_attn_func(q, k, v, sink=sinks, **options)

    def formula(q, k, v):
        return by_formula(q, k, v, sinks.to(q.dtype), seen, options["softcap"])[0]

    found, low, exact = (
        run(each, (q, k, v), dtype, dout)
        for each, dtype in ((ours, q.dtype), (formula, q.dtype), (formula, torch.float64))
    )
    assert_close_enough(found, low, exact, (q, k, v), dout)


def test_explain_names_the_kernels(qkv, kernels_on):
    kernels_on(ARCH)
    plain, found = explain(*qkv), explain(*qkv, sink=torch.zeros(4))
    assert found
    assert found == plain


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        (torch.zeros(3), "sink: expected shape (4,), got (3,)"),
        (torch.zeros(2, 4), "sink: expected shape (4,), got (2, 4)"),
        (torch.zeros(4).int(), "sink: expected a floating-point dtype, got torch.int32"),
        (torch.zeros(4, device="meta"), "sink: expected device cpu like q, got meta"),
        (0.5, "sink: expected a tensor (4,), got float"),
    ],
)
@pytest.mark.parametrize("function", [flash_attn_func, fa.flash_attn_with_kvcache, attention])
def test_wrong_sinks(qkv, function, sink, words):
    with pytest.raises(FlashAttnArgumentError) as caught:
        function(*qkv, sink=sink)
    assert words in str(caught.value)


def test_compiled_with_gradients():
    q, k, v, sinks = tensors(dtype=torch.float16)
    leaves = [x.requires_grad_() for x in (q, k, v, sinks)]

    def attend(q, k, v, sinks):
        return flash_attn_func(q, k, v, causal=True, sink=sinks)

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    for found, wanted in zip(
        *((out, *torch.autograd.grad(out.sum(), leaves)) for out in (compiled(*leaves), attend(*leaves))),
        strict=True,
    ):
        assert torch.equal(found, wanted)


def test_torch_func():
    q, k, v, sinks = tensors()

    def loss(sinks, q):
        return flash_attn_func(q, k, v, causal=True, sink=sinks).square().sum()

    leaves = [x.clone().requires_grad_() for x in (sinks, q)]
    out = by_formula(leaves[1], k, v, leaves[0], causal(5, 7))[0]
    expected = torch.autograd.grad(out.square().sum(), leaves)
    for a, b in zip(torch.func.grad(loss, argnums=(0, 1))(sinks, q), expected, strict=True):
        torch.testing.assert_close(a, b)
    some = torch.stack((sinks, sinks + 1))
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(0, None))(some, q)
    torch.testing.assert_close(each, torch.stack([torch.func.grad(loss)(x, q) for x in some]))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # of the formula
def test_forward_mode():
    q, k, v, sinks = tensors()
    dq = torch.randn_like(q)
    _, found = torch.func.jvp(lambda x: flash_attn_func(x, k, v, causal=True, sink=sinks), (q,), (dq,))
    _, wanted = torch.func.jvp(lambda x: by_formula(x, k, v, sinks, causal(5, 7))[0], (q,), (dq,))
    torch.testing.assert_close(found, wanted)
    with pytest.raises(RuntimeError, match="alibi_slopes, attn_mask or sink has a tangent"):
        torch.func.jvp(lambda x: flash_attn_func(q, k, v, sink=x), (sinks,), (sinks,))
