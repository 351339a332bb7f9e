"""q, k and v in fp8: the call over their numbers in bf16, bit for bit, and the definition in float64."""

import flash_attn_interface as fa3
import pytest
import torch
from exact import attend
from flash_attn_rocm import FlashAttnArgumentError

FORMATS = [torch.float8_e4m3fn, torch.float8_e4m3fnuz]
NAMES = ("q_descale", "k_descale", "v_descale")
HEAD_DIM = 32


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


def quantised(batch, rows, heads, dtype=FORMATS[0]):
    """Codes, a descale for each head of k and sequence, and the numbers, in float64."""
    codes = torch.randn(batch, rows, heads, HEAD_DIM).clamp(-3, 3).to(dtype)
    descale = torch.rand(batch, 2) + 0.25
    of = descale.repeat_interleave(heads // 2, 1)[:, None, :, None]
    return codes, descale, codes.double() * of.double()


class Call:
    """Two sequences of 12 queries and 20 keys."""

    def __init__(self, dtype=FORMATS[0], rows=12):
        torch.manual_seed(0)
        made = [quantised(2, n, heads, dtype) for n, heads in ((rows, 4), (20, 2), (20, 2))]
        self.codes, descales, self.numbers = zip(*made, strict=True)
        self.descales = dict(zip(NAMES, descales, strict=True))
        self.rounded = [x.to(torch.bfloat16) for x in self.numbers]


def packed(x, lengths):
    """The first rows of each sequence, one after another."""
    bits = x.view(torch.uint8) if x.element_size() == 1 else x
    return torch.cat([one[:n] for one, n in zip(bits, lengths, strict=True)]).view(x.dtype)


def same(found, wanted):
    """The bits of a call over bf16."""
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    assert found[0].dtype == torch.bfloat16


RULES = [{}, {"causal": True}, {"attention_chunk": 5, "causal": True}, {"window_size": (4, 30)}]


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_dense(dtype, rules):
    call = Call(dtype, rows=24 if "window_size" in rules else 12)
    given = {**rules, "return_attn_probs": True}
    found = fa3.flash_attn_func(*call.codes, **call.descales, **given)
    same(found, fa3.flash_attn_func(*call.rounded, **given))
    exact = torch.stack([attend(*x, **rules)[0] for x in zip(*call.numbers, strict=True)])
    assert (found[0] - exact).abs().max() <= 5 * 2**-9 * exact.abs().max()  # q, k, v, P and out are rounded


@pytest.mark.parametrize("rules", [{}, {"attention_chunk": 5}], ids=str)
@pytest.mark.parametrize("used", [False, True])
def test_packed(used, rules):
    call, rows, keys = Call(), (3, 11), (20, 7)
    cut = [int32(0, x[0], sum(x)) for x in (rows, keys)]
    given = {**rules, "causal": True, "return_attn_probs": True}
    given |= {"seqused_q": int32(2, 11), "seqused_k": int32(9, 7)} if used else {}
    found, wanted = (
        fa3.flash_attn_varlen_func(
            packed(q, rows), packed(k, keys), packed(v, keys), *cut, 11, 20, **given, **more
        )
        for (q, k, v), more in ((call.codes, call.descales), (call.rounded, {}))
    )
    same(found, wanted)


def test_one_tensor_for_all():
    torch.manual_seed(0)
    qkv, scale = torch.randn(2, 7, 3, 4, 8).to(FORMATS[0]), torch.rand(2, 4) + 0.5
    found = fa3.flash_attn_qkvpacked_func(qkv, v_descale=scale)
    wanted = fa3.flash_attn_func(*qkv.to(torch.bfloat16).unbind(2))
    assert torch.equal(found, fa3.flash_attn_func(*qkv.unbind(2), v_descale=scale))
    torch.testing.assert_close(
        found, (wanted * scale[:, None, :, None]).to(torch.bfloat16), rtol=2**-6, atol=0.02
    )


@pytest.mark.parametrize("page", [0, 16, 5])
@pytest.mark.parametrize("given", [{}, {"attention_chunk": 6}, {"cut": True}, {"index": True}], ids=str)
def test_a_cache(given, page):
    """Dense, in kernels' pages, and in pages that are copied first."""
    call, lengths = Call(), int32(13, 20)
    given, cut = dict(given), given.get("cut")
    given.pop("cut", None)
    index = given.pop("index", None)
    places = {}

    def stored(x):
        bits = x.view(torch.uint8) if x.element_size() == 1 else x
        if page:
            bits = (
                torch.nn.functional.pad(bits, (0, 0, 0, 0, 0, -20 % page))
                .unflatten(1, (-1, page))
                .flatten(0, 1)
            )
        return bits.flip(0).contiguous().view(x.dtype) if page or index else x

    if page:
        count = 2 * -(-20 // page)
        places["page_table"] = torch.arange(count, dtype=torch.int32).flip(0).view(2, -1)
    elif index:
        places["cache_batch_idx"] = int32(1, 0)
    queries = {"cu_seqlens_q": int32(0, 12, 24), "max_seqlen_q": 12} if cut else {}
    found, wanted = (
        fa3.flash_attn_with_kvcache(
            q.flatten(0, 1) if cut else q, stored(k), stored(v), cache_seqlens=lengths, causal=True,
            return_softmax_lse=True, **places, **queries, **given, **more,
        )[:2]
        for (q, k, v), more in ((call.codes, call.descales), (call.rounded, {}))
    )  # fmt: skip
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=2**-6, atol=2**-6)  # k and v of a cache are not rounded
    assert found[0].dtype == torch.bfloat16
    exact = torch.cat([
        attend(q, k[:n], v[:n], causal=True, attention_chunk=given.get("attention_chunk", 0))[0]
        for q, k, v, n in zip(*call.numbers, lengths.tolist(), strict=True)
    ])  # fmt: skip
    assert (found[0].view(exact.shape) - exact).abs().max() <= 5 * 2**-9 * exact.abs().max()


@pytest.mark.parametrize("packed_keys", [False, True])
def test_new_keys_that_are_codes_are_copied(packed_keys):
    call = Call()
    k, v = (torch.zeros(2, 32, 2, HEAD_DIM, dtype=FORMATS[0]) for _ in "kv")
    new = [x.flatten(0, 1) if packed_keys else x for x in call.codes[1:]]
    cut = {"cu_seqlens_k_new": int32(0, 20, 40)} if packed_keys else {}
    found = fa3.flash_attn_with_kvcache(call.codes[0], k, v, *new, cache_seqlens=0, **cut, **call.descales)
    assert torch.equal(k[:, :20].view(torch.uint8), call.codes[1].view(torch.uint8))
    exact = torch.stack([attend(*x)[0] for x in zip(*call.numbers, strict=True)])
    assert (found - exact).abs().max() <= 5 * 2**-9 * exact.abs().max()


def test_the_operator():
    call = Call()
    place = torch.empty(2, 12, 4, HEAD_DIM, dtype=torch.bfloat16)
    out, lse, *_ = torch.ops.flash_attn_3.fwd(
        *call.codes, out=place, **call.descales, softmax_scale=HEAD_DIM**-0.5, is_causal=True
    )
    assert out.data_ptr() == place.data_ptr()
    same((out, lse), fa3.flash_attn_func(*call.rounded, causal=True, return_attn_probs=True))


def test_a_batch_of_nothing():
    q, k, v = (x[:0] for x in Call().codes)
    assert fa3.flash_attn_func(q, k, v, attention_chunk=2).dtype == torch.bfloat16


@pytest.mark.parametrize("chunk", [0, 5])
def test_wrong_descales(chunk):
    call = Call()
    descales = {"q_descale": torch.ones(1), "v_descale": torch.ones(2, 4)}
    with pytest.raises(FlashAttnArgumentError) as caught:
        fa3.flash_attn_func(*call.codes, **descales, attention_chunk=chunk)
    for name, got in (("q", "(1,)"), ("v", "(2, 4)")):
        assert f"{name}_descale: expected shape (2, 2)" in str(caught.value)
        assert f"got {got}" in str(caught.value)


def test_gradients_are_refused():
    q, k, v = Call().codes
    with pytest.raises(FlashAttnArgumentError, match="q: expected no gradients of 8 bits, which have none"):
        fa3.flash_attn_func(q.requires_grad_(), k, v)


def test_rotated_queries_of_8_bits_are_refused():
    """Where PyTorch would rotate them."""
    q, k, v = Call().codes
    new, angles = torch.zeros(2, 1, 2, HEAD_DIM).to(torch.bfloat16), torch.ones(40, 8).to(torch.bfloat16)
    with pytest.raises(NotImplementedError, match="k_cache, v_cache: 8 bits"):
        fa3.flash_attn_with_kvcache(
            q, k.clone(), v.clone(), new, new, rotary_cos=angles, rotary_sin=angles, cache_seqlens=3,
            rotary_seqlens=int32(3, 3),
        )  # fmt: skip
