"""Its functions against float64, in both layouts."""

import functools

import pytest
import sageattention
import torch
from exact import attend, close, close_lse, draw, heads_first
from flash_attn_rocm import attention
from sageattention import sageattn

DENSE = [name for name in sageattention.__all__ if name != "sageattn_varlen"]
each_layout = pytest.mark.parametrize("layout", ["HND", "NHD"])
each_dtype = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


def check(function, tensors, layout, *, causal=False, scale=None, mask=None, **options):
    """Compares out and the log-sum-exp with float64."""
    given = {"is_causal": causal, "sm_scale": scale, "attn_mask": mask} | options
    out, lse = function(*tensors, tensor_layout=layout, return_lse=True, **given)
    q, k, v = (heads_first(x, layout) for x in tensors)
    wanted = attend(q, k, v, causal=causal, scale=scale, mask=mask)
    assert out.dtype == q.dtype
    assert out.shape == tensors[0].shape[:-1] + v.shape[-1:]
    close(heads_first(out, layout), wanted[0])
    close_lse(lse, wanted[1])
    assert torch.equal(function(*tensors, tensor_layout=layout, **given), out)


@each_layout
@each_dtype
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", DENSE)
def test_every_function_in_both_layouts(name, causal, dtype, layout):
    check(getattr(sageattention, name), draw(layout, dtype), layout, causal=causal)


@each_layout
@pytest.mark.parametrize(
    "sizes",
    [
        {"rows": 7, "keys": 90}, {"rows": 90, "keys": 7}, {"rows": 1, "keys": 1}, {"heads": 6, "heads_k": 1},
        {"head_dim": 32}, {"head_dim": 96}, {"head_dim": 128}, {"head_dim": 200}, {"head_dim": 40},
    ],
    ids=str,
)  # fmt: skip
def test_lengths_heads_and_head_dims(sizes, layout):
    """Also head dims above 128, which SageAttention lacks."""
    check(sageattn, draw(layout, **sizes), layout)


@each_layout
def test_a_scale(layout):
    check(sageattn, draw(layout), layout, scale=0.3)
    q, k, v = draw(layout)
    assert torch.equal(sageattn(q, k, v, layout, sm_scale=0.3), sageattn(q, k, v, layout, scale=0.3))


MASKS = {
    "queries and keys": (33, 33),
    "keys of each sequence": (2, 1, 1, 33),
    "each sequence": (2, 1, 33, 33),
    "all four": (2, 4, 33, 33),
}


@each_layout
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("kind", [torch.bool, torch.float16, torch.float32])
def test_masks(kind, name, layout):
    generator = torch.Generator().manual_seed(3)
    numbers = torch.randn(MASKS[name], generator=generator)
    mask = numbers > -0.3 if kind == torch.bool else numbers.to(kind)
    check(sageattn, draw(layout), layout, mask=mask)


def test_a_mask_beside_causal_and_rows_without_keys():
    mask = torch.ones(33, 33, dtype=torch.bool)
    mask[5] = False
    mask[7, :8] = False
    check(sageattn, draw(), "HND", causal=True, mask=mask)


def test_an_additive_mask_is_added_to_the_scores_in_nats():
    """SageAttention's Triton kernel adds it to scores in base 2, where a mask counts ln 2 of itself."""
    q, k, v = (torch.zeros(1, 1, 2, 8).half() for _ in "qkv")
    v[:, :, 0] = 1.0
    mask = torch.tensor([[0.0, -torch.inf], [0.0, -2.0]])
    found = sageattn(q, k, v, attn_mask=mask)[0, 0, :, 0]
    assert found.tolist() == pytest.approx([1.0, 1 / (1 + torch.tensor(-2.0).exp().item())], abs=2e-4)


def test_no_keys():
    q, k, v = draw(rows=3, keys=0)
    out, lse = sageattn(q, k, v, return_lse=True)
    assert not out.any()
    assert lse.isneginf().all()


def test_the_log_sum_exp_is_natural_and_has_heads_first_in_both_layouts():
    """Ring attention merges parts by it: exp(lse) is the sum of a part's weights."""
    q, k, v = draw("NHD", keys=40)
    whole, lse = sageattn(q, k, v, "NHD", return_lse=True)
    parts = [sageattn(q, k[:, at], v[:, at], "NHD", return_lse=True) for at in (slice(25), slice(25, 40))]
    assert lse.shape == (2, 4, 33)
    sums = torch.stack([part[1] for part in parts])
    torch.testing.assert_close(sums.logsumexp(0), lse, rtol=1e-5, atol=1e-5)
    weights = sums.softmax(0).transpose(-1, -2)[..., None]
    merged = sum(weight * part[0].float() for weight, part in zip(weights, parts, strict=True))
    # Three roundings to fp16: of the parts, and of the whole.
    assert (merged - whole.float()).abs().max() <= 3 * 2.0**-11 * whole.float().abs().max()


@each_layout
def test_out_is_where_the_kernels_write_it(layout):
    """In memory (batch, length, heads, headdim), in both layouts, as from PyTorch's flash attention."""
    out = sageattn(*draw(layout), layout)
    in_memory = out.transpose(1, 2) if layout == "HND" else out
    assert in_memory.is_contiguous()


@each_layout
def test_strided_tensors(layout):
    """Views of one projection, and one with rows of strided elements."""
    packed = torch.stack(draw(layout, heads=2, heads_k=2), -2)
    views = packed.unbind(-2)
    plain = [x.contiguous() for x in views]
    wanted = sageattn(*plain, layout)
    assert torch.equal(sageattn(*views, layout), wanted)
    spread = [x.repeat_interleave(2, -1)[..., ::2] for x in plain]
    assert {x.stride(-1) for x in spread} == {2}
    assert torch.equal(sageattn(*spread, layout), wanted)


def test_its_bits_are_those_of_flash_attn_rocm():
    q, k, v = draw("NHD")
    wanted = attention(q, k, v, causal=True)
    assert torch.equal(sageattn(q, k, v, "NHD", is_causal=True), wanted)


OF_QUANTISING = {
    "smooth_k": False, "smooth_v": True, "qk_quant_gran": "per_warp", "pv_accum_dtype": "fp16+fp32",
    "quantization_backend": "cuda", "enable_gqa": True,
}  # fmt: skip


@pytest.mark.parametrize("name", DENSE)
def test_arguments_of_quantising_change_nothing(name):
    function = getattr(sageattention, name)
    wanted = function(*draw())
    for option, value in OF_QUANTISING.items():
        assert torch.equal(function(*draw(), **{option: value}), wanted), option


def test_large_values_stay_finite():
    """In SageAttention v becomes fp16: bf16 numbers above 65504 become infinite."""
    q, k, v = draw(dtype=torch.bfloat16)
    check(sageattn, (q, k, v * 1e5), "HND")
    check(sageattn, (q * 0, k * 0, v), "HND")


@pytest.mark.parametrize("mask", [None, torch.ones(33, 33, dtype=torch.bool).tril()], ids=["", "mask"])
def test_torch_compile(mask):
    function = functools.partial(sageattn, attn_mask=mask, return_lse=True)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        found, wanted = compiled(*draw()), function(*draw())
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_in_place_of_scaled_dot_product_attention(monkeypatch):
    """SageAttention's README replaces PyTorch's function. An implementation that calls it would not end."""
    q, k, v = draw(heads_k=4)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.2)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", sageattn)
    for given in ({}, {"attn_mask": None, "dropout_p": 0.0, "enable_gqa": False}):
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.2, **given)
        assert (found - wanted).abs().max() <= 2 * 2.0**-11 * wanted.abs().max()  # two roundings
    mask = torch.ones(33, 33, dtype=torch.bool)
    assert torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).shape == q.shape
