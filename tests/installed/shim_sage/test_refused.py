"""What the functions cannot do raises errors: the expected and the given value, and what to do next."""

import pytest
import sageattention
import torch
from exact import draw
from flash_attn_rocm import FlashAttnArgumentError
from sageattention import sageattn, sageattn_varlen

DENSE = [name for name in sageattention.__all__ if name != "sageattn_varlen"]
CUT = torch.tensor([0, 3], dtype=torch.int32)


def tensors(dtype=torch.float16):
    return [torch.ones(1, 2, 3, 16).to(dtype) for _ in "qkv"]


def problems(function, *arguments, **options):
    with pytest.raises(FlashAttnArgumentError) as caught:
        function(*arguments, **options)
    text = str(caught.value)
    assert text.startswith(f"{function.__name__} cannot use its arguments:\n")
    assert all(f"\n  - {each}" in text for each in caught.value.problems)
    return list(caught.value.problems)


@pytest.mark.parametrize("name", DENSE)
def test_dropout(name):
    [found] = problems(getattr(sageattention, name), *tensors(), dropout_p=0.1)
    assert found == "dropout_p: expected 0.0, got 0.1; flash_attn_rocm.attention has dropout"
    getattr(sageattention, name)(*tensors(), dropout_p=0.0)
    getattr(sageattention, name)(*tensors(), dropout_p=None)


@pytest.mark.parametrize("name", DENSE)
def test_gradients(name):
    """SageAttention returns a tensor without them in silence."""
    q, k, v = tensors()
    q.requires_grad_(), v.requires_grad_()
    [found] = problems(getattr(sageattention, name), q, k, v)
    assert found == (
        "q, v: expected no gradients, which SageAttention does not compute; call under torch.no_grad(), "
        "or use flash_attn_rocm.attention, which has them"
    )
    with torch.no_grad():
        assert getattr(sageattention, name)(q, k, v).shape == q.shape


def test_gradients_of_a_mask_and_of_packed_sequences():
    mask = torch.zeros(3, 3, requires_grad=True)
    assert problems(sageattn, *tensors(), attn_mask=mask)[0].startswith("attn_mask: expected no gradients")
    packed = [x[0].transpose(0, 1).contiguous().requires_grad_() for x in tensors()]
    assert problems(sageattn_varlen, *packed, CUT, CUT, 3, 3)[0].startswith("q, k, v: expected no gradients")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float8_e4m3fn, torch.int8], ids=str)
def test_dtypes(dtype):
    [found] = problems(sageattn, *tensors(dtype))
    assert found == f"q: expected dtype torch.float16 or torch.bfloat16, got {dtype}"


def test_two_dtypes():
    q, k, v = tensors()
    found = problems(sageattn, q, k.bfloat16(), v.float())
    assert found == [
        "k: expected dtype torch.float16 like q, got torch.bfloat16",
        "v: expected dtype torch.float16 like q, got torch.float32",
    ]


@pytest.mark.parametrize("layout", ["HND", "NHD"])
def test_causal_of_other_lengths(layout):
    """SageAttention's kernels differ there: one asserts, others align the first query with the first key."""
    [found] = problems(sageattn, *draw(layout, rows=3, keys=5), layout, is_causal=True)
    assert found == (
        "is_causal: expected as many queries as keys, got 3 and 5; flash_attn_rocm.attention aligns the last "
        "query with the last key, and an attn_mask hides any keys"
    )


def test_causal_of_packed_sequences_of_other_lengths():
    packed = [x[0].transpose(0, 1) for x in tensors()]
    other = torch.tensor([0, 1, 3], dtype=torch.int32)
    cut = torch.tensor([0, 2, 3], dtype=torch.int32)
    [found] = problems(sageattn_varlen, *packed, cut, other, 2, 2, is_causal=True)
    assert found == (
        "is_causal: expected sequences of as many queries as keys, got other cu_seqlens_q than cu_seqlens_k; "
        "flash_attn_rocm.flash_attn_varlen_func aligns the last query with the last key"
    )


@pytest.mark.parametrize(
    ("arguments", "got"),
    [(("BSHD",), "'BSHD'"), ((None, 0.0, False), "NoneType"), ((torch.ones(3, 3), 0.0, False), "Tensor")],
    ids=["a name", "no mask", "a mask"],
)
def test_a_layout_and_the_arguments_of_scaled_dot_product_attention_by_position(arguments, got):
    """A caller of PyTorch's function, replaced by this one: SageAttention takes a mask for a layout."""
    found = problems(sageattn, *tensors(), *arguments)
    assert found[0].startswith(f'tensor_layout: expected "HND" or "NHD", got {got}')
    named = "name them (attn_mask=, dropout_p=, is_causal=, scale=), or use flash_attn_rocm.sdpa.enable()"
    assert (named in found[0]) == (got != "'BSHD'")


SHAPES = {
    "k: expected batch and headdim like q, (1, 2, 3, 16), got (2, 2, 3, 16)": {"k": (2, 2, 3, 16)},
    "v: expected the shape of k, (1, 2, 3, 16), with any headdim, got (1, 2, 4, 16)": {"v": (1, 2, 4, 16)},
    "q: expected a multiple of k's 2 heads, got 3": {"q": (1, 3, 3, 16)},
    "q: expected 4 dimensions (batch, heads, length, headdim), got shape (2, 3, 16)": {"q": (2, 3, 16)},
    "q, v: expected a headdim of 1 or more, got 0": dict.fromkeys("qkv", (1, 2, 3, 0)),
}


@pytest.mark.parametrize("words", SHAPES)
def test_shapes(words):
    given = dict(zip("qkv", tensors(), strict=True))
    given |= {name: torch.ones(shape).half() for name, shape in SHAPES[words].items()}
    assert words in problems(sageattn, **given)


def test_no_tensors():
    found = problems(sageattn, 1, *tensors()[1:], attn_mask=2)
    assert found == ["q: expected a tensor (batch, heads, length, headdim), got int"]
    assert problems(sageattn, *tensors(), attn_mask=2) == ["attn_mask: expected a tensor, got int"]


MASKS = {
    "attn_mask: expected shape (3, 3) or (1, 2, 3, 3), any size may be 1, got (1, 2, 3, 4)": (1, 2, 3, 4),
    "attn_mask: expected shape (3, 3) or (1, 2, 3, 3), any size may be 1, got (1, 3, 3); insert that of the "
    "heads, attn_mask[:, None], or of the batch": (1, 3, 3),
}


@pytest.mark.parametrize("words", MASKS)
def test_shapes_of_masks(words):
    """Three dimensions are refused: PyTorch takes the first for heads, flash_attn_rocm for the batch."""
    assert problems(sageattn, *tensors(), attn_mask=torch.ones(MASKS[words]).bool()) == [words]


def test_dtypes_of_masks():
    [found] = problems(sageattn, *tensors(), attn_mask=torch.ones(3, 3, dtype=torch.int64))
    kinds = "torch.bool, torch.float16, torch.bfloat16, torch.float32"
    assert found == f"attn_mask: expected dtype {kinds}, got torch.int64"


def test_other_devices():
    q, k, v = tensors()
    mask = torch.ones(3, 3, device="meta")
    assert problems(sageattn, q, k.to("meta"), v, attn_mask=mask) == [
        "k: expected device cpu like q, got meta",
        "attn_mask: expected device cpu like q, got meta",
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e39, "0.1"])
@pytest.mark.parametrize("name", ["sm_scale", "scale"])
def test_scales(name, value):
    [found] = problems(sageattn, *tensors(), **{name: value})
    assert found == f"{name}: expected a number of fp32 or None, got {value}"


def test_two_scales():
    [found] = problems(sageattn, *tensors(), sm_scale=0.1, scale=0.1)
    assert found == "scale: expected only one of sm_scale and scale, got both"


def test_unknown_names():
    """SageAttention ignores them in silence."""
    [found] = problems(sageattn, *tensors(), window_size=(3, 0))
    assert found == (
        "window_size: unknown here, and SageAttention would ignore it; known: scale, dropout_p, smooth_k, "
        "smooth_v, qk_quant_gran, pv_accum_dtype, quantization_backend, enable_gqa"
    )
    packed = [x[0].transpose(0, 1) for x in tensors()]
    [found] = problems(sageattn_varlen, *packed, CUT, CUT, 3, 3, attn_mask=torch.ones(3, 3))
    assert found.startswith("attn_mask: unknown here")


def test_all_problems_at_once():
    q, k, v = (x.requires_grad_() for x in tensors(torch.float32))
    found = problems(sageattn, q, k[..., :8], v, "BHSD", dropout_p=0.5, sm_scale="a", other=1)
    assert [each.partition(":")[0] for each in found] == [
        "tensor_layout", "q", "sm_scale", "dropout_p", "other", "q, k, v",
    ]  # fmt: skip


PLACES = {
    "cu_seqlens_q: expected a tensor (batch + 1,), got list": {"cu_seqlens_q": [0, 3]},
    "cu_seqlens_k: expected shape (batch + 1,), got (1, 2)": {"cu_seqlens_k": CUT[None]},
    "cu_seqlens_k: expected dtype torch.int32 or torch.int64, got torch.float32": {
        "cu_seqlens_k": CUT.float()
    },
    "cu_seqlens_k: expected device cpu like q, got meta": {"cu_seqlens_k": CUT.to("meta")},
    "cu_seqlens_k: expected 2 numbers like cu_seqlens_q, got 1": {"cu_seqlens_k": CUT[:1]},
    "max_seqlen_k: expected an integer of 0 or more, got None": {"max_seqlen_k": None},
    "max_seqlen_q: expected an integer of 0 or more, got -1": {"max_seqlen_q": -1},
    "k: expected headdim like q, (3, 2, 16), got (3, 2, 8)": {"k": torch.ones(3, 2, 8).half()},
    "q: expected 3 dimensions (total, heads, headdim), got shape (3, 16)": {"q": torch.ones(3, 16).half()},
}


@pytest.mark.parametrize("words", PLACES)
def test_packed_sequences(words):
    packed = [x[0].transpose(0, 1) for x in tensors()]
    given = dict(zip("qkv", packed, strict=True)) | {
        "cu_seqlens_q": CUT, "cu_seqlens_k": CUT, "max_seqlen_q": 3, "max_seqlen_k": 3,
    }  # fmt: skip
    assert words in problems(sageattn_varlen, **{**given, **PLACES[words]})
