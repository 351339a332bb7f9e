"""The PyTorch implementation of dense attention, on any device, one block of scores at a time.

``reference.operators`` brings every call into this form.

Arithmetic is in fp32, for float64 tensors in float64. The forward pass adds blocks of equal rows up by their
log-sum-exps. The backward pass recomputes each block's probabilities from the log-sum-exp
over all keys, from any implementation: it also serves the kernels. Calls without features go to PyTorch's own
fused operators where available (``torch_fused``).

On GPUs, passes over the scores and launches cost as much as the products. So scales are factors of products,
and a number per row (the log-sum-exp) is subtracted by a product with one more column.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from functools import reduce

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import WIDE, Options, arithmetic
from flash_attn_rocm.reference import torch_fused
from flash_attn_rocm.reference.blocks import Block, Dropout, Problem
from flash_attn_rocm.reference.layout import (
    add_product,
    add_transposed_product,
    flattened,
    grouped,
    of_heads,
    product,
    unflattened,
    ungrouped,
    with_column,
)
from flash_attn_rocm.rewrite import sinks
from flash_attn_rocm.serving.capture import is_capturing

MANY_SCORES = 1 << 24  # with fewer, launches cost more than passes over the scores
# limit of scale / softcap: larger products bend to 1, as with infinity, and 0 stays 0
STEEP = 1e30
# Below this log-sum-exp, fp32 loses the logarithm of the number of keys.
FAR_BELOW = -(2.0**16)
ROUNDED = {"tf32", "bf16"}  # PyTorch's precisions of fp32 products that round factors


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alibi_slopes: Tensor | None,
    options: Options,
    *,
    dropout: Dropout | None,
    want_probabilities: bool,
    mask: Tensor | None = None,
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of checked inputs.

    q (batch, seqlen_q, nheads, headdim), k and v (batch, seqlen_k, nheads_k, headdim), v with any headdim,
    one dtype. ``mask`` and ``sink`` are as in ``Inputs``. Returns out (batch, seqlen_q, nheads, headdim of
    v), the log-sum-exp (batch, nheads, seqlen_q) fp32 (float64 for float64), and the probabilities in q's
    dtype, negative where dropped by dropout: (batch, nheads, seqlen_q, seqlen_k) on request, else (0,). Rows
    without a visible key give out 0 and log-sum-exp +inf.
    """
    with _without_autocast(q):
        plain = all(x is None for x in (alibi_slopes, dropout, mask, sink)) and not want_probabilities
        if plain and (found := torch_fused.forward(q, k, v, options)):
            return *found, q.new_empty(0)
        problem = _problem(q, k, v, alibi_slopes, options, dropout, mask)
        out, lse = _attended(problem)
        if sink is not None:
            share, lse = sinks.shares(lse, of_heads(sink.to(lse.dtype), q, k)[..., None])
            out = out.mul_(share[..., None])
        heads = (q.shape[0], q.shape[2], q.shape[1])
        signed = q.new_empty(0)
        if want_probabilities:
            problem = _problem(q, k, v, alibi_slopes, options, dropout, mask, lse)
            signed = _signed(problem).to(q.dtype).view(*heads, k.shape[1])
    return ungrouped(out, q), lse.view(heads), signed


def _attended(problem: Problem) -> tuple[Tensor, Tensor]:
    """out (pairs, group, seqlen_q, headdim) and the log-sum-exp, before rounding."""
    if problem.is_one_block:
        out, lse = _attended_in(problem, *problem.blocks)
    else:
        rows = problem.q.shape[:3]
        out = problem.q.new_zeros((*rows, problem.v.shape[-1]))
        lse = out.new_full(rows, -math.inf)
        for blocks in filter(None, problem.by_rows):
            where = blocks[0].where
            out[where], lse[where] = reduce(_joined, (_attended_in(problem, block) for block in blocks))
    # exp(score - lse) must be 0 for blind rows and where a score is NaN.
    return out, lse.nan_to_num_(math.inf, math.inf, math.inf)


def _attended_in(problem: Problem, block: Block) -> tuple[Tensor, Tensor]:
    """out and the log-sum-exp of one block. Among several it is -inf for rows without a visible key there."""
    scores = problem.scores(block)[1]
    weights = torch.softmax(scores, dim=-1)
    if problem.on_cpu:
        most, largest = scores.amax(dim=-1, keepdim=True), weights.amax(dim=-1, keepdim=True)
    else:  # one pass fewer
        most, place = scores.max(dim=-1, keepdim=True)
        largest = weights.gather(-1, place)
    del scores
    # The largest weight is 1 / sum(exp(score - most)).
    lse = most - largest.log_()
    weights = _dropped(weights, problem.kept(block), problem.options)
    out = product(weights, problem.keys_of(problem.v, block))
    if problem.may_blind:
        blind = most == -math.inf  # their weights are NaN
        out.masked_fill_(blind, 0.0)
        lse = lse if problem.is_one_block else lse.masked_fill_(blind, -math.inf)
    return out, lse.squeeze(-1)


def _joined(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """out and the log-sum-exp over the keys of both."""
    # NaN: rows without visible keys, whose out is 0
    share = torch.sigmoid(one[1] - other[1]).nan_to_num_(0.0)
    return torch.lerp(other[0], one[0], share[..., None]), torch.logaddexp(one[1], other[1])


def _signed(problem: Problem) -> Tensor:
    """The probabilities, negative where dropout dropped them: (pairs, group, seqlen_q, seqlen_k)."""
    signed = problem.q.new_zeros((*problem.q.shape[:3], problem.k.shape[1]))
    for block in problem.blocks:
        probabilities, kept = problem.probabilities(block)[1], problem.kept(block)
        signs = probabilities if kept is None else torch.where(kept, probabilities, -probabilities)
        signed[block.pairs, :, block.rows, block.keys] = signs
    return signed


def backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    alibi_slopes: Tensor | None,
    options: Options,
    *,
    dropout: Dropout | None,
    mask: Tensor | None = None,
    of_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v, in their shapes and dtype, from the forward pass's inputs and results.

    Adds the gradient of ``mask`` to ``of_mask``, if given, in the same shape.
    """
    with _without_autocast(q):
        plain = all(x is None for x in (alibi_slopes, dropout, mask))
        if plain and (found := torch_fused.backward(dout, q, k, v, out, lse, options)):
            return found
        problem = _problem(q, k, v, alibi_slopes, options, dropout, mask, lse)
        dout, out = grouped(dout, k.shape[2], problem.q.dtype), grouped(out, k.shape[2])
        given = _OfOut(problem, dout, (dout * out).sum(dim=-1, keepdim=True), of_mask)
        new = torch.empty_like if problem.is_one_block else torch.zeros_like
        dq, dk, dv = (new(x) for x in (problem.q, problem.k, problem.v))
        for block in problem.blocks:
            places = problem.rows_of(dq, block), problem.keys_of(dk, block), problem.keys_of(dv, block)
            _add_gradients(problem, given, block, places)
    return ungrouped(dq, q), unflattened(dk, k), unflattened(dv, v)


class _OfOut:
    """The gradient of out in the inner layout, and the means of dP that softmax's gradient subtracts.

    dP is the product of ``left`` and ``right``, less those means if it is ``folded``.
    """

    def __init__(self, problem: Problem, dout: Tensor, delta: Tensor, of_mask: Tensor | None) -> None:
        self.dout, self.delta, self.of_mask = dout, delta, of_mask
        self.total = _total_far_below(problem)
        self.folded = problem.dropout is None and _folds(problem.q, problem.k)
        self.left, self.right = with_column(dout, problem.v, delta) if self.folded else (dout, problem.v)


def _add_gradients(
    problem: Problem, given: _OfOut, block: Block, places: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Adds a block's share to its places in the gradients of q, k and v, which may be empty if it is all."""
    dq, dk, dv = places
    options, kept, beta = problem.options, problem.kept(block), not problem.is_one_block
    bent, probabilities = problem.probabilities(block)
    if given.total is not None:
        probabilities.div_(given.total[block.where])
    dropped = _dropped(probabilities, kept, options)
    add_transposed_product(dv, dropped, problem.rows_of(given.dout, block), beta=beta)
    del dropped
    dp = product(problem.rows_of(given.left, block), problem.keys_of(given.right, block).mT)
    ds = _dropped(dp, kept, options)
    if not given.folded:
        ds.sub_(problem.rows_of(given.delta, block))
    ds.mul_(probabilities)
    if given.of_mask is not None:
        problem.add_of_mask(block, ds, given.of_mask)
    ds, scale = _bent(ds, bent), options.softmax_scale
    add_product(dq, ds, problem.keys_of(problem.k, block), alpha=scale, beta=beta)
    add_transposed_product(dk, ds, problem.rows_of(problem.q, block), alpha=scale, beta=beta)


def _total_far_below(problem: Problem) -> Tensor | None:
    """The sum of the probabilities recomputed from lse, for rows with all scores far below 0, else 1.

    Shaped like lse. None without such rows. Only a bias makes them.
    """
    if problem.lse is None or problem.mask is None or problem.mask.dtype == torch.bool:
        return None
    far = problem.lse < FAR_BELOW
    if not is_capturing(far.device) and not far.any():
        return None
    total = torch.zeros_like(problem.lse)
    for block in problem.blocks:
        total[block.where] += problem.probabilities(block)[1].sum(dim=-1, keepdim=True)
    return total.masked_fill_(~far, 1.0)


def tangent(
    tangents: tuple[Tensor, Tensor, Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    alibi_slopes: Tensor | None,
    options: Options,
    *,
    dropout: Dropout | None,
    mask: Tensor | None = None,
) -> Tensor:
    """The tangent of out, in its shape and dtype, for forward-mode differentiation.

    Inputs are the tangents of q, k and v, in the shapes of q, k and v.
    """
    with _without_autocast(q):
        problem = _problem(q, k, v, alibi_slopes, options, dropout, mask, lse)
        moved, scale = _problem(*tangents, None, options, None, None), options.softmax_scale
        found = problem.q.new_zeros((*problem.q.shape[:3], v.shape[-1]))
        total = found.new_zeros((*found.shape[:3], 1))
        for block in problem.blocks:
            bent, probabilities = problem.probabilities(block)
            ds = product(problem.rows_of(moved.q, block), problem.keys_of(problem.k, block).mT, scale)
            ds.add_(product(problem.rows_of(problem.q, block), problem.keys_of(moved.k, block).mT, scale))
            weighted = _bent(ds, bent).mul_(probabilities)
            total[block.where] += weighted.sum(dim=-1, keepdim=True)
            kept = problem.kept(block)
            of_scores = product(_dropped(weighted, kept, options), problem.keys_of(problem.v, block))
            of_values = product(_dropped(probabilities, kept, options), problem.keys_of(moved.v, block))
            found[block.where] += of_scores.add_(of_values)
        found.sub_(total * grouped(out, k.shape[2]))
    return ungrouped(found, q)


def _problem(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alibi_slopes: Tensor | None,
    options: Options,
    dropout: Dropout | None,
    mask: Tensor | None,
    lse: Tensor | None = None,
) -> Problem:
    nheads_k, work = k.shape[2], arithmetic(q.dtype)
    slopes = None
    if alibi_slopes is not None:
        slopes = of_heads(alibi_slopes, q, k)[..., None, None].to(work)
    if mask is not None:
        mask = ~mask if mask.dtype == torch.bool else mask
        mask = mask.unflatten(1, (-1, q.shape[2] // nheads_k if mask.shape[1] > 1 else 1))
    alpha = options.softmax_scale
    if options.softcap > 0.0:
        alpha = max(-STEEP, min(alpha / options.softcap, STEEP))
    rows, keys, values = grouped(q, nheads_k, work), flattened(k, work), flattened(v, work)
    left, right, folded = rows, keys, False
    if lse is not None:
        lse = lse.view((*rows.shape[:3], 1))
        if folded := options.softcap <= 0.0 and _folds(rows, keys):
            (left, right), alpha = with_column(rows * alpha, keys, lse), 1.0
    return Problem(
        nheads_k, rows, keys, values, left, right, alpha, slopes, mask, options, dropout, lse, folded
    )


def _folds(q: Tensor, k: Tensor) -> bool:
    """Whether products subtract numbers of rows: in full precision, where it saves more than it costs."""
    if q[..., 0].numel() * k.shape[1] < MANY_SCORES:
        return False
    matmuls = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    return q.dtype == WIDE or all(x.fp32_precision not in ROUNDED for x in matmuls)


def _without_autocast(x: Tensor) -> AbstractContextManager[object]:
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def _bent(ds: Tensor, bent: Tensor | None) -> Tensor:
    """The gradients of scores before softcap, in place. ``bent`` are its hyperbolic tangents."""
    return ds if bent is None else torch.ops.aten.tanh_backward.grad_input(ds, bent, grad_input=ds)


def _dropped(values: Tensor, kept: Tensor | None, options: Options) -> Tensor:
    return values if kept is None else (values * kept).div_(1.0 - options.dropout_p)
