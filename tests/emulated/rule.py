"""The rule that kernels' results are held to, and attention as the textbook writes it.

The largest error may be FACTOR times that of a plain PyTorch computation in the tensors' own dtype, because
that is what the dtype itself costs, and SUM_ROUNDING times the largest value.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
FACTOR = 2.0
MOST_KEYS = 320
# What fp32 itself may lose in a sum of that many products, whose weights add up to 1: the plain computation
# may happen to be exact, and then this is all that is allowed.
SUM_ROUNDING = MOST_KEYS * 2.0**-24
# Relative, of fp32 arithmetic on exactly representable inputs: as many summands, and one logarithm.  Below 1
# it is absolute: where the log-sum-exp crosses zero, its terms do not.
LSE_TOLERANCE = 1e-5
# A score is a sum whose terms may cancel: relative to the sum of their magnitudes, one rounding of fp32.
SCORE_ROUNDING = 2.0**-24


@dataclass(frozen=True)
class Rules:
    """How a call attends; -1 is no bound of the window."""

    left: int = -1
    right: int = -1
    softcap: float = 0.0
    scale: float | None = None

    @property
    def arguments(self):
        """As the public functions take them."""
        return {"window_size": (self.left, self.right), "softcap": self.softcap, "softmax_scale": self.scale}


@dataclass(frozen=True)
class Sequence:
    """One sequence of a call and what came out: q, out (rows, heads, headdim), k, v (keys, heads_k, headdim),
    lse (heads, rows), slopes (heads); ``kept`` (heads, rows, keys), what remains of the probabilities."""

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    lse: Tensor
    slopes: Tensor | None = None
    kept: Tensor | None = None


def attention(q, k, v, rules, slopes=None, kept=None):
    """out (rows, heads, headdim) and the log-sum-exp (heads, rows) in the inputs' dtype.

    Rows that see nothing give 0 and +inf.
    """
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    k, v = k.repeat_interleave(group, dim=0), v.repeat_interleave(group, dim=0)
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if rules.scale is None else rules.scale)
    if rules.softcap:
        scores = rules.softcap * torch.tanh(scores / rules.softcap)
    rows, keys = (torch.arange(n) for n in (q.shape[1], k.shape[1]))
    ahead = keys[None] - rows[:, None] - (len(keys) - len(rows))
    if slopes is not None:
        # Slopes are fp32, and a dtype that is wider stays.
        scores = scores - slopes[:, None, None] * ahead.abs()
    hidden = torch.zeros_like(ahead, dtype=torch.bool)
    if rules.left >= 0:
        hidden |= ahead < -rules.left
    if rules.right >= 0:
        hidden |= ahead > rules.right
    blind = hidden.all(-1) if len(keys) else torch.ones(len(rows), dtype=torch.bool)
    scores = scores.masked_fill(hidden, -math.inf)
    probabilities = torch.softmax(scores, -1).masked_fill(blind[:, None], 0.0).to(v.dtype)
    if kept is not None:
        probabilities = probabilities * kept.to(v.dtype)
    lse = torch.logsumexp(scores, -1).masked_fill(blind, math.inf)
    return (probabilities @ v).transpose(0, 1), lse


def judge(shown, instance, case, sequences, rules):
    """Hold all sequences of one call to the rule; what was found goes into the record."""
    errors, plain_errors, values, lse_shares = [0.0], [0.0], [0.0], [0.0]
    for each in sequences:
        out, lse = each.out.cpu(), each.lse.cpu().double()
        low = [x.cpu() for x in (each.q, each.k, each.v)]
        slopes = None if each.slopes is None else each.slopes.cpu()
        exact, exact_lse = attention(*(x.double() for x in low), rules, slopes, each.kept)
        plain, _ = attention(*low, rules, slopes, each.kept)
        errors.append(largest(out.double() - exact))
        plain_errors.append(largest(plain.double() - exact))
        values.append(largest(low[2]))
        blind = exact_lse == math.inf
        assert (lse[blind] == math.inf).all(), "rows that see no key have log-sum-exp +inf"
        assert (out.transpose(0, 1)[blind] == 0).all(), "rows that see no key are 0"
        lse_allowed = LSE_TOLERANCE * exact_lse.abs().clamp(min=1.0) + SCORE_ROUNDING * magnitude(
            *low[:2], rules
        )
        lse_shares.append(largest(((lse - exact_lse) / lse_allowed)[~blind]))
    error, lse_share = worst(errors), worst(lse_shares)
    allowed = FACTOR * max(plain_errors) + SUM_ROUNDING * max(values)
    shown.compared(instance, case, error, allowed)
    assert error <= allowed, f"out: error {error} against float64, allowed {allowed}"
    shown.compared_lse(instance, lse_share * LSE_TOLERANCE)
    assert lse_share <= 1, f"log-sum-exp: {lse_share} times the error that is allowed"


def magnitude(q, k, rules):
    """The largest sum of the magnitudes of a score's terms."""
    scale = q.shape[-1] ** -0.5 if rules.scale is None else abs(rules.scale)
    heads = zip(q.unbind(1), k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).unbind(1), strict=True)
    return max(
        (largest(one.abs().double() @ other.abs().double().T) * scale for one, other in heads), default=0.0
    )


def largest(differences):
    """The largest absolute value; NaN where there is one, so that it meets no bound."""
    return differences.abs().max().item() if differences.numel() else 0.0


def worst(errors):
    """The largest, or NaN."""
    return math.nan if any(map(math.isnan, errors)) else max(errors)
