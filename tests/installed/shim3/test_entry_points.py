"""Below the public functions: operators, and the two differentiated by hand in other libraries."""

import inspect

import flash_attn_interface as fa3
import pytest
import torch
from flash_attn_3 import _operators

OPERATORS = "fwd", "bwd", "fwd_combine"
NAMES_OF_FUNCTIONS = {
    "q_v": "qv",
    "out": "out_",
    "is_causal": "causal",
    "is_rotary_interleaved": "rotary_interleaved",
}
RULES = {"causal": True, "window_size_left": 4, "window_size_right": -1, "softcap": 3.0}


@pytest.fixture
def qkv():
    torch.manual_seed(0)
    return [torch.randn(2, 6, heads, 16, dtype=torch.float64) for heads in (4, 2, 2)]


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_have_the_arguments_of_the_functions(name):
    schema = getattr(torch.ops.flash_attn_3, name).default._schema.arguments
    wanted = inspect.signature(getattr(_operators, name)).parameters
    assert [each.name for each in schema] == list(wanted)
    defaults = [each.default_value if each.has_default_value() else inspect._empty for each in schema]
    assert defaults == [each.default for each in wanted.values()]


def test_the_forward_function_has_the_arguments_of_its_operator():
    of_operator = inspect.signature(_operators.fwd).parameters
    of_function = inspect.signature(fa3._flash_attn_forward).parameters
    assert [NAMES_OF_FUNCTIONS.get(name, name) for name in of_operator] == list(of_function)


@pytest.mark.parametrize("kind", ["dense", "packed", "used"])
def test_gradients_by_hand_are_those_of_autograd(qkv, kind):
    """As yunchang and Transformer Engine call them. Rows without a key have a log-sum-exp of -inf."""
    leaves = [x.flatten(0, 1).clone() if kind == "packed" else x for x in qkv]
    cut = torch.tensor([0, 5, 12], dtype=torch.int32)
    lengths = {
        "dense": {},
        "packed": {"cu_seqlens_q": cut, "cu_seqlens_k": cut, "max_seqlen_q": 7, "max_seqlen_k": 7},
        "used": {},
    }[kind]
    used = torch.tensor([3, 0], dtype=torch.int32) if kind == "used" else None
    given = {**lengths, "seqused_q": used if used is None else used + 2, "seqused_k": used}
    leaves = [x.requires_grad_() for x in leaves]
    out, lse, *rest = fa3._flash_attn_forward(*leaves, **given, softmax_scale=0.2, **RULES)
    assert [x.numel() for x in rest] == [0, 0]
    dout = torch.randn_like(out)
    wanted = torch.autograd.grad(out, leaves, dout)
    places = [torch.empty_like(x) for x in leaves]
    backward = {"sequed_q": given.pop("seqused_q"), "sequed_k": given.pop("seqused_k"), **lengths}
    rules = {"is_causal" if name == "causal" else name: rule for name, rule in RULES.items()}
    sums = fa3._flash_attn_backward(
        dout,
        *leaves,
        out,
        lse,
        **backward,
        dq=places[0],
        dk=places[1],
        dv=places[2],
        softmax_scale=0.2,
        **rules,
    )
    for found, other in zip(places, wanted, strict=True):
        torch.testing.assert_close(found, other, rtol=1e-12, atol=1e-13)
    assert sums.shape == (lse.transpose(0, 1).flatten(1).shape if kind == "used" else lse.shape)
    assert bool(lse.isneginf().any()) == (kind == "used")
    assert not lse.isposinf().any()


def test_operators_compute_without_gradients(qkv):
    found = torch.ops.flash_attn_3.fwd(*qkv, softmax_scale=0.2, is_causal=True, attention_chunk=4)
    wanted = fa3.flash_attn_func(
        *qkv, softmax_scale=0.2, causal=True, attention_chunk=4, return_attn_probs=True
    )
    assert torch.equal(found[0], wanted[0])
    assert torch.equal(found[1], wanted[1])
    gradients = torch.ops.flash_attn_3.bwd(found[0], *qkv, *found[:2], softmax_scale=0.2, is_causal=True)
    assert [x.shape for x in gradients[:4]] == [*(x.shape for x in qkv), found[1].shape]


def test_out_is_written_into_what_is_given(qkv):
    place = torch.empty_like(qkv[0])
    found = torch.ops.flash_attn_3.fwd(*qkv, out=place)[0]
    assert found.data_ptr() == place.data_ptr()
    assert torch.equal(place, fa3.flash_attn_func(*qkv))


def test_the_operator_of_a_cache_appends(qkv):
    q, k, v = qkv
    cache = [torch.zeros(2, 16, 2, 16, dtype=torch.float64) for _ in range(2)]
    used = torch.tensor([0, 3], dtype=torch.int32)
    out = torch.ops.flash_attn_3.fwd(q, *cache, k, v, seqused_k=used, is_causal=True)[0]
    assert torch.equal(cache[0][1, 3:9], k[1])
    again = [torch.zeros_like(x) for x in cache]
    wanted = fa3.flash_attn_with_kvcache(q, *again, k, v, cache_seqlens=used, causal=True)
    assert torch.equal(out, wanted)


def test_parts_make_the_whole(qkv):
    """Keys in two parts, and one part hidden from all rows."""
    q, k, v = qkv
    parts = [
        fa3.flash_attn_func(q, k[:, a:b], v[:, a:b], return_attn_probs=True) for a, b in ((0, 2), (2, 6))
    ]
    outs = torch.stack([*(out for out, _ in parts), torch.full_like(q, 7.0)])
    lses = torch.stack([*(lse.transpose(1, 2) for _, lse in parts), q.new_full(q.shape[:3], -torch.inf)])
    out, lse = fa3.flash_attn_combine(outs, lses)
    wanted, whole = fa3.flash_attn_func(q, k, v, return_attn_probs=True)
    torch.testing.assert_close(out, wanted, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(lse, whole.transpose(1, 2), rtol=1e-12, atol=1e-13)
    place = torch.empty_like(out, dtype=torch.float16)
    assert fa3.flash_attn_combine(outs, lses, place)[0] is place
    assert fa3.flash_attn_combine(outs, lses, out_dtype=torch.bfloat16)[0].dtype == torch.bfloat16


def test_parts_without_any_key_are_0_and_minus_infinity():
    out, lse = fa3.flash_attn_combine(torch.ones(3, 2, 4, 2, 8), torch.full((3, 2, 4, 2), -torch.inf))
    assert not out.any()
    assert lse.isneginf().all()


def test_a_schedule_is_one_number_that_nobody_reads(qkv):
    lengths = torch.tensor([4, 6], dtype=torch.int32)
    made = fa3.get_scheduler_metadata(2, 6, 6, 4, 2, 16, lengths, torch.float64)
    assert (made.shape, made.dtype) == ((1,), torch.int32)
    same = torch.ops.flash_attn_3.get_scheduler_metadata(2, 6, 6, 4, 2, 16, 16, torch.float16, lengths)
    assert torch.equal(same, made)
    found = fa3.flash_attn_with_kvcache(*qkv, cache_seqlens=lengths, scheduler_metadata=made)
    assert torch.equal(found, fa3.flash_attn_with_kvcache(*qkv, cache_seqlens=lengths))
