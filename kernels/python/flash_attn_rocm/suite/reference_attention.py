"""The reference implementation of attention in any dtype, and the comparison of results with it.

Used by the suite's cases and tests/installed/{wheel,numerics,shared}. The allowances are in
``values.tolerances``.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flash_attn_rocm.values.tolerances import (
    GRADIENT_FACTOR,
    WEIGHT_ROUNDINGS,
    allowed,
    dscores_error,
    least_error,
    lse_allowed,
    rounded_once_allowed,
    weights_together,
)

GRADIENTS = ("dq", "dk", "dv")
# Gradients are linear in dout, so multiples of dout are equally hard. Rounding errors differ: equal terms
# lose the same share, and the share depends on their position between two powers of two.
AS_HARD = (2**0.25, 2**0.5, 2**0.75)
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
Truths = Iterable[tuple[Tensor, ...]]
Errors = tuple[float, ...]  # of dq, dk and dv


@dataclass(frozen=True)
class Rules:
    """The options of a call. A window bound of -1 is no bound."""

    left: int = -1
    right: int = -1
    softcap: float = 0.0
    scale: float | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The options as keyword arguments of the public functions."""
        return {"window_size": (self.left, self.right), "softcap": self.softcap, "softmax_scale": self.scale}


@dataclass(frozen=True)
class Sequence:
    """One sequence of a call and its results.

    q, out: (rows, heads, headdim). k, v: (keys, heads_k, headdim). lse: (heads, rows), or None. slopes:
    (heads). kept: (heads, rows, keys), dropout's factors of the probabilities. bias: (heads, rows, keys),
    fp32, added to the scores. sink: (heads), a score of each row without a value. k and v may be float64.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    lse: Tensor | None
    slopes: Tensor | None = None
    kept: Tensor | None = None
    bias: Tensor | None = None
    sink: Tensor | None = None


@dataclass(frozen=True)
class Verdict:
    """The largest error of out and its allowance, the largest log-sum-exp error as a share of
    its allowance, and every problem."""

    error: float
    allowed: float
    lse_share: float
    wrong: tuple[str, ...]


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rules: Rules,
    slopes: Tensor | None = None,
    kept: Tensor | None = None,
    bias: Tensor | None = None,
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """out (…, rows, heads, headdim) and the log-sum-exp (…, heads, rows), in q's dtype.

    q: (…, rows, heads, headdim). k, v: (…, keys, heads_k, headdim). slopes: (…, heads). kept, bias: (…,
    heads, rows, keys). sink: (heads).

    Rows with only -inf scores, such as rows without a visible key, have an out of 0 and a log-sum-exp of
    +inf. Upstream treats them alike (flash_attn 2.8, csrc/flash_attn/src/softmax.h).
    """
    group = q.shape[-2] // k.shape[-2]
    q, k, v = (x.transpose(-2, -3) for x in (q, k, v))
    k, v = k.repeat_interleave(group, dim=-3), v.repeat_interleave(group, dim=-3)
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if rules.scale is None else rules.scale)
    if rules.softcap:
        scores = rules.softcap * torch.tanh(scores / rules.softcap)
    rows, keys = (torch.arange(x.shape[-2]) for x in (q, k))
    ahead = keys[None] - rows[:, None] - (len(keys) - len(rows))
    if slopes is not None:
        # Slopes are fp32, so biased scores are fp32 or wider, as in upstream's tests.
        wide = torch.promote_types(scores.dtype, slopes.dtype)
        scores = scores - slopes.to(wide)[..., None, None] * ahead.abs()
    if bias is not None:
        scores = scores + bias.to(torch.promote_types(scores.dtype, bias.dtype))
        scores = scores.masked_fill(bias == -math.inf, -math.inf)  # a boolean mask hides NaN, too
    hidden = torch.zeros_like(ahead, dtype=torch.bool)
    if rules.left >= 0:
        hidden |= ahead < -rules.left
    if rules.right >= 0:
        hidden |= ahead > rules.right
    scores = scores.masked_fill(hidden, -math.inf)
    blind = (scores == -math.inf).all(-1)
    if sink is not None:
        wide = torch.promote_types(scores.dtype, sink.dtype)
        scores = torch.cat(
            [scores.to(wide), sink.to(wide)[..., None, None].expand(*scores.shape[:-1], 1)], -1
        )
    probabilities = torch.softmax(scores, -1)[..., : len(keys)].masked_fill(blind[..., None], 0.0).to(v.dtype)
    if kept is not None:
        probabilities = probabilities * kept.to(v.dtype)
    lse = torch.logsumexp(scores, -1).masked_fill(blind, math.inf)
    return (probabilities @ v).transpose(-2, -3), lse


def judge(sequences: Iterable[Sequence], rules: Rules, *, rounded_once: bool = False) -> Verdict:
    """Compare all sequences of one call with float64.

    ``rounded_once``: also apply the stricter rule for kernels that round only out to each element.
    """
    errors, plain_errors, bound, shares, wrong = [0.0], [0.0], 0.0, [0.0], []
    for each in sequences:
        q, k, v, out = (x.detach().cpu() for x in (each.q, each.k, each.v, each.out))
        slopes = None if each.slopes is None else each.slopes.cpu()
        more = (rules, slopes, each.kept, each.bias, each.sink)
        exact, exact_lse = attention(*(x.double() for x in (q, k, v)), *more)
        plain, _ = attention(*(x.to(q.dtype) for x in (q, k, v)), *more)
        # Where a score is NaN or +inf, upstream's formula gives NaN, and the log-sum-exp +inf.
        nan = exact.isnan()
        if not torch.equal(out.isnan(), nan):
            wrong.append("out: NaN elsewhere than where the formula has it")
        # Beside an infinite number, products of bf16 on some CPUs (AMX) give NaN in other rows, too.
        plain = plain.to(exact.dtype).where(~plain.isnan(), exact)
        out, exact, plain = (x.masked_fill(nan, 0.0) for x in (out, exact, plain))
        exact_lse = exact_lse.masked_fill(nan.any(-1).transpose(0, 1), math.inf)
        errors.append(largest(out.double() - exact))
        plain_errors.append(least_error(largest(plain.double() - exact), NAMES[q.dtype], largest(exact)))
        bound = max(bound, allowed(0.0, terms=len(k), largest=largest(v)))
        blind = exact_lse == math.inf
        if (out.transpose(0, 1)[blind] != 0).any():
            wrong.append("rows that see no key are not 0")
        if each.lse is not None:
            shares += lse_shares(each.lse.cpu(), exact_lse, magnitude(q, k, rules))
        if rounded_once:
            wrong += _not_rounded_once(out, exact, magnitude(q, k, rules), _growth(each.kept) * largest(v))
    error, share = worst(errors), worst(shares)
    bound += allowed(max(plain_errors), terms=0, largest=0.0)
    if not error <= bound:
        wrong.append(f"out: error {error} against float64, allowed {bound}")
    if not share <= 1:
        wrong.append(f"log-sum-exp: {share} times the error that is allowed")
    return Verdict(error, bound, share, tuple(wrong))


def judge_gradients(
    sequences: Iterable[tuple[Sequence, Tensor, tuple[Tensor, ...]]], rules: Rules
) -> dict[str, Verdict]:
    """Compare dq, dk and dv of all sequences of one call with float64. Returns verdicts by name.

    The allowance grows with the error of the plain computation in the call's dtype: the error with this dout,
    or, if that is too small, the largest with its multiples AS_HARD. It also covers the effect of rounding
    out: gradients of scores are P * (dP - sum of dout * out), and a backward pass reads the rounded out.
    """
    cases = [*sequences]
    douts = [(each, dout.cpu()) for each, dout, _ in cases]
    exact = [_gradients(*each, rules, torch.float64) for each in douts]
    sizes = [_gradient_sizes(*each, rules) for each in douts]
    of_out = [_lost_by_rounding_out(*each, rules) for each in douts]
    plainly = _lost_plainly(douts, exact, rules)
    verdicts = {}
    for number, name in enumerate(GRADIENTS):
        truths = [one[number] for one in exact]
        errors = [
            largest(found[number].cpu().double() - one)
            for (*_, found), one in zip(cases, truths, strict=True)
        ]
        most = max([0.0, *map(largest, truths)])
        size = max([0.0, *(one[number] for one in sizes)])
        dtype = NAMES[cases[0][0].q.dtype]
        error = worst([0.0, *errors])
        lost = worst([plainly[number], *(one[number] for one in of_out)])

        def bound(lost: float, dtype: str = dtype, most: float = most, size: float = size) -> float:
            return allowed(
                least_error(lost, dtype, most), terms=WEIGHT_ROUNDINGS, largest=size, factor=GRADIENT_FACTOR
            )

        if not error <= bound(lost):
            lost = worst([lost, _lost_as_hard(douts, rules)[number]])
        most_allowed = bound(lost)
        wrong = (f"{name}: error {error} against float64, allowed {most_allowed}",)
        verdicts[name] = Verdict(error, most_allowed, 0.0, () if error <= most_allowed else wrong)
    return verdicts


def _lost_plainly(douts: Iterable[tuple[Sequence, Tensor]], exact: Truths, rules: Rules) -> Errors:
    """The largest errors of dq, dk and dv of the plain computation."""
    errors = []
    for (each, dout), truths in zip(douts, exact, strict=True):
        plain = _gradients(each, dout, rules, each.q.dtype)
        errors.append([largest(one.double() - other) for one, other in zip(plain, truths, strict=True)])
    return tuple(worst([0.0, *some]) for some in zip(*errors, strict=True))


def _lost_as_hard(douts: Iterable[tuple[Sequence, Tensor]], rules: Rules) -> Errors:
    """The largest errors of the plain computation with multiples of dout, divided by the multiple."""
    errors = []
    for times in AS_HARD:
        scaled = [(each, (dout * times).to(dout.dtype)) for each, dout in douts]
        exact = [_gradients(*each, rules, torch.float64) for each in scaled]
        errors.append([error / times for error in _lost_plainly(scaled, exact, rules)])
    return tuple(worst(some) for some in zip(*errors, strict=True))


def _gradients(each: Sequence, dout: Tensor, rules: Rules, dtype: torch.dtype) -> tuple[Tensor, ...]:
    leaves = [x.detach().cpu().to(dtype).requires_grad_() for x in (each.q, each.k, each.v)]
    slopes = None if each.slopes is None else each.slopes.cpu()
    out, _ = attention(*leaves, rules, slopes, each.kept, each.bias)
    return torch.autograd.grad(out, leaves, dout.to(out.dtype))


def _lost_by_rounding_out(each: Sequence, dout: Tensor, rules: Rules) -> tuple[float, float, float]:
    """Errors of dq, dk and dv from rounding out to q's dtype, in exact arithmetic."""
    q, k, v = (x.detach().cpu().double() for x in (each.q, each.k, each.v))
    leaves = [x.requires_grad_() for x in (q, k)]
    slopes = None if each.slopes is None else each.slopes.cpu()
    out, lse = attention(*leaves, v, rules, slopes, each.kept, each.bias)
    rounding = out.detach().to(each.q.dtype).double() - out.detach()
    # The derivative of a log-sum-exp by a score is its probability.
    of_sums = (dout.double() * rounding).sum(-1).transpose(0, 1)
    dq, dk = torch.autograd.grad(lse, leaves, of_sums)
    return largest(dq), largest(dk), 0.0


def _gradient_sizes(each: Sequence, dout: Tensor, rules: Rules) -> tuple[float, float, float]:
    """Largest factors of the weights in dq, dk and dv, times the common error of these weights."""
    q, k, v = (x.detach().cpu() for x in (each.q, each.k, each.v))
    together = weights_together(_most_of_a_key(each, rules))
    scale = q.shape[-1] ** -0.5 if rules.scale is None else abs(rules.scale)
    of_scores = magnitude(dout, v, Rules(scale=1.0)) * scale * _growth(each.kept)
    of_values = largest(dout) * _growth(each.kept)
    return of_scores * largest(k), of_scores * largest(q) * together, of_values * together


def _most_of_a_key(each: Sequence, rules: Rules) -> float:
    """The largest sum of a key's probabilities, over all queries and all heads that read the key."""
    q, k = (x.detach().cpu().double() for x in (each.q, each.k))
    slopes = None if each.slopes is None else each.slopes.cpu()
    # With values of 1, the gradient of a value is the sum of its weights.
    ones = torch.ones_like(k[..., :1]).requires_grad_()
    out, _ = attention(q, k, ones, rules, slopes, bias=each.bias)
    (sums,) = torch.autograd.grad(out.sum(), [ones])
    return largest(sums)


def dscores_allowed(
    each: Sequence, dout: Tensor, out: Tensor, lse: Tensor, rules: Rules
) -> tuple[Tensor, Tensor]:
    """(heads, rows, keys), float64: the gradients of the scores and the allowed error of each.

    The gradients are P * (dP - sum of dout * out). ``out`` is rounded. ``lse`` and the inputs of the
    recomputed probabilities are fp32.
    """
    q, k, v = (x.detach().cpu().double() for x in (each.q, each.k, each.v))
    assert each.bias is not None, "the gradients of scores are a bias's"
    bias = each.bias.double().requires_grad_()
    exact_out, sums = attention(q, k, v, rules, kept=each.kept, bias=bias)
    (exact,) = torch.autograd.grad(exact_out, bias, dout.double(), retain_graph=True)
    group = q.shape[1] // k.shape[1]
    # The derivative of a log-sum-exp by a score is its probability.
    (weights,) = torch.autograd.grad(sums.masked_fill(sums.isinf(), 0.0).sum(), bias)
    keys = v.abs().repeat_interleave(group, dim=1).permute(1, 2, 0)
    of_values = _growth(each.kept) * (dout.double().abs().transpose(0, 1) @ keys)
    of_out = (dout.double() * out.double()).abs().sum(-1).T[..., None]
    scores = lse.double().masked_fill(lse.isinf(), 0.0).abs()[..., None] + magnitude(q, k, rules)
    return exact, dscores_error(NAMES[each.q.dtype], weights, of_values, of_out, scores)


def lse_shares(found: Tensor, exact: Tensor, size: float) -> Iterator[float]:
    """Errors of a log-sum-exp as shares of their allowances.

    Only rows without a visible key may have +inf.
    """
    for one, other in zip(found.flatten().tolist(), exact.flatten().tolist(), strict=True):
        if math.inf in (one, other):
            yield 0.0 if one == other else math.inf
        else:
            yield abs(one - other) / lse_allowed(other, size)


def _not_rounded_once(out: Tensor, exact: Tensor, size: float, values: float) -> Iterator[str]:
    """The first element whose error exceeds its rounding."""
    name = NAMES[out.dtype]
    for found, wanted in zip(out.flatten().tolist(), exact.flatten().tolist(), strict=True):
        near = rounded_once_allowed(wanted, name, magnitude=size, terms=out.shape[-1], largest=values)
        if not abs(found - wanted) <= near:
            times = abs(found - wanted) / near if near else math.inf
            yield f"out: {found} for {wanted}, off by {times} times what rounding may do"
            return


def _growth(kept: Tensor | None) -> float:
    return 1.0 if kept is None else max(1.0, largest(kept))


def magnitude(q: Tensor, k: Tensor, rules: Rules) -> float:
    """The largest sum of the magnitudes of a score's terms, NaN excluded."""
    q, k = (x.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) for x in (q, k))
    scale = q.shape[-1] ** -0.5 if rules.scale is None else abs(rules.scale)
    heads = zip(q.unbind(1), k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).unbind(1), strict=True)
    return max(
        (largest(one.abs().double() @ other.abs().double().T) * scale for one, other in heads), default=0.0
    )


def largest(differences: Tensor) -> float:
    """The largest absolute value. NaN if any element is NaN: it then exceeds every bound."""
    return differences.abs().max().item() if differences.numel() else 0.0


def worst(errors: Iterable[float]) -> float:
    """The largest, or NaN if any is NaN."""
    found = list(errors)
    return math.nan if any(map(math.isnan, found)) else max(found)
