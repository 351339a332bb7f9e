"""The condition of agreement between a model with flash attention and the model without it."""

import torch

TIMES = 2.0  # the factor in upstream's tests of its kernels


def agree(flash, eager, exact):
    """Each tensor's largest error against float32 is at most twice plain attention's in its dtype.

    Half a step of the dtype at the largest value is added: one rounding of the result. Plain attention may
    have been lucky there.
    """
    assert len(flash) == len(eager) == len(exact) > 0
    for number, (a, b, c) in enumerate(zip(flash, eager, exact, strict=True)):
        assert a.isfinite().all()
        step = torch.finfo(a.dtype).eps / 2 * c.abs().max().item()
        own, plain = ((x.float() - c).abs().max().item() for x in (a, b))
        assert own <= TIMES * plain + step, f"tensor {number}: error {own}, of plain attention {plain}"
        assert plain + step < c.abs().max().item() / 4, f"tensor {number}: plain attention is no measure"


def gradients(model, out):
    """Gradients of a loss with every element of the tensor."""
    model.zero_grad()
    weights = torch.linspace(0.5, 1.5, out.numel()).view(out.shape)
    (out.float() * weights).square().mean().backward()
    return [p.grad for p in model.parameters() if p.grad is not None and p.grad.abs().max() > 0]
