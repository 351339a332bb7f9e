"""Any arguments give an answer of the right shape or an error in words."""

import math

import flash_attn_rocm as fa
import pytest
import torch
from archs import ARCH, HostMemory
from conftest import FWD_ARGUMENTS
from flash_attn_rocm import FlashAttnArgumentError, explain
from flash_attn_rocm.serving import machine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch._C import DispatchKey, DispatchKeySet

GPUS, HOST_MEMORY = machine.Machine(), HostMemory(ARCH)
pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
SOME = settings(
    max_examples=120, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
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
    st.just((-1, -1)),
    st.tuples(integers, integers),
    st.lists(integers, max_size=3),
    st.none(),
    st.just("ab"),
    st.lists(st.integers(-3, 9), max_size=3).map(torch.tensor),
)

APPENDS = {fa.flash_attn_with_kvcache}


def often(usual, odd):
    """Mostly valid values, so that examples pass the first check. One in twenty is odd."""
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


def told(function, arguments, options):
    """A call's results, or its error's text."""
    torch.manual_seed(0)
    copies = [x.clone() if isinstance(x, torch.Tensor) and function in APPENDS else x for x in arguments]
    try:
        result = function(*copies, **options)
    except FlashAttnArgumentError as error:
        text = str(error)
        assert "cannot use its arguments:\n  - " in text
        assert all(line.startswith("  - ") for line in text.splitlines()[1:])
        return text
    return result if isinstance(result, tuple) else (result,)


def same(found, expected):
    if isinstance(expected, str):
        assert found == expected
        return
    # Padding to a kernel's head dim changes the order of fp32 sums.
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=2**-7, atol=2**-9, equal_nan=True)


def answers(function, q, arguments, options):
    """Call. An answer has q's shape (except for the headdim of v) and dtype. An error says what to do.

    explain agrees. The kernels' side acts equally, for a first call and for a remembered one.
    """
    machine.use(GPUS)
    expected = told(function, arguments, options)
    if not isinstance(expected, str):
        *_, v = (x for x in arguments[:3] if isinstance(x, torch.Tensor) and x.is_floating_point())
        assert expected[0].shape == (*q(arguments[0]).shape[:-1], v.shape[-1])
        assert expected[0].dtype == arguments[0].dtype
        assert explain(function, *arguments, **options).path == "pytorch"
    machine.use(HOST_MEMORY)
    for _ in range(2):
        same(told(function, arguments, options), expected)


@pytest.fixture(autouse=True)
def both_sides(host_fwd):
    """These calls on the kernels' side too."""
    yield
    machine.use(GPUS)


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
            return  # PyTorch refuses to write into memory shared by several elements
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


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_and_infinity_behave_as_the_formula_does(bad):
    """Effects of a bad query, key or value. Everything out of their reach is unchanged.

    In a query they spoil its row. In a key they spoil the rows that see it. In a value they spoil a column of
    these rows (and perhaps of others, because 0 * NaN is NaN).
    """
    given = {name: torch.randn(1, 6, 1, 16).half() for name in ("q", "k", "v")}
    given["q"] = given["q"].abs()  # gives a key of +inf scores of +inf
    clean = fa.flash_attn_func(**given, causal=True)
    spoilt = {"q": (slice(2, 3), slice(None)), "k": (slice(2, None), slice(None)), "v": (slice(2, None), 3)}
    whole = {"q": spoilt["q"], "k": spoilt["k"], "v": (slice(None), 3)}
    for name, (rows, columns) in spoilt.items():
        changed = {**given, name: given[name].clone()}
        changed[name][0, 2, 0, 3] = bad
        out = fa.flash_attn_func(**changed, causal=True)
        if name == "v" and bad == math.inf:
            assert (out[0, rows, 0, columns] == math.inf).all()
        else:
            assert out[0, rows, 0, columns].isnan().all(), name
        untouched = torch.ones(6, 16, dtype=torch.bool)
        untouched[whole[name]] = False
        assert torch.equal(out[0, :, 0][untouched], clean[0, :, 0][untouched]), name


any_int = st.integers(-(2**63), 2**63 - 1)
operands = st.fixed_dictionaries(
    {
        "q": floats((2, 3, 2, 64)), "k": floats((2, 4, 1, 64)), "v": floats((2, 4, 1, 64)),
        "out": floats((2, 3, 2, 64)), "lse": floats((2, 2, 3)),
    },
    optional={
        "alibi_slopes": floats((2,)), "cu_seqlens_q": cumulative(), "cu_seqlens_k": cumulative(),
        "seqused_k": ints((2,), st.integers(0, 9)), "leftpad_k": ints((2,), st.integers(0, 3)),
        "block_table": ints((2, 2), st.integers(0, 2)), "cache_batch_idx": ints((2,), st.integers(0, 2)),
        "rng_state": ints((2,), st.integers(0, 9)), "partial_out": floats((2, 2, 2, 3, 64)),
        "partial_lse": floats((2, 2, 2, 3)), "max_seqlen_q": any_int,
        "max_seqlen_k": any_int, "window_left": any_int,
        "window_right": any_int, "softmax_scale": st.floats(), "softcap": st.floats(),
        "dropout_p": st.floats(),
    },
)  # fmt: skip
NO_RUNTIME = "no HIP runtime in this process"
USUAL = {
    "max_seqlen_q": 3, "max_seqlen_k": 4, "softmax_scale": 0.1, "window_left": -1, "window_right": -1,
    "softcap": 0.0, "dropout_p": 0.0, "path": "",
}  # fmt: skip


@SOME
@given(operands)
def test_the_librarys_operator_refuses_in_words(given):
    """There is no HIP runtime here: every call that passes the checks ends in that error."""
    fwd = torch.ops.flash_attn_rocm.fwd.default
    arguments = [given.get(name, USUAL.get(name)) for name in FWD_ARGUMENTS]
    needed = [given[name] for name in ("q", "k", "v", "out", "lse")]
    if not all(isinstance(x, torch.Tensor) for x in needed) or any(
        isinstance(x, (str, list)) for x in arguments
    ):
        return  # PyTorch itself refuses
    tensors = [name for name in FWD_ARGUMENTS if name not in USUAL]
    if any(isinstance(given.get(name), int) for name in tensors) or needed[0].numel() == 0:
        return  # PyTorch refuses: no further check
    with pytest.raises(RuntimeError, match=rf"expected|{NO_RUNTIME}"):
        fwd.redispatch(DispatchKeySet(DispatchKey.CUDA), *arguments)
