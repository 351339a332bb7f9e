"""Unsupported calls raise an error with the reason and the next step."""

import flash_attn_interface as fa3
import pytest
import torch
from flash_attn_rocm import FlashAttnArgumentError

CUT = torch.tensor([0, 3], dtype=torch.int32)


def tensors(dtype=torch.float16):
    return [torch.ones(1, 3, 2, 16).to(dtype) for _ in range(3)]


def packed(dtype=torch.float16):
    return [x[0] for x in tensors(dtype)]


CALLS = {
    "flash_attn_func": lambda dtype, **given: fa3.flash_attn_func(*tensors(dtype), **given),
    "flash_attn_varlen_func": lambda dtype, **given: fa3.flash_attn_varlen_func(
        *packed(dtype), CUT, CUT, 3, 3, **given
    ),
    "flash_attn_with_kvcache": lambda dtype, **given: fa3.flash_attn_with_kvcache(*tensors(dtype), **given),
    "_flash_attn_forward": lambda dtype, **given: fa3._flash_attn_forward(*tensors(dtype), **given),
}


@pytest.mark.parametrize("name", CALLS)
def test_fp8_of_two_bits(name):
    words = (
        r"q: expected dtype .* got torch.float8_e5m2; pass \(x.float\(\) \* descale\).to\(torch.bfloat16\)"
    )
    with pytest.raises(FlashAttnArgumentError, match=words):
        CALLS[name](torch.float8_e5m2, k_descale=torch.ones(1, 2))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("argument", ["q_descale", "k_descale", "v_descale"])
def test_descales(name, argument):
    with pytest.raises(
        NotImplementedError, match=rf"{argument}: for 8 bits, .*\n  next: pass None, and tensors"
    ):
        CALLS[name](torch.float16, **{argument: torch.ones(1, 2)})


@pytest.mark.parametrize("name", CALLS)
def test_qv(name):
    with pytest.raises(NotImplementedError, match="qv: no kernel adds qv @ v^T".replace("^", r"\^")):
        CALLS[name](torch.float16, qv=torch.ones(1, 3, 2, 16))


def test_what_the_error_of_qv_advises_gives_the_scores():
    torch.manual_seed(0)
    q, k, v, qv = (torch.randn(1, 5, 2, size, dtype=torch.float64) for size in (8, 8, 4, 4))
    found = fa3.flash_attn_func(torch.cat((q, qv), -1), torch.cat((k, v), -1), v, softmax_scale=12**-0.5)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) + torch.einsum("bqhd,bkhd->bhqk", qv, v)
    exact = torch.einsum("bhqk,bkhd->bqhd", (scores * 12**-0.5).softmax(-1), v)
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-13)


CACHE = torch.zeros(1, 32, 2, 16, dtype=torch.float8_e4m3fn)
ONE, NONE = (torch.tensor([n], dtype=torch.int32) for n in (3, 0))
CODED = torch.zeros(1, 1, 2, 16, dtype=CACHE.dtype)
ANGLES = torch.ones(40, 8).half()


def test_q_descale_beside_a_cache_of_8_bits():
    with pytest.raises(NotImplementedError, match=r"call:\nq_descale: for 8 bits, .*"):
        fa3.flash_attn_with_kvcache(tensors()[0], CACHE, CACHE, q_descale=torch.ones(1, 2))


def test_new_codes_of_another_format():
    new, words = torch.zeros(1, 1, 2, 16, dtype=torch.int8), "{}: expected dtype {} like k_cache, got {}"
    with pytest.raises(FlashAttnArgumentError) as caught:
        fa3.flash_attn_with_kvcache(tensors()[0], CACHE, CACHE, new, new.half(), cache_seqlens=ONE)
    found = words.format("k", CACHE.dtype, torch.int8), words.format("v", CACHE.dtype, torch.float16)
    assert "\n".join(found) in str(caught.value)


def test_a_refused_call_writes_no_codes():
    cache, new = CACHE.clone(), torch.ones(1, 1, 2, 16).to(CACHE.dtype)
    with pytest.raises(NotImplementedError, match="k_cache, v_cache: 8 bits"):
        fa3.flash_attn_with_kvcache(
            tensors()[0], cache, cache, new, new, cache_seqlens=ONE, attention_chunk=8
        )
    assert not cache.view(torch.uint8).any()


@pytest.mark.parametrize(
    "given",
    [
        {"attention_chunk": 8},
        {"page_table": NONE[None], "cache_leftpad": NONE},
        {"cu_seqlens_q": CUT, "max_seqlen_q": 3, "q": torch.ones(3, 2, 16).half()},
        {"k": CODED, "v": CODED, "rotary_cos": ANGLES, "rotary_sin": ANGLES},
        {
            "k": torch.zeros(1, 2, 16).half(), "v": torch.zeros(1, 2, 16).half(),
            "cu_seqlens_k_new": torch.tensor([0, 1], dtype=torch.int32),
        },
    ],
)  # fmt: skip
def test_caches_of_8_bits_that_would_be_copied(given):
    given = {"q": tensors()[0], "cache_seqlens": ONE} | given
    with pytest.raises(NotImplementedError) as caught:
        fa3.flash_attn_with_kvcache(k_cache=CACHE, v_cache=CACHE, **given)
    words = (
        "k_cache, v_cache: 8 bits beside q of 16, which kernels take dense, or in pages of a multiple of 16"
    )
    assert words in str(caught.value)
    assert "next: pass (cache.float() * descale).to(torch.bfloat16)" in str(caught.value)


def test_gradients_of_fp8():
    q, k, v = tensors(torch.float8_e4m3fn)
    words = r"q, k, v, dout: fp8, which has no gradients\n  next: pass torch.bfloat16 or torch.float16"
    with pytest.raises(NotImplementedError, match=words):
        fa3._flash_attn_backward(q, q, k, v, q, torch.zeros(1, 2, 3))


@pytest.mark.parametrize("chunk", [-1, 2.0, True, None])
@pytest.mark.parametrize("name", CALLS)
def test_chunks(name, chunk):
    with pytest.raises(ValueError, match=r"attention_chunk: expected an integer of 0 .none. or more, got"):
        CALLS[name](torch.float16, attention_chunk=chunk)


def test_wrong_shapes_with_a_chunk_are_all_said_at_once():
    q, k, v = tensors()
    with pytest.raises(ValueError, match="flash-attn-3 cannot use its arguments") as caught:
        fa3.flash_attn_func(q[0], k, v[0], attention_chunk=2)
    assert "q: expected 4 dimensions, got shape (3, 2, 16)" in str(caught.value)
    assert "v: expected 4 dimensions, got shape (3, 2, 16)" in str(caught.value)


def test_wrong_lengths():
    q, k, v = packed()
    with pytest.raises(ValueError, match=r"seqused_k: expected torch.int32 \(1,\) on cpu, got torch.int64"):
        fa3.flash_attn_varlen_func(q, k, v, CUT, CUT, 3, 3, seqused_k=torch.tensor([2]))


def test_a_cache_beside_what_caches_have_not():
    with pytest.raises(ValueError, match="seqused_q: cannot be combined with leftpad_k"):
        fa3._flash_attn_forward(
            *tensors(), seqused_q=torch.ones(1, dtype=torch.int32),
            leftpad_k=torch.ones(1, dtype=torch.int32),
        )  # fmt: skip


def test_parts_of_other_shapes():
    with pytest.raises(ValueError, match=r"lse_partial: expected shape \(2, 1, 3, 4\) as out_partial"):
        fa3.flash_attn_combine(torch.ones(2, 1, 3, 4, 8), torch.ones(2, 1, 4, 3))
