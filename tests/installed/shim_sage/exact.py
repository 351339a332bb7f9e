"""Attention by its definition in float64, and how far an answer of 16 bits may be from it."""

import torch

# The PyTorch implementation computes in fp32 and rounds once: half a step of the dtype. 2^-18 of the largest
# number is left for fp32's own rounding, in sums of a few hundred.
HALF_A_STEP = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
OF_SUMS = 2.0**-18


def heads_first(x, layout):
    return x if layout == "HND" else x.transpose(1, 2)


def draw(layout="HND", dtype=torch.float16, *, heads=4, heads_k=2, rows=33, keys=33, head_dim=64, seed=0):
    """q, k and v in a layout, contiguous there."""
    generator = torch.Generator().manual_seed(seed)

    def one(count, length):
        shape = (2, count, length, head_dim) if layout == "HND" else (2, length, count, head_dim)
        return torch.randn(shape, generator=generator).to(dtype)

    return one(heads, rows), one(heads_k, keys), one(heads_k, keys)


def attend(q, k, v, *, causal=False, scale=None, mask=None):
    """out (batch, heads, length, headdim) and the natural log-sum-exp, of tensors with heads first.

    A row that sees no key has 0 and -inf.
    """
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    if mask is not None:
        hidden = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else None
        scores = scores + mask.double() if hidden is None else hidden
    lse = scores.logsumexp(-1)
    empty = lse.isneginf()[..., None]
    shares = scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
    return shares @ v, lse


def close(found, wanted):
    """One rounding to found's dtype apart."""
    assert found.shape == wanted.shape
    allowed = HALF_A_STEP[found.dtype] * wanted.abs() + OF_SUMS * wanted.abs().max()
    assert ((found.double() - wanted).abs() <= allowed).all()


def close_lse(found, wanted):
    """Of an fp32 log-sum-exp."""
    assert found.dtype == torch.float32
    assert found.shape == wanted.shape
    assert torch.equal(found.isneginf(), wanted.isneginf())
    seen = wanted.isfinite()
    assert ((found.double() - wanted)[seen].abs() <= OF_SUMS * wanted[seen].abs().clamp(min=1)).all()
