"""Attention in float64 and in plain low precision, written for the tests alone, and the rule that compares.

The rule is upstream's: the largest error may be FACTOR times that of a plain low-precision implementation
(2 for outputs, 3 for gradients), because that is what the dtype itself costs.  TINY covers cases in which the
plain implementation happens to be exact; it is a hundredth of bf16's rounding step at 1.
"""

import math

import torch

FACTOR_OUT, FACTOR_GRADIENT, TINY = 2.0, 3.0, 4e-5


def plain(
    q, k, v, *, causal=False, window=(-1, -1), softcap=0.0, slopes=None, scale=None, kept=None, most=None
):
    """Attention as the textbook writes it, in the inputs' dtype; rows that see nothing give 0.

    q (batch, seqlen_q, nheads, headdim), k and v (batch, seqlen_k, nheads_k, headdim); ``kept`` (batch,
    nheads, seqlen_q, seqlen_k) multiplies the probabilities; ``most`` is the longest seqlen_k, from which on
    a window has no bound.  Returns out and the log-sum-exp.
    """
    group = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    rows, keys = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None]
    distance = keys - rows - (k.shape[2] - q.shape[2])
    if slopes is not None:
        per_head = slopes.expand(q.shape[0], q.shape[1])[..., None, None]
        scores = scores - (per_head * distance.abs()).to(scores.dtype)
    limit = k.shape[2] if most is None else most
    left, right = (w if 0 <= w < limit else math.inf for w in window)
    visible = (distance >= -left) & (distance <= (0 if causal else right))
    masked = scores.masked_fill(~visible, -math.inf)
    seen = visible.any(-1)[:, None]
    probabilities = torch.where(seen, torch.softmax(masked, -1), torch.zeros((), dtype=q.dtype))
    if kept is not None:
        probabilities = probabilities * kept.to(q.dtype)
    lse = torch.where(seen[:, 0], torch.logsumexp(masked, -1), math.inf)
    return (probabilities @ v).transpose(1, 2), lse


def run(attention, tensors, dtype, dout):
    """Outputs and gradients of ``attention`` on copies of ``tensors`` in ``dtype``."""
    leaves = [x.detach().to(dtype).requires_grad_() for x in tensors]
    out = attention(*leaves)
    out.backward(dout.to(dtype))
    return [out.detach(), *(x.grad for x in leaves)]


def assert_close_enough(ours, low, exact):
    """Outputs and then, if there are more, gradients."""
    assert len(ours) == len(low) == len(exact) in {1, 2, 3, 4}
    for name, factor, mine, theirs, truth in zip(
        ("out", "dq", "dk", "dv"), (FACTOR_OUT, *[FACTOR_GRADIENT] * 3), ours, low, exact, strict=False
    ):
        assert mine.shape == truth.shape, name
        assert torch.isfinite(mine).all(), name
        error, allowed = largest(mine, truth), factor * largest(theirs, truth) + TINY
        assert error <= allowed, f"{name}: error {error}, allowed {allowed}"


def largest(found, truth):
    """The largest error; no element has none."""
    return (found.double() - truth).abs().max().item() if truth.numel() else 0.0


def check(tensors, *, ours, reference):
    dtype = tensors[0].dtype
    dout = torch.randn(tensors[0].shape, dtype=dtype)
    exact = run(reference, tensors, torch.float64, dout)
    low = run(reference, tensors, dtype, dout)
    assert all(torch.isfinite(x).all() for x in exact)
    assert_close_enough(run(ours, tensors, dtype, dout), low, exact)
