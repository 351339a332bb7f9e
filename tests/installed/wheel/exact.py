"""Functions of batches and their gradients in float64 and in low precision, held to the numerics rule.

The reference implementation is flash_attn_rocm.suite.reference_attention. The limits are those of
flash_attn_rocm.values.tolerances: 2 times the error of the plain computation for outputs, 3 times for
gradients.
"""

import torch
from flash_attn_rocm.suite import reference_attention
from flash_attn_rocm.values.tolerances import GRADIENT_FACTOR, OUT_FACTOR, WEIGHT_ROUNDINGS, allowed

RULES = reference_attention.Rules()


def plain(
    q, k, v, *, causal=False, window=(-1, -1), softcap=0.0, slopes=None, scale=None, kept=None, most=None
):
    """out and the log-sum-exp of the reference implementation in the inputs' dtype.

    q (batch, seqlen_q, nheads, headdim), k and v (batch, seqlen_k, nheads_k, headdim). ``kept`` (batch,
    nheads, seqlen_q, seqlen_k) multiplies the probabilities. ``most`` is the longest seqlen_k: a window of
    that width is unbounded.
    """
    limit = k.shape[1] if most is None else most
    left, right = (bound if 0 <= bound < limit else -1 for bound in window)
    rules = reference_attention.Rules(left, 0 if causal else right, softcap, scale)
    of_batch = None if slopes is None else slopes.expand(q.shape[0], q.shape[2])
    return reference_attention.attention(q, k, v, rules, of_batch, kept)


def run(attention, tensors, dtype, dout):
    """Outputs and gradients of ``attention`` on copies of ``tensors`` in ``dtype``."""
    leaves = [x.detach().to(dtype).requires_grad_() for x in tensors]
    out = attention(*leaves)
    out.backward(dout.to(dtype))
    return [out.detach(), *(x.grad for x in leaves)]


def assert_close_enough(ours, low, exact, tensors, dout):
    """Outputs and, if present, gradients. ``tensors`` are q, k and v. ``dout`` is the gradient of out."""
    assert len(ours) == len(low) == len(exact) in {1, 2, 3, 4}
    names = ("out", "dq", "dk", "dv")
    bounds = (OUT_FACTOR, *[GRADIENT_FACTOR] * 3), sums(tensors, dout)
    for name, factor, (terms, size), mine, theirs, truth in zip(
        names, *bounds, ours, low, exact, strict=False
    ):
        assert mine.shape == truth.shape, name
        assert torch.isfinite(mine).all(), name
        error = largest(mine, truth)
        bound = allowed(largest(theirs, truth), terms=terms, largest=size, factor=factor)
        assert error <= bound, f"{name}: error {error}, allowed {bound}"


def sums(tensors, dout):
    """The fp32 loss of out, dq, dk and dv: number of roundings, and their magnitude."""
    q, k, v, dout = (x.detach().double().abs() for x in (*tensors, dout))
    dp = (dout.flatten(0, -2) @ v.flatten(0, -2).T).max() if dout.numel() and v.numel() else 0.0
    q_most, k_most, v_most, dout_most = (reference_attention.largest(x) for x in (q, k, v, dout))
    of_scores = float(dp) * q.shape[-1] ** -0.5
    return (
        (k.shape[-3], v_most),
        (WEIGHT_ROUNDINGS, of_scores * k_most),
        (WEIGHT_ROUNDINGS, of_scores * q_most),
        (WEIGHT_ROUNDINGS, dout_most),
    )


def largest(found, truth):
    """The largest error. An empty tensor has none."""
    return reference_attention.largest(found.double() - truth)


def check(tensors, *, ours, reference):
    dtype = tensors[0].dtype
    dout = torch.randn((*tensors[0].shape[:-1], tensors[2].shape[-1]), dtype=dtype)
    exact = run(reference, tensors, torch.float64, dout)
    low = run(reference, tensors, dtype, dout)
    assert all(torch.isfinite(x).all() for x in exact)
    assert_close_enough(run(ours, tensors, dtype, dout), low, exact, tensors, dout)


def assert_log_sum_exp(found, exact, tensors, rules=RULES):
    """``found`` and ``exact`` have equal shapes. ``tensors`` are q and k."""
    q, k = (x.detach().flatten(0, -3) for x in tensors)
    size = reference_attention.magnitude(q, k, rules)
    assert found.shape == exact.shape
    shares = reference_attention.lse_shares(found, exact, size)
    assert reference_attention.worst([0.0, *shares]) <= 1
