"""Sinks: one more key for each head, whose score is the sink and whose value is 0."""

import pytest
import torch
from flash_attn_rocm import _prepare, _sinks

pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")

NHEADS = 4


def tensors(rows=5, keys=7, dtype=torch.float64):
    q = torch.randn(2, rows, NHEADS, 8, dtype=dtype)
    k, v = torch.randn(2, 2, keys, 2, 8, dtype=dtype)
    return q, k, v, torch.randn(NHEADS, dtype=dtype)


def by_formula(q, k, v, sinks, seen):
    """The softmax of the scores and the sink, of which the sink's probability meets no value."""
    k, v = (x.repeat_interleave(2, dim=2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~seen, float("-inf"))
    column = sinks.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
    probabilities = torch.cat([scores, column], dim=-1).softmax(-1)[..., :-1]
    return torch.einsum("bhij,bjhd->bihd", probabilities, v)


def dense(q, k, v, sinks, window=(-1, -1)):
    return _sinks.attend(*_prepare.dense(q, k, v, None, 0.0, None, True, 0.0, False, window), sinks)


def causal(rows, keys, window=None):
    distance = torch.arange(rows)[:, None] + keys - rows - torch.arange(keys)
    return (distance >= 0) & (distance <= (keys if window is None else window))


@pytest.mark.parametrize("window", [None, 2])
def test_they_are_one_more_key(window):
    given = tensors()
    found = dense(*given, window=(-1 if window is None else window, 0))
    torch.testing.assert_close(found, by_formula(*given, causal(5, 7, window)))


def test_gradients_are_those_of_the_formula():
    given = [x.requires_grad_() for x in tensors()]
    weights = torch.randn(2, 5, NHEADS, 8, dtype=torch.float64)
    found = torch.autograd.grad((dense(*given) * weights).sum(), given)
    expected = torch.autograd.grad((by_formula(*given, causal(5, 7)) * weights).sum(), given)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_packed_sequences_and_masks_have_them_too():
    q, k, v, sinks = tensors(rows=7)
    expected = by_formula(q, k, v, sinks, causal(7, 7))
    rules = (0.0, None, True, 0.0, False, (-1, -1))
    ends = torch.tensor([0, 7, 14], dtype=torch.int32)
    packed = _prepare.varlen(*(x.flatten(0, 1) for x in (q, k, v)), ends, ends, None, None, 7, 7, *rules)
    torch.testing.assert_close(_sinks.attend(*packed, sinks).view_as(q), expected)
    rules = (0.0, None, False, 0.0, False, (-1, -1))
    masked = _prepare.masked(q, k, v, None, causal(7, 7), *rules)
    torch.testing.assert_close(_sinks.attend(*masked, sinks), expected)


def test_rows_without_keys_are_0_and_have_no_gradient():
    q, k, v, sinks = (x.requires_grad_() for x in tensors(rows=7, keys=5))
    out = dense(q, k, v, sinks)
    out.sum().backward()
    assert (out[:, :2] == 0).all()
    assert (q.grad[:, :2] == 0).all()
    assert all(x.grad.isfinite().all() for x in (q, k, v, sinks))


def test_dropout_is_that_of_the_call():
    """The same probabilities are dropped in the backward pass: attention is linear in v."""
    q, k, v, sinks = tensors()
    v.requires_grad_()
    torch.manual_seed(1)
    out = _sinks.attend(*_prepare.dense(q, k, v, None, 0.5, None, False, 0.0, False, (-1, -1)), sinks)
    dout = torch.randn_like(out)
    [found] = torch.autograd.grad(out, v, dout)
    torch.testing.assert_close((found * v).sum(), (out * dout).sum())


def test_there_is_no_second_derivative():
    given = [x.requires_grad_() for x in tensors()]
    with pytest.raises(RuntimeError, match="attention has no second derivative"):
        torch.autograd.grad(dense(*given).sum(), given[0], create_graph=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_fp16_and_bf16(dtype):
    given = tensors(dtype=dtype)
    found = dense(*given)
    assert found.dtype == dtype
    expected = by_formula(*(x.double() for x in given), causal(5, 7))
    # Probabilities and the answer are rounded, and values are below 4.
    assert (found - expected).abs().max() <= 8 * torch.finfo(dtype).eps
