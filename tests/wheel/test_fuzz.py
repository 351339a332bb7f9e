"""Any arguments give an answer of the right shape or an error in words; nothing else."""

import math

import flash_attn_rocm as fa
import pytest
import torch
from flash_attn_rocm import FlashAttnArgumentError, explain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
SOME = settings(
    max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)

dtypes = st.sampled_from([torch.float16] * 6 + [torch.bfloat16, torch.float32, torch.int32, torch.complex64])
integers = st.one_of(st.integers(-3, 9), st.sampled_from([-(2**63), 2**31, 2**40, 2**70]))
numbers = st.one_of(
    st.floats(-1, 2),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e300, 10**400]),
    integers,
    st.none(),
    st.just("x"),
)
windows = st.one_of(
    st.just((-1, -1)), st.tuples(integers, integers), st.lists(integers, max_size=3), st.none(), st.just("ab")
)


def often(usual, odd):
    """Mostly what is right, so that examples get past the first check: one in twenty is odd."""
    return st.integers(0, 19).flatmap(lambda number: odd if number == 7 else usual)


@st.composite
def floats(draw, usual):
    """A tensor of about this shape, perhaps strided or of another kind, or no tensor."""
    sizes = [often(st.just(size), st.integers(0, 17)) for size in usual]
    sizes = draw(often(st.tuples(*sizes), st.lists(st.integers(0, 3), max_size=5)))
    kind = draw(
        often(st.just("plain"), st.sampled_from(["step", "expanded", "meta", "none", "text", "nan", "list"]))
    )
    if kind in {"none", "text", "list"}:
        return {"none": None, "text": "q", "list": [[1.0]]}[kind]
    dtype = draw(often(st.just(torch.float16), dtypes))
    if kind == "meta":
        return torch.empty(tuple(sizes), dtype=dtype, device="meta")
    if kind == "expanded":
        return torch.ones(()).to(dtype).expand(tuple(sizes))
    tensor = torch.full(tuple(sizes), math.nan if kind == "nan" and dtype.is_floating_point else 0.5).to(
        dtype
    )
    return tensor.repeat_interleave(2, -1)[..., ::2] if kind == "step" and tensor.dim() else tensor


@st.composite
def ints(draw, usual, values):
    """A tensor of int32 of about this shape, perhaps of another kind, or none."""
    kind = draw(
        often(st.just("int32"), st.sampled_from(["int64", "float", "none", "scalar", "meta", "shape"]))
    )
    if kind in {"none", "scalar"}:
        return None if kind == "none" else draw(integers)
    if kind == "shape":
        usual = draw(st.lists(st.integers(0, 3), max_size=3))
    count = math.prod(usual)
    data = draw(st.lists(often(values, st.integers(-(2**31), 2**31 - 1)), min_size=count, max_size=count))
    dtype = {"int64": torch.int64, "float": torch.float32}.get(kind, torch.int32)
    tensor = torch.tensor(data, dtype=torch.int64).to(dtype).view(tuple(usual))
    return tensor.to("meta") if kind == "meta" else tensor


@st.composite
def cumulative(draw):
    steps = draw(st.lists(st.integers(0, 4), min_size=2, max_size=2))
    sums = torch.tensor([0, steps[0], sum(steps)], dtype=torch.int32)
    return draw(often(st.just(sums), ints((3,), st.integers(-2, 9))))


rules = st.fixed_dictionaries(
    {},
    optional={
        "softmax_scale": often(st.just(0.3), numbers),
        "causal": st.booleans(),
        "window_size": often(st.just((2, 1)), windows),
        "softcap": often(st.just(0.0), numbers),
        "alibi_slopes": often(st.none(), floats((2,))),
    },
)
dropout = st.fixed_dictionaries(
    {}, optional={"dropout_p": often(st.just(0.2), numbers), "return_attn_probs": st.booleans()}
)


def answers(function, q, arguments, options):
    """Call; an answer has q's shape and dtype, an error says what to do.  explain agrees."""
    try:
        result = function(*arguments, **options)
    except FlashAttnArgumentError as error:
        text = str(error)
        assert "cannot use its arguments:\n  - " in text
        assert all(line.startswith("  - ") for line in text.splitlines()[1:])
        return
    out = result[0] if isinstance(result, tuple) else result
    assert out.shape == q(arguments[0]).shape
    assert out.dtype == arguments[0].dtype
    assert explain(function, *arguments, **options).path == "pytorch"


def first(packed):
    return packed


@SOME
@given(floats((2, 3, 2, 8)), floats((2, 4, 1, 8)), floats((2, 4, 1, 8)), rules, dropout)
def test_dense(q, k, v, rules, more):
    answers(fa.flash_attn_func, first, (q, k, v), rules | more)


@SOME
@given(floats((2, 3, 3, 2, 8)), rules, dropout)
def test_qkvpacked(qkv, rules, more):
    answers(fa.flash_attn_qkvpacked_func, lambda x: x[:, :, 0], (qkv,), rules | more)


@SOME
@given(floats((2, 3, 2, 8)), floats((2, 4, 2, 1, 8)), rules, dropout)
def test_kvpacked(q, kv, rules, more):
    answers(fa.flash_attn_kvpacked_func, first, (q, kv), rules | more)


lengths = often(st.just(8), st.one_of(integers, st.none(), st.just(torch.tensor(8)), st.just(torch.ones(2))))


@SOME
@given(
    floats((8, 2, 8)),
    floats((8, 1, 8)),
    floats((8, 1, 8)),
    cumulative(),
    cumulative(),
    lengths,
    lengths,
    rules,
    dropout,
)
def test_varlen(q, k, v, cu_q, cu_k, max_q, max_k, rules, more):
    answers(fa.flash_attn_varlen_func, first, (q, k, v, cu_q, cu_k, max_q, max_k), rules | more)


@SOME
@given(
    floats((8, 2, 8)), floats((3, 16, 1, 8)), floats((3, 16, 1, 8)), cumulative(), cumulative(),
    ints((2, 2), st.integers(0, 2)), rules,
)  # fmt: skip
def test_paged_varlen(q, k, v, cu_q, cu_k, table, rules):
    answers(fa.flash_attn_varlen_func, first, (q, k, v, cu_q, cu_k, 8, 8), rules | {"block_table": table})


@SOME
@given(floats((8, 3, 2, 8)), cumulative(), lengths, rules, dropout)
def test_varlen_qkvpacked(qkv, cu, most, rules, more):
    answers(fa.flash_attn_varlen_qkvpacked_func, lambda x: x[:, 0], (qkv, cu, most), rules | more)


@SOME
@given(floats((8, 2, 8)), floats((8, 2, 1, 8)), cumulative(), cumulative(), lengths, rules)
def test_varlen_kvpacked(q, kv, cu_q, cu_k, most, rules):
    answers(fa.flash_attn_varlen_kvpacked_func, first, (q, kv, cu_q, cu_k, most, most), rules)


cached = st.fixed_dictionaries(
    {},
    optional={
        "cache_seqlens": often(ints((2,), st.integers(0, 9)), integers),
        "cache_batch_idx": ints((2,), st.integers(0, 2)),
        "cache_leftpad": ints((2,), st.integers(0, 3)),
        "num_splits": often(st.just(0), integers),
        "rotary_interleaved": st.booleans(),
        "return_softmax_lse": st.booleans(),
    },
)
new = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {"k": floats((2, 2, 1, 16)), "v": floats((2, 2, 1, 16))},
        optional={"rotary_cos": floats((9, 8)), "rotary_sin": floats((9, 8))},
    ),
)


@SOME
@given(floats((2, 3, 2, 16)), floats((2, 9, 1, 16)), floats((2, 9, 1, 16)), cached, new, rules)
def test_kvcache(q, k_cache, v_cache, cached, new, rules):
    for tensor in (k_cache, v_cache):
        if isinstance(tensor, torch.Tensor) and any(step == 0 for step in tensor.stride()):
            return  # PyTorch refuses to write into memory that several elements share
    answers(fa.flash_attn_with_kvcache, first, (q, k_cache, v_cache), cached | new | rules)


@SOME
@given(
    floats((2, 3, 2, 16)),
    floats((4, 16, 1, 16)),
    floats((4, 16, 1, 16)),
    ints((2, 3), st.integers(0, 3)),
    cached,
    new,
)
def test_paged_kvcache(q, k_cache, v_cache, table, cached, new):
    for tensor in (k_cache, v_cache):
        if isinstance(tensor, torch.Tensor) and any(step == 0 for step in tensor.stride()):
            return
    answers(fa.flash_attn_with_kvcache, first, (q, k_cache, v_cache), cached | new | {"block_table": table})
