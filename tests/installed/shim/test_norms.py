"""Norms of sums with dropout against PyTorch's own in float64, with their gradients."""

import pytest
import torch
from flash_attn.ops import rms_norm as rms
from flash_attn.ops.triton import layer_norm as fused
from torch.nn.functional import layer_norm, linear, rms_norm

HIDDEN, EPS = 24, 1e-3
NEAR = {"rtol": 1e-5, "atol": 1e-5}  # fp32 sums of 24 terms
NORMS = pytest.mark.parametrize("norm", ["layer", "rms"])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def leaves(*shapes, dtype=torch.float32):
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def wide(tensors):
    return [x.detach().double().requires_grad_() for x in tensors]


def exact(norm, total, weight, bias=None):
    if norm == "layer":
        return layer_norm(total, (HIDDEN,), weight, bias, EPS)
    return rms_norm(total, (HIDDEN,), weight, EPS) + (0 if bias is None else bias)


def agree(found, wanted, given, exactly):
    """Values, and gradients of a random sum."""
    weights = [torch.randn_like(x) for x in wanted]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, **NEAR)
    gradients = torch.autograd.grad(
        found, given, [w.to(x.dtype) for w, x in zip(weights, found, strict=True)]
    )
    for one, other in zip(gradients, torch.autograd.grad(wanted, exactly, weights), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)


@NORMS
@pytest.mark.parametrize("centred", [False, True])
def test_everything_at_once(norm, centred):
    given = leaves((2, 3, HIDDEN), (2, 3, HIDDEN), (2, 3, HIDDEN), *[(HIDDEN,)] * 4)
    x, residual, x1, weight, bias, weight1, bias1 = given
    found = fused.layer_norm_fn(
        x, weight, bias, residual=residual, x1=x1, weight1=weight1, bias1=bias1, eps=EPS, prenorm=True,
        zero_centered_weight=centred, is_rms_norm=norm == "rms",
    )  # fmt: skip
    exactly = wide(given)
    x, residual, x1, weight, bias, weight1, bias1 = exactly
    total = x + x1 + residual
    wanted = [exact(norm, total, w + centred, b) for w, b in ((weight, bias), (weight1, bias1))]
    agree(found, [*wanted, total], given, exactly)


@NORMS
def test_a_scale_for_each_row(norm):
    given = leaves((2, 3, HIDDEN), (HIDDEN,), (2, 3))
    x, weight, scale = given
    function = fused.rms_norm_fn if norm == "rms" else fused.layer_norm_fn
    found = function(x, weight, None, eps=EPS, rowscale=scale)
    exactly = wide(given)
    wanted = exact(norm, exactly[0] * exactly[2][..., None], exactly[1])
    agree([found], [wanted], given, exactly)
    with pytest.raises(ValueError, match="rowscale: expected None where x1 is given, got a tensor"):
        function(x, weight, None, x1=x, rowscale=scale)


@pytest.mark.parametrize(
    ("residual", "in_fp32", "kept"),
    [
        (None, False, torch.bfloat16), (None, True, torch.float32),
        (torch.float16, True, torch.float16), (torch.float32, False, torch.float32),
    ],
)  # fmt: skip
def test_the_dtypes_of_the_results(residual, in_fp32, kept):
    x, weight = torch.randn(3, HIDDEN, dtype=torch.bfloat16), torch.ones(HIDDEN)
    other = None if residual is None else torch.randn(3, HIDDEN, dtype=residual)
    out, total = fused.rms_norm_fn(x, weight, None, residual=other, prenorm=True, residual_in_fp32=in_fp32)
    assert (out.dtype, total.dtype) == (torch.bfloat16, kept)
    out = fused.rms_norm_fn(x, weight, None, out_dtype=torch.float64)
    assert out.dtype == torch.float64
    both = rms.dropout_add_rms_norm(x, other, weight, None, 0.0, EPS, prenorm=True, residual_in_fp32=in_fp32)
    assert (both[0].dtype, both[1].dtype) == (torch.bfloat16, kept)


def test_half_precision_is_rounded_once():
    x, weight = torch.randn(5, HIDDEN).bfloat16(), torch.randn(HIDDEN).bfloat16()
    wanted = rms_norm(x.double(), (HIDDEN,), weight.double(), EPS)
    found = rms.rms_norm(x, weight, EPS)
    step = torch.finfo(torch.bfloat16).eps / 2
    torch.testing.assert_close(found.double(), wanted, rtol=step, atol=1e-5)
    # Separate rounding of the norm and the weight has twice that error.
    twice = (rms_norm(x.double(), (HIDDEN,), None, EPS).bfloat16() * weight).double()
    assert ((twice - wanted).abs() > step * wanted.abs() + 1e-5).any()


def test_places_for_the_results():
    x, weight = torch.randn(3, HIDDEN), torch.ones(HIDDEN)
    out, total = torch.empty_like(x), torch.empty_like(x)
    found = fused.layer_norm_fn(x, weight, None, prenorm=True, out=out, residual_out=total)
    assert found[0] is out
    assert found[1] is total
    assert torch.equal(total, x)


def test_dropout_says_what_it_kept():
    x, x1, weight = torch.ones(200, HIDDEN), torch.ones(200, HIDDEN), torch.ones(HIDDEN)
    _, total, mask, mask1 = fused.layer_norm_fn(
        x, weight, None, x1=x1, dropout_p=0.25, prenorm=True, return_dropout_mask=True
    )
    assert torch.equal(total, (mask.float() + mask1.float()) / 0.75)
    share = torch.stack([mask, mask1]).float().mean().item()
    assert abs(share - 0.75) < 0.02  # 9600 draws: 4.5 standard deviations
    assert not torch.equal(mask, mask1)
    assert fused.rms_norm_fn(x, weight, None, return_dropout_mask=True)[1:] == (None, None)


def test_sums_with_a_scale_of_the_layer():
    given = leaves((4, HIDDEN), (4, HIDDEN), (HIDDEN,), (HIDDEN,), (4,), (HIDDEN,))
    x, residual, weight, bias, scale, layer = given
    *found, mask = rms.dropout_add_rms_norm(
        x, residual, weight, bias, 0.0, EPS, scale, layer, prenorm=True, return_dropout_mask=True
    )
    assert mask.all()
    exactly = wide(given)
    x, residual, weight, bias, scale, layer = exactly
    total = x * scale[:, None] * layer + residual
    agree(found, [exact("rms", total, weight, bias), total], given, exactly)


@pytest.mark.parametrize("second", [False, True])
def test_two_norms_of_one_sum(second):
    given = leaves((4, HIDDEN), (4, HIDDEN), (HIDDEN,), *([(HIDDEN,)] if second else []))
    x, x1, weight = given[:3]
    found, other, total, mask, mask1 = rms.dropout_add_rms_norm_parallel_residual(
        x, x1, None, weight, None, given[3] if second else None, None, 0.0, EPS, prenorm=True,
        return_dropout_mask=True,
    )  # fmt: skip
    exactly = wide(given)
    whole = exactly[0] + exactly[1]
    wanted = [exact("rms", whole, w) for w in exactly[2:]]
    agree([found, *([other] if second else []), total], [*wanted, whole], given, exactly)
    assert second or other is None
    assert mask.all()
    assert mask1.all()


def test_modules():
    x = torch.randn(4, HIDDEN)
    wanted = rms_norm(x, (HIDDEN,), eps=1e-5)
    for module in (rms.RMSNorm(HIDDEN), fused.RMSNorm(HIDDEN), rms.DropoutAddRMSNorm(HIDDEN)):
        torch.testing.assert_close(module(x), wanted)
        assert list(module.state_dict()) == ["weight"]
    torch.testing.assert_close(fused.RMSNorm(HIDDEN, zero_centered_weight=True)(x), wanted)
    for module in (fused.RMSNorm(HIDDEN, dropout_p=0.5), rms.DropoutAddRMSNorm(HIDDEN, p=0.5)):
        assert (module(x) == 0).any()
        torch.testing.assert_close(module.eval()(x), wanted)
    out, total = rms.DropoutAddRMSNorm(HIDDEN, prenorm=True, residual_in_fp32=True)(x.half(), x.half())
    assert (out.dtype, total.dtype) == (torch.float16, torch.float16)


@NORMS
def test_a_linear_layer_on_the_norm(norm):
    given = leaves((4, HIDDEN), (4, HIDDEN), (HIDDEN,), (7, HIDDEN), (7,))
    x, residual, weight, matrix, bias = given
    found = fused.layer_norm_linear_fn(
        x, weight, None, matrix, bias, residual, EPS, prenorm=True, is_rms_norm=norm == "rms"
    )
    exactly = wide(given)
    x, residual, weight, matrix, bias = exactly
    agree(found, [linear(exact(norm, x + residual, weight), matrix, bias), x + residual], given, exactly)
