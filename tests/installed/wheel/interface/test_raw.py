"""The entry points below the public functions, in our package and as the distribution flash-attn has them."""

import inspect

import flash_attn
import flash_attn_rocm
import pytest
import torch
from flash_attn import bert_padding, flash_attn_interface
from flash_attn.layers import rotary
from flash_attn_rocm import (
    FlashAttnArgumentError,
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
    raw,
)

pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
RULES = (0.2, True, 5, 0, 0.0)  # softmax_scale, is_causal, window_size_left and _right, softcap
OPTIONS = {"softmax_scale": 0.2, "causal": True, "window_size": (5, 0)}


def packed(qkv):
    q, k, v = (x.flatten(0, 1) for x in qkv)
    return (q, k, v), tuple(torch.tensor(x, dtype=torch.int32) for x in ([0, 2, 10], [0, 6, 14]))


@pytest.mark.parametrize("dropout_p", [0.0, 0.3])
def test_dense(qkv, dropout_p):
    leaves = [x.requires_grad_() for x in qkv]
    slopes = torch.rand(4)
    torch.manual_seed(3)
    wanted = flash_attn_func(
        *leaves, dropout_p=dropout_p, alibi_slopes=slopes, return_attn_probs=True, **OPTIONS
    )
    dout = torch.randn_like(wanted[0])
    gradients = torch.autograd.grad(wanted[0], leaves, dout)
    torch.manual_seed(3)
    given = torch.empty_like(qkv[0])
    *found, state = raw.fwd(*leaves, given, slopes, dropout_p, *RULES, True)
    assert found[0] is given
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert (state.shape, state.dtype) == ((2,), torch.int64)
    places = [torch.empty_like(x) for x in qkv]
    *found, sums = raw.bwd(dout, *leaves, *wanted[:2], *places, slopes, dropout_p, *RULES, False, None, state)
    assert all(a is b for a, b in zip(found, places, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(found, gradients, strict=True))
    assert torch.equal(sums, (dout.float() * wanted[0].float()).sum(-1).transpose(1, 2))


@pytest.mark.parametrize("dropout_p", [0.0, 0.3])
def test_varlen(qkv, dropout_p):
    tensors, cut = packed(qkv)
    leaves = [x.requires_grad_() for x in tensors]
    torch.manual_seed(3)
    out, lse, _ = flash_attn_varlen_func(
        *leaves, *cut, 8, 8, dropout_p=dropout_p, return_attn_probs=True, **OPTIONS
    )
    dout = torch.randn_like(out)
    gradients = torch.autograd.grad(out, leaves, dout)
    torch.manual_seed(3)
    found = flash_attn_interface._wrapped_flash_attn_varlen_forward(
        *leaves, *cut, 8, 8, dropout_p, *RULES[:4]
    )
    assert torch.equal(found[0], out)
    assert torch.equal(found[1], lse)
    assert found[2].numel() == 0
    places = [torch.empty_like(x) for x in tensors]
    sums = flash_attn_interface._wrapped_flash_attn_varlen_backward(
        dout, *leaves, out, lse, *places, *cut, 8, 8, dropout_p, *RULES, None, False, rng_state=found[3]
    )
    assert all(torch.equal(a, b) for a, b in zip(places, gradients, strict=True))
    assert sums.shape == lse.shape


def test_only_some_keys_count(qkv):
    (q, k, v), cut = packed(qkv)
    used, pad = (torch.tensor(x, dtype=torch.int32) for x in ([4, 8], [1, 0]))
    out = raw.varlen_fwd(
        q, k, v, None, *cut, used, pad, None, None, 8, 8, 0.0, 0.2, False, False, -1, -1, 0.0, False
    )[0]
    wanted = [flash_attn_func(q[None, a:b], k[None, c:d], v[None, c:d], softmax_scale=0.2)[0]
              for a, b, c, d in ((0, 2, 1, 4), (2, 10, 6, 14))]  # fmt: skip
    assert torch.equal(out, torch.cat(wanted))
    with pytest.raises(RuntimeError, match=r"seqused_k: expected shape \(2,\), got \(1,\)"):
        raw.varlen_fwd(
            q, k, v, None, *cut, used[:1], None, None, None, 8, 8, 0.0, 0.2, False, False, -1, -1, 0.0, False
        )


def test_dense_functions_of_the_shim(qkv):
    out, lse, _, state = flash_attn_interface._wrapped_flash_attn_forward(
        *qkv, 0.0, 0.2, causal=True, window_size_left=5, window_size_right=0, softcap=0.0, alibi_slopes=None,
        return_softmax=False,
    )  # fmt: skip
    assert torch.equal(out, flash_attn_func(*qkv, **OPTIONS))
    places = [torch.empty_like(x) for x in qkv]
    sums = flash_attn_interface._wrapped_flash_attn_backward(
        out, *qkv, out, lse, *places, 0.0, 0.2, True, 5, 0, 0.0, None, False, rng_state=state
    )
    wanted = raw.bwd(out, *qkv, out, lse, None, None, None, None, 0.0, *RULES, False)
    assert all(torch.equal(a, b) for a, b in zip((*places, sums), wanted, strict=True))


def test_dropout_needs_its_key_again(qkv):
    out, lse, _, _ = raw.fwd(*qkv, None, None, 0.3, *RULES, False)
    with pytest.raises(RuntimeError, match="rng_state: expected that of the forward pass") as caught:
        raw.bwd(out, *qkv, out, lse, None, None, None, None, 0.3, *RULES, False)
    assert "next: pass the last tensor" in str(caught.value)


def test_cache(qkv):
    q, *cache = qkv
    lengths = torch.tensor([3, 6], dtype=torch.int32)
    wanted = flash_attn_with_kvcache(q, *cache, cache_seqlens=lengths, return_softmax_lse=True, **OPTIONS)
    found = raw.fwd_kvcache(q, *cache, None, None, lengths, *[None] * 7, *RULES, True, 0)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_a_generator_raises_an_error(qkv):
    """It was accepted, and torch's default one was drawn from."""
    (tensors, cut), lse, generator = packed(qkv), torch.zeros(2, 4, 6), torch.Generator()
    rules, ragged = (0.3, *RULES), (None, 8, 8, 0.3, 0.2, False, *RULES[1:])
    calls = {
        raw.fwd: (*qkv, None, None, *rules, False, generator),
        raw.varlen_fwd: (*tensors, None, *cut, None, None, None, *ragged, False, generator),
        raw.bwd: (qkv[0], *qkv, qkv[0], lse, None, None, None, None, *rules, False, generator),
        raw.varlen_bwd: (
            tensors[0], *tensors, tensors[0], lse, None, None, None, *cut, *ragged, False, generator,
        ),
    }  # fmt: skip
    for function, arguments in calls.items():
        with pytest.raises(RuntimeError, match="gen_: expected None, got Generator") as caught:
            function(*arguments)
        assert "next: pass None, and seed with torch.manual_seed" in str(caught.value)


FWD_PLACES = [
    (lambda q: q.new_empty(4, *q.shape[1:]), "out_: expected shape (2, 5, 4, 64) of torch.float16 on cpu, "),
    (lambda q: q.to(torch.int32), "got (2, 5, 4, 64) of torch.int32 on cpu"),
    (lambda q: q[..., 1:], "got (2, 5, 4, 63) of torch.float16 on cpu"),
]


@pytest.mark.parametrize(("change", "words"), FWD_PLACES)
def test_a_place_that_does_not_fit_is_refused(qkv, change, words):
    """A larger batch got copies, and another dtype got rounded numbers."""
    q, *cache = qkv
    (tensors, cut), place = packed(qkv), change(q)
    calls = {
        raw.fwd: (q, *cache, place, None, 0.0, *RULES, False),
        raw.fwd_kvcache: (q, *cache, *[None] * 9, place, *RULES, True, 0),
    }
    for function, arguments in calls.items():
        with pytest.raises(FlashAttnArgumentError, match=rf"^{function.__name__} cannot use") as caught:
            function(*arguments)
        assert words in str(caught.value)
    rules = (8, 8, 0.0, 0.2, False, *RULES[1:], False)
    with pytest.raises(FlashAttnArgumentError, match=r"^varlen_fwd cannot use(.|\n)*out_: expected shape"):
        raw.varlen_fwd(*tensors, place.flatten(0, 1)[1:], *cut, *[None] * 4, *rules)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("dout", lambda x: x.float(), "dout: expected shape (2, 5, 4, 64) of torch.float16 on cpu, got "),
        ("out", lambda x: x[:1], "out: expected shape (2, 5, 4, 64) of torch.float16 on cpu, got (1, 5,"),
        ("lse", lambda x: x[..., :3], "softmax_lse: expected shape (2, 4, 5) of torch.float32 on cpu, got "),
        ("lse", lambda x: x.double(), "got (2, 4, 5) of torch.float64 on cpu"),
        ("dq", lambda x: x.float(), "dq_: expected shape (2, 5, 4, 64) of torch.float16 on cpu, got "),
        ("dk", lambda x: x[:, :, :1], "dk_: expected shape (2, 7, 2, 64) of torch.float16 on cpu, got "),
        ("dv", lambda x: x.new_empty(3, 7, 2, 64), "dv_: expected shape (2, 7, 2, 64) of torch.float16 on"),
    ],
)
def test_tensors_of_another_forward_pass_are_refused(qkv, name, change, words):
    """Some broadcast to NaN."""
    out, lse, *_ = raw.fwd(*qkv, None, None, 0.0, *RULES, False)
    given = {"dout": out, "out": out, "lse": lse} | dict(zip(("dq", "dk", "dv"), qkv, strict=True))
    given[name] = change(given[name].clone())
    (dout, out, lse, *places), rules = given.values(), (0.0, *RULES, False)
    with pytest.raises(FlashAttnArgumentError, match=r"^bwd cannot use") as caught:
        raw.bwd(dout, *qkv, out, lse, *places, None, *rules)
    assert words in str(caught.value)


def test_two_gradients_in_one_place_are_refused(qkv):
    out, lse, *_ = raw.fwd(*qkv, None, None, 0.0, *RULES, False)
    place = torch.empty_like(qkv[1])
    with pytest.raises(FlashAttnArgumentError, match="dv_: expected memory of its own, got that of dk_"):
        raw.bwd(out, *qkv, out, lse, None, place, place[:], None, 0.0, *RULES, False)


def test_gradients_without_memory_are_not_in_one_place(qkv):
    """Tensors on meta all have the address 0."""
    q, k, v = (x.to("meta") for x in qkv)
    lse = torch.empty(2, 4, 5, device="meta")
    places = [torch.empty_like(x) for x in (q, k, v)]
    found = raw.bwd(q, q, k, v, q, lse, *places, None, 0.0, *RULES, False)
    assert [x.shape for x in found[:3]] == [x.shape for x in (q, k, v)]


@pytest.mark.parametrize("wrong", [-1, 513, True, None])
def test_parts_of_packed_sequences(qkv, wrong):
    tensors, cut = packed(qkv)
    found = flash_attn_interface._flash_attn_varlen_forward(
        *tensors, *cut, 8, 8, 0.0, 0.2, causal=True, num_splits=3
    )
    assert torch.equal(found[0], flash_attn_varlen_func(*tensors, *cut, 8, 8, softmax_scale=0.2, causal=True))
    with pytest.raises(RuntimeError, match="num_splits: expected an integer from 0"):
        flash_attn_interface._flash_attn_varlen_forward(
            *tensors, *cut, 8, 8, 0.0, 0.2, causal=True, num_splits=wrong
        )


def test_the_shim_has_the_public_functions():
    for name in flash_attn.__all__:
        assert getattr(flash_attn, name) is getattr(flash_attn_rocm, name)
    assert len(flash_attn.__all__) == 7
    assert flash_attn.__version__.startswith("2.8.")
    assert flash_attn_interface.flash_attn_gpu is raw


@pytest.mark.parametrize("unused", [False, True])
def test_padding_and_back(unused):
    rows = torch.randn(3, 6, 4, requires_grad=True)
    mask = torch.tensor([[1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0]])
    more = torch.tensor([[0, 0, 1, 0, 0, 0], [0] * 6, [0] * 6]) if unused else None
    packed, indices, ends, longest, used = bert_padding.unpad_input(rows, mask, more)
    both = (mask if more is None else mask + more).bool()
    assert torch.equal(packed, rows[both])
    assert ends.tolist() == [0, *both.sum(1).cumsum(0).tolist()]
    assert (ends.dtype, used.dtype) == (torch.int32, torch.int32)
    assert used.tolist() == [2, 5, 0]
    assert longest == 5
    padded = bert_padding.pad_input(packed, indices, 3, 6)
    assert torch.equal(padded, rows * both[..., None])
    padded.sum().backward()
    assert torch.equal(rows.grad, both[..., None].expand(rows.shape).float())


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding_is_that_of_the_cache(interleaved):
    """Both turn by equal angles. The cache's function is tested against float64."""
    x, zero = torch.randn(2, 3, 2, 32).half(), torch.zeros(2, 20, 2, 32).half()
    cos, sin = torch.randn(2, 20, 8).half().unbind()
    lengths, cache = torch.tensor([4, 0], dtype=torch.int32), zero.clone()
    flash_attn_with_kvcache(
        x, cache, zero.clone(), x, x, rotary_cos=cos, rotary_sin=sin, cache_seqlens=lengths,
        rotary_interleaved=interleaved,
    )  # fmt: skip
    wanted = torch.stack([cache[0, 4:7], cache[1, :3]])
    found = rotary.apply_rotary_emb(x, cos, sin, interleaved, seqlen_offsets=lengths)
    # Products and their sum are rounded separately or together: steps of fp16 at the largest element.
    assert (found.float() - wanted.float()).abs().max() <= 2**-10 * wanted.abs().max()
    flat = x.flatten(0, 1)[: 3 + 2]
    cut = torch.tensor([0, 3, 5], dtype=torch.int32)
    ragged = rotary.apply_rotary_emb(flat, cos, sin, interleaved, seqlen_offsets=lengths, cu_seqlens=cut)
    assert torch.equal(ragged, torch.cat([found[0], found[1, :2]]))
    one = rotary.apply_rotary_emb(x[:1], cos, sin, interleaved, inplace=True, seqlen_offsets=4)
    assert torch.equal(one, found[:1])
    assert torch.equal(x[:1], found[:1])


UPSTREAM = {
    "_flash_attn_forward": 11,
    "_flash_attn_varlen_forward": 20,  # upstream's development branch has num_splits after the others
    "_flash_attn_backward": 18,
    "_flash_attn_varlen_backward": 23,
}


@pytest.mark.parametrize("name", UPSTREAM)
def test_wrapped_names(name):
    function = getattr(flash_attn_interface, name)
    assert getattr(flash_attn_interface, f"_wrapped{name}") is function
    assert len(inspect.signature(function).parameters) == UPSTREAM[name]
