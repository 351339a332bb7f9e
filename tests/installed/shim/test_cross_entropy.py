"""Cross entropy against PyTorch's in float64, and against the formula for options missing there."""

import pytest
import torch
from flash_attn.losses.cross_entropy import CrossEntropyLoss
from flash_attn.ops.triton import cross_entropy
from flash_attn.ops.triton.cross_entropy import cross_entropy_loss
from torch.nn.functional import cross_entropy as exact_loss

ROWS, CLASSES = 9, 40
# fp32 sums of 40 terms, rounded a few times.
NEAR = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(params=[2**24, 2 * CLASSES], ids=["one block", "blocks of two rows"])
def given(request, monkeypatch):
    """Logits, and labels including two ignored ones."""
    monkeypatch.setattr(cross_entropy, "BLOCK_ELEMENTS", request.param)
    torch.manual_seed(0)
    labels = torch.randint(CLASSES, (ROWS,))
    labels[[2, 5]] = -100
    return (3 * torch.randn(ROWS, CLASSES)).requires_grad_(), labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("scale", [1.0, 0.7])
@pytest.mark.parametrize("square", [0.0, 1e-2])
def test_loss_and_gradient(given, smoothing, scale, square):
    logits, labels = given
    losses, z_losses = cross_entropy_loss(
        logits, labels, label_smoothing=smoothing, logit_scale=scale, lse_square_scale=square
    )
    wide = logits.detach().double().requires_grad_()
    z_wanted = square * (scale * wide).logsumexp(-1).square() * (labels != -100)
    wanted = exact_loss(scale * wide, labels, reduction="none", label_smoothing=smoothing) + z_wanted
    torch.testing.assert_close(losses.double(), wanted, **NEAR)
    torch.testing.assert_close(z_losses.double(), z_wanted, **NEAR)
    assert losses.dtype == z_losses.dtype == torch.float32
    assert not z_losses.requires_grad
    weights = torch.randn(ROWS)
    (found,) = torch.autograd.grad(losses, logits, weights)
    (gradient,) = torch.autograd.grad(wanted, wide, weights.double())
    torch.testing.assert_close(found.double(), gradient, **NEAR)
    assert (found[[2, 5]] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(given, dtype):
    logits, labels = given[0].detach().to(dtype).requires_grad_(), given[1]
    losses, _ = cross_entropy_loss(logits, labels)
    wide = logits.detach().double().requires_grad_()
    wanted = exact_loss(wide, labels, reduction="none")
    torch.testing.assert_close(losses.double(), wanted, **NEAR)
    (found,) = torch.autograd.grad(losses.sum(), logits)
    (gradient,) = torch.autograd.grad(wanted.sum(), wide)
    assert found.dtype == dtype
    step = torch.finfo(dtype).eps / 2
    torch.testing.assert_close(found.double(), gradient, rtol=step, atol=1e-5)


def test_a_given_logsumexp_is_used(given):
    logits, labels = given
    lse = logits.detach().logsumexp(-1) + 1.0
    losses, _ = cross_entropy_loss(logits, labels, precomputed_lse=lse)
    plain, _ = cross_entropy_loss(logits, labels)
    torch.testing.assert_close(losses - plain, (labels != -100).float(), **NEAR)


def test_the_gradient_takes_the_place_of_the_logits(given):
    logits, labels = given
    (wanted,) = torch.autograd.grad(cross_entropy_loss(logits, labels)[0].sum(), logits)
    place = logits * 1.0
    cross_entropy_loss(place, labels, inplace_backward=True)[0].sum().backward()
    assert torch.equal(logits.grad, wanted)
    assert torch.equal(place, wanted)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_module(given, reduction):
    logits, labels = given
    module = CrossEntropyLoss(reduction=reduction, label_smoothing=0.1)
    wanted = exact_loss(logits, labels, reduction=reduction, label_smoothing=0.1)
    torch.testing.assert_close(module(logits, labels), wanted, **NEAR)
    both = CrossEntropyLoss(reduction=reduction, lse_square_scale=0.01, return_z_loss=True)(logits, labels)
    plain = CrossEntropyLoss(reduction=reduction)(logits, labels)
    torch.testing.assert_close(both[0] - both[1], plain, **NEAR)
    assert (both[1] != 0).any()


def test_an_unknown_reduction():
    with pytest.raises(NotImplementedError, match="reduction: expected one of mean, sum, none, got 'max'"):
        CrossEntropyLoss(reduction="max")


def test_labels_that_are_no_class_raise_an_error(given):
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        cross_entropy_loss(given[0], torch.full((ROWS,), CLASSES))
