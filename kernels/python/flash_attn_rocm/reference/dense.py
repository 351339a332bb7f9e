"""The PyTorch implementation of dense attention, on any device, one block of scores at a time.

``reference.operators`` brings every call into this form.

Arithmetic is in fp32, for float64 tensors in float64. A block is (batch x kv head) pairs times query rows
times keys, so memory grows with the lengths instead of their product. The forward pass adds blocks of equal
rows up by their log-sum-exps. The backward pass recomputes each block's probabilities from the log-sum-exp
over all keys, from any implementation: it also serves the kernels. Calls without features go to PyTorch's own
fused operators where available (``torch_fused``).

On GPUs, passes over the scores and launches cost as much as the products. So scales are factors of products,
and a number per row (the log-sum-exp) is subtracted by a product with one more column.

Inside, queries are grouped by the kv head that they read: (pairs, group, seqlen_q, headdim). Keys and values
are (pairs, seqlen_k, headdim). pairs = batch * nheads_k, group = nheads / nheads_k.
"""

import itertools
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, reduce

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import WIDE, Options, arithmetic
from flash_attn_rocm.reference import philox, torch_fused
from flash_attn_rocm.rewrite import sinks
from flash_attn_rocm.serving.capture import is_capturing

BLOCK_SCORES = 1 << 26  # scores of a block: 256 MiB in fp32
BLOCK_KEYS = 1 << 11  # PyTorch's softmax keeps this many in registers, and more rows make faster products
BLOCK_ROWS = 512  # of a pair: few enough for a causal mask to skip keys
SKIPPING = 16  # that mask has at least so many blocks of rows, if they have the scores to fill a GPU
MANY_SCORES = 1 << 24  # with fewer, launches cost more than passes over the scores
ON_CPU = 16  # on a CPU rows and scores of a block are divided by this, so that it fits into caches
IF_DROPPED = 4  # on a GPU with dropout: its random numbers need several times the memory of the scores
# limit of scale / softcap: larger products bend to 1, as with infinity, and 0 stays 0
STEEP = 1e30
# Below this log-sum-exp, fp32 loses the logarithm of the number of keys.
FAR_BELOW = -(2.0**16)
ROUNDED = {"tf32", "bf16"}  # PyTorch's precisions of fp32 products that round factors


@dataclass(frozen=True)
class Dropout:
    """``state`` is the key (2,) of ``philox``, ``batch`` the first sequence's index.

    ``columns`` are the keys' column numbers, (batch, seqlen_k), if they differ from positions
    (``key_masks``).
    """

    state: Tensor
    batch: int
    columns: Tensor | None = None


@dataclass(frozen=True)
class _Block:
    """``pairs`` are whole sequences, or heads of one."""

    pairs: slice
    rows: slice
    keys: slice

    @property
    def where(self) -> tuple[slice, slice, slice]:
        """The block's rows, as an index into tensors shaped like the queries."""
        return self.pairs, slice(None), self.rows


@dataclass(frozen=True)
class _Problem:
    """The inputs in the inner layout and the arithmetic's dtype, v with any headdim.

    Scores, before softcap's tanh, are ``alpha`` times the products of ``left`` and ``right``: of q and k,
    with one more column if that subtracts ``lse`` (``folded``). ``lse`` is None or (pairs, group, seqlen_q,
    1). ``slopes`` is (pairs, group, 1, 1) or None. ``mask`` is None or a view (batch, nheads_k, group,
    seqlen_q, seqlen_k), where any size may be 1: numbers to add to scores, or booleans that hide them.
    ``corners`` are masks of windows, by their sizes.
    """

    nheads_k: int
    q: Tensor
    k: Tensor
    v: Tensor
    left: Tensor
    right: Tensor
    alpha: float
    slopes: Tensor | None
    mask: Tensor | None
    options: Options
    dropout: Dropout | None
    lse: Tensor | None = None
    folded: bool = False
    corners: dict[tuple[int, int, int], Tensor] = field(default_factory=dict)

    @property
    def blocks(self) -> Iterator[_Block]:
        """All blocks with visible keys."""
        return itertools.chain.from_iterable(self.by_rows)

    @cached_property
    def is_one_block(self) -> bool:
        """Whether one block has all rows and keys."""
        first = self.by_rows[0] if len(self.by_rows) == 1 else []
        return len(first) == 1 and first[0].keys == slice(0, self.k.shape[1])

    @property
    def is_bounded(self) -> bool:
        """Whether positions hide keys."""
        return self.options.window_left >= 0 or self.options.window_right >= 0 or self.options.chunk > 0

    @property
    def on_cpu(self) -> bool:
        """Whether passes over the scores and launches are cheap, compared with products."""
        return self.q.device.type == "cpu"

    def rows_of(self, x: Tensor, block: _Block) -> Tensor:
        """The block's rows of a tensor shaped like the queries: a view."""
        return x if self.is_one_block else x[block.where]

    def keys_of(self, x: Tensor, block: _Block) -> Tensor:
        """The block's keys of a tensor shaped like the keys: a view."""
        return x if self.is_one_block else x[block.pairs, block.keys]

    @cached_property
    def by_rows(self) -> list[list[_Block]]:
        """Lists of blocks: each list has all visible keys of some pairs and rows."""
        (pairs, group, seqlen_q, _), seqlen_k = self.q.shape, self.k.shape[1]
        most = BLOCK_SCORES // (ON_CPU if self.on_cpu else IF_DROPPED if self.dropout else 1)
        if not self.is_bounded and 0 < pairs * group * seqlen_q * seqlen_k <= most:
            return [[_Block(slice(0, pairs), slice(0, seqlen_q), slice(0, seqlen_k))]]
        at_once = max(1, most // max(1, min(seqlen_k, BLOCK_KEYS)))
        row_step = max(1, min(seqlen_q, self._rows(most, at_once), at_once // group))
        found = []
        for some in self._some_pairs(at_once // (row_step * group)):
            key_step = max(1, most // ((some.stop - some.start) * group * row_step))
            for row in range(0, seqlen_q, row_step):
                rows = slice(row, min(row + row_step, seqlen_q))
                keys = self._visible_keys(rows)
                starts = range(keys.start, keys.stop, key_step)
                found.append([_Block(some, rows, slice(i, min(i + key_step, keys.stop))) for i in starts])
        return found

    def _rows(self, most: int, at_once: int) -> int:
        """Rows of a block, of ``most`` scores and ``at_once`` rows of all pairs."""
        pairs, seqlen_k = max(1, self.q.shape[0] * self.q.shape[1]), max(1, self.k.shape[1])
        if not self.is_bounded:
            return max(BLOCK_ROWS, at_once // pairs)
        left, right, chunk = self.options.window_left, self.options.window_right, self.options.chunk
        reach = min(seqlen_k, chunk or seqlen_k, left + right + 1 if min(left, right) >= 0 else seqlen_k)
        several = 0 if self.on_cpu else max(reach // SKIPPING, most // (2 * pairs * seqlen_k))
        return max(BLOCK_ROWS, min(at_once // pairs, several))

    def _some_pairs(self, most: int) -> Iterator[slice]:
        """At least one pair, at most ``most``."""
        pairs, heads = self.q.shape[0], self.nheads_k
        step = max(1, most // heads * heads or most)
        for first in range(0, pairs, max(step, heads)):
            last = min(first + max(step, heads), pairs)
            yield from (slice(i, min(i + step, last)) for i in range(first, last, step))

    def _visible_keys(self, rows: slice) -> slice:
        seqlen_q, seqlen_k = self.q.shape[2], self.k.shape[1]
        first, last = rows.start + seqlen_k - seqlen_q, rows.stop - 1 + seqlen_k - seqlen_q
        begin = 0 if self.options.window_left < 0 else min(max(first - self.options.window_left, 0), seqlen_k)
        end = (
            seqlen_k
            if self.options.window_right < 0
            else min(max(last + self.options.window_right + 1, 0), seqlen_k)
        )
        if chunk := self.options.chunk:
            begin = max(begin, first // chunk * chunk)
            end = min(end, max((last // chunk + 1) * chunk, 0))
        return slice(begin, max(begin, end))

    def scores(self, block: _Block) -> tuple[Tensor | None, Tensor]:
        """The scores less ``lse``, (pairs, group, rows, keys), and softcap's hyperbolic tangents, if any.

        Without ``lse`` no tangents are kept.
        """
        left, right = self.rows_of(self.left, block), self.keys_of(self.right, block)
        scores = _product(left, right.mT, self.alpha)
        bent, lse = None, None if self.folded else self.lse
        if self.options.softcap > 0.0:
            scores.tanh_()
            if self.lse is None:
                scores.mul_(self.options.softcap)
            elif self.on_cpu:
                bent, scores = scores, scores * self.options.softcap
            else:  # one pass fewer
                bent, lse = scores, None
                scores = torch.add(-self.rows_of(self.lse, block), bent, alpha=self.options.softcap)
        if self.slopes is not None:
            distance, causal = self._distance(block), self.options.window_right == 0
            addend = distance if causal else distance.abs_()  # behind the diagonal it is hidden
            scores.addcmul_(self.slopes[block.pairs], addend, value=1 if causal else -1)
        if self.mask is not None:
            masked, mask = self._by_sequence(scores), self._mask_of(block, self.mask)
            if mask.dtype == torch.bool:
                masked.masked_fill_(mask, -math.inf)
            else:
                masked.add_(mask)
        if lse is not None:  # last, so that the only key of a row has the probability 1
            scores.sub_(self.rows_of(lse, block))
        if self.is_bounded:
            self._hide(block, scores)
        return bent, scores

    def probabilities(self, block: _Block) -> tuple[Tensor | None, Tensor]:
        """As ``scores``, with the probabilities by ``lse``."""
        bent, scores = self.scores(block)
        return bent, scores.exp_()

    @property
    def may_blind(self) -> bool:
        """Whether a row may have no score above -inf. Those of softcap are finite, or NaN."""
        return self.is_bounded or self.mask is not None or self.options.softcap <= 0.0

    def _by_sequence(self, scores: Tensor) -> Tensor:
        """(pairs, group, rows, keys) to (sequences, kv heads, group, rows, keys): a view."""
        return scores.view(-1, min(self.nheads_k, scores.shape[0]), *scores.shape[1:])

    def _hide(self, block: _Block, scores: Tensor) -> None:
        """Applies window and chunk. Most blocks have few hidden keys, at their ends."""
        keys, first = block.keys, block.rows.start + self.k.shape[1] - self.q.shape[2]
        left, right = self.options.window_left, self.options.window_right
        before = (keys.start, min(keys.stop, first + scores.shape[2] - 1 - left) if left >= 0 else keys.start)
        behind = (max(keys.start, first + right + 1) if right >= 0 else keys.stop, keys.stop)
        ends = [before, behind] if before[1] <= behind[0] else [(keys.start, keys.stop)]
        for start, stop in ends:
            if start < stop:
                beyond = self._beyond_window(scores.shape[2], stop - start, first - start)
                scores[..., start - keys.start : stop - keys.start].masked_fill_(beyond, -math.inf)
        if chunk := self.options.chunk:
            rows = torch.arange(first, first + scores.shape[2], device=scores.device)[:, None]
            places = torch.arange(keys.start, keys.stop, device=scores.device)
            of_rows, of_keys = (x.div(chunk, rounding_mode="floor") for x in (rows, places))
            scores.masked_fill_(of_rows != of_keys, -math.inf)

    def _beyond_window(self, rows: int, keys: int, diagonal: int) -> Tensor:
        """(rows, keys), True outside of the window, if the first row's diagonal is the key ``diagonal``."""
        sizes = (rows, keys, diagonal)
        if sizes not in self.corners:
            left, right = self.options.window_left, self.options.window_right
            found = torch.ones(rows, keys, dtype=torch.bool, device=self.q.device)
            if left < 0:
                found.triu_(diagonal + right + 1)
            elif right < 0:
                found.tril_(diagonal - left - 1)
            else:
                found.tril_(diagonal + right).triu_(diagonal - left).logical_not_()
            self.corners[sizes] = found
        return self.corners[sizes]

    def _distance(self, block: _Block) -> Tensor:
        """Of the keys from the rows' diagonals: (rows, keys), in the arithmetic's dtype."""
        first = block.rows.start + self.k.shape[1] - self.q.shape[2] - block.keys.start
        ends = (first, first + block.rows.stop - block.rows.start), (0, block.keys.stop - block.keys.start)
        rows, keys = (torch.arange(*each, device=self.q.device, dtype=self.q.dtype) for each in ends)
        return keys - rows[:, None]

    def _mask_of(self, block: _Block, mask: Tensor) -> Tensor:
        """A view (sequences, kv heads, group, rows, keys), with any of these 1."""
        first, last, heads = block.pairs.start, block.pairs.stop, self.nheads_k
        sequences, head = slice(first // heads, -(-last // heads)), first % heads
        wanted = (sequences, slice(head, head + last - first), slice(None), block.rows, block.keys)
        return mask[tuple(x if n > 1 else slice(None) for x, n in zip(wanted, mask.shape, strict=True))]

    def add_of_mask(self, block: _Block, ds: Tensor, to: Tensor) -> None:
        """Adds a block's score gradients (pairs, group, rows, keys) to the mask's gradient ``to``.

        Dimensions of size 1 in ``to`` are summed, always in one order.
        """
        place = self._mask_of(block, to.unflatten(1, (-1, self.q.shape[1] if to.shape[1] > 1 else 1)))
        place += self._by_sequence(ds).sum_to_size(place.shape)

    def kept(self, block: _Block) -> Tensor | None:
        """Dropout's kept probabilities. Equal in every pass."""
        if self.dropout is None:
            return None
        group, device = self.q.shape[1], self.q.device
        pairs = torch.arange(block.pairs.start, block.pairs.stop, device=device)[:, None, None, None]
        members = torch.arange(group, device=device)[:, None, None]
        columns: range | Tensor = range(block.keys.start, block.keys.stop)
        if self.dropout.columns is not None:
            columns = self.dropout.columns[pairs.flatten() // self.nheads_k, block.keys][:, None, None]
        return philox.keep(
            self.dropout.state,
            self.options.dropout_p,
            batches=self.dropout.batch + pairs // self.nheads_k,
            heads=pairs % self.nheads_k * group + members,
            rows=torch.arange(block.rows.start, block.rows.stop, device=device)[:, None],
            columns=columns,
        )


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
            share, lse = sinks.shares(lse, _of_heads(sink.to(lse.dtype), q, k)[..., None])
            out = out.mul_(share[..., None])
        heads = (q.shape[0], q.shape[2], q.shape[1])
        signed = q.new_empty(0)
        if want_probabilities:
            problem = _problem(q, k, v, alibi_slopes, options, dropout, mask, lse)
            signed = _signed(problem).to(q.dtype).view(*heads, k.shape[1])
    return _ungrouped(out, q), lse.view(heads), signed


def _attended(problem: _Problem) -> tuple[Tensor, Tensor]:
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


def _attended_in(problem: _Problem, block: _Block) -> tuple[Tensor, Tensor]:
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
    out = _product(weights, problem.keys_of(problem.v, block))
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


def _signed(problem: _Problem) -> Tensor:
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
        dout, out = _grouped(dout, k.shape[2], problem.q.dtype), _grouped(out, k.shape[2])
        given = _OfOut(problem, dout, (dout * out).sum(dim=-1, keepdim=True), of_mask)
        new = torch.empty_like if problem.is_one_block else torch.zeros_like
        dq, dk, dv = (new(x) for x in (problem.q, problem.k, problem.v))
        for block in problem.blocks:
            places = problem.rows_of(dq, block), problem.keys_of(dk, block), problem.keys_of(dv, block)
            _add_gradients(problem, given, block, places)
    return _ungrouped(dq, q), _unflattened(dk, k), _unflattened(dv, v)


class _OfOut:
    """The gradient of out in the inner layout, and the means of dP that softmax's gradient subtracts.

    dP is the product of ``left`` and ``right``, less those means if it is ``folded``.
    """

    def __init__(self, problem: _Problem, dout: Tensor, delta: Tensor, of_mask: Tensor | None) -> None:
        self.dout, self.delta, self.of_mask = dout, delta, of_mask
        self.total = _total_far_below(problem)
        self.folded = problem.dropout is None and _folds(problem.q, problem.k)
        self.left, self.right = _with_column(dout, problem.v, delta) if self.folded else (dout, problem.v)


def _add_gradients(
    problem: _Problem, given: _OfOut, block: _Block, places: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Adds a block's share to its places in the gradients of q, k and v, which may be empty if it is all."""
    dq, dk, dv = places
    options, kept, beta = problem.options, problem.kept(block), not problem.is_one_block
    bent, probabilities = problem.probabilities(block)
    if given.total is not None:
        probabilities.div_(given.total[block.where])
    dropped = _dropped(probabilities, kept, options)
    _add_transposed_product(dv, dropped, problem.rows_of(given.dout, block), beta=beta)
    del dropped
    dp = _product(problem.rows_of(given.left, block), problem.keys_of(given.right, block).mT)
    ds = _dropped(dp, kept, options)
    if not given.folded:
        ds.sub_(problem.rows_of(given.delta, block))
    ds.mul_(probabilities)
    if given.of_mask is not None:
        problem.add_of_mask(block, ds, given.of_mask)
    ds, scale = _bent(ds, bent), options.softmax_scale
    _add_product(dq, ds, problem.keys_of(problem.k, block), alpha=scale, beta=beta)
    _add_transposed_product(dk, ds, problem.rows_of(problem.q, block), alpha=scale, beta=beta)


def _total_far_below(problem: _Problem) -> Tensor | None:
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
            ds = _product(problem.rows_of(moved.q, block), problem.keys_of(problem.k, block).mT, scale)
            ds.add_(_product(problem.rows_of(problem.q, block), problem.keys_of(moved.k, block).mT, scale))
            weighted = _bent(ds, bent).mul_(probabilities)
            total[block.where] += weighted.sum(dim=-1, keepdim=True)
            kept = problem.kept(block)
            of_scores = _product(_dropped(weighted, kept, options), problem.keys_of(problem.v, block))
            of_values = _product(_dropped(probabilities, kept, options), problem.keys_of(moved.v, block))
            found[block.where] += of_scores.add_(of_values)
        found.sub_(total * _grouped(out, k.shape[2]))
    return _ungrouped(found, q)


def _problem(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alibi_slopes: Tensor | None,
    options: Options,
    dropout: Dropout | None,
    mask: Tensor | None,
    lse: Tensor | None = None,
) -> _Problem:
    nheads_k, work = k.shape[2], arithmetic(q.dtype)
    slopes = None
    if alibi_slopes is not None:
        slopes = _of_heads(alibi_slopes, q, k)[..., None, None].to(work)
    if mask is not None:
        mask = ~mask if mask.dtype == torch.bool else mask
        mask = mask.unflatten(1, (-1, q.shape[2] // nheads_k if mask.shape[1] > 1 else 1))
    alpha = options.softmax_scale
    if options.softcap > 0.0:
        alpha = max(-STEEP, min(alpha / options.softcap, STEEP))
    rows, keys, values = _grouped(q, nheads_k, work), _flattened(k, work), _flattened(v, work)
    left, right, folded = rows, keys, False
    if lse is not None:
        lse = lse.view((*rows.shape[:3], 1))
        if folded := options.softcap <= 0.0 and _folds(rows, keys):
            (left, right), alpha = _with_column(rows * alpha, keys, lse), 1.0
    return _Problem(
        nheads_k, rows, keys, values, left, right, alpha, slopes, mask, options, dropout, lse, folded
    )


def _folds(q: Tensor, k: Tensor) -> bool:
    """Whether products subtract numbers of rows: in full precision, where it saves more than it costs."""
    if q[..., 0].numel() * k.shape[1] < MANY_SCORES:
        return False
    matmuls = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    return q.dtype == WIDE or all(x.fp32_precision not in ROUNDED for x in matmuls)


def _with_column(rows: Tensor, keys: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and keys whose products are smaller by the rows' numbers."""
    return torch.cat((rows, -numbers), dim=-1), torch.cat((keys, torch.ones_like(keys[..., :1])), dim=-1)


def _without_autocast(x: Tensor) -> AbstractContextManager[object]:
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def _of_heads(x: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """(nheads) or (batch, nheads) to (pairs, group)."""
    batch, _, nheads, _ = q.shape
    return x.expand(batch, nheads).reshape(batch * k.shape[2], nheads // k.shape[2])


def _grouped(q: Tensor, nheads_k: int, dtype: torch.dtype | None = None) -> Tensor:
    """(batch, seqlen_q, nheads, headdim) to (pairs, group, seqlen_q, headdim). A view of one sequence."""
    batch, seqlen_q, nheads, head_dim = q.shape
    split = q.reshape(batch, seqlen_q, nheads_k, nheads // nheads_k, head_dim).permute(0, 2, 3, 1, 4)
    return _first_flat(split, dtype)


def _ungrouped(grouped: Tensor, q: Tensor) -> Tensor:
    """The reverse of ``_grouped``, contiguous, in q's dtype and q's shape with the given headdim."""
    batch, seqlen_q, nheads, _ = q.shape
    return _heads_last(grouped.reshape(batch, nheads, seqlen_q, grouped.shape[-1]), q.dtype)


def _flattened(k: Tensor, dtype: torch.dtype) -> Tensor:
    """(batch, seqlen_k, nheads_k, headdim) to (pairs, seqlen_k, headdim). A view of one sequence."""
    return _first_flat(k.transpose(1, 2), dtype)


def _unflattened(flat: Tensor, k: Tensor) -> Tensor:
    """The reverse of ``_flattened``, contiguous, in k's shape and dtype."""
    batch, seqlen_k, nheads_k, head_dim = k.shape
    return _heads_last(flat.reshape(batch, nheads_k, seqlen_k, head_dim), k.dtype)


def _first_flat(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    """The first two dimensions as one, in the dtype, with contiguous rows."""
    one = torch.preserve_format if x.shape[0] == 1 else torch.contiguous_format
    found = (x if dtype in {None, x.dtype} else x.to(dtype, memory_format=one)).flatten(0, 1)
    return found if found.stride(-1) == 1 else found.contiguous()


def _heads_last(x: Tensor, dtype: torch.dtype) -> Tensor:
    """(batch, nheads, seqlen, headdim) to (batch, seqlen, nheads, headdim), contiguous."""
    return x.transpose(1, 2).to(dtype, memory_format=torch.contiguous_format).contiguous()


def _product(left: Tensor, right: Tensor, alpha: float = 1.0) -> Tensor:
    """(pairs, group, rows, n) times (pairs, n, m), times alpha: (pairs, group, rows, m)."""
    rows, shape = left.flatten(1, 2), (*left.shape[:3], right.shape[2])
    if alpha == 1.0:
        return torch.bmm(rows, right).view(shape)
    found = left.new_empty((*rows.shape[:2], right.shape[2]))
    return found.baddbmm_(rows, right, beta=0, alpha=alpha).view(shape)


def _add_product(to: Tensor, left: Tensor, right: Tensor, *, alpha: float, beta: bool) -> None:
    """``_product``, added to ``to``, or instead of ``to`` if beta is False."""
    if to.shape[1] == 1:
        to[:, 0].baddbmm_(left[:, 0], right, beta=int(beta), alpha=alpha)
    elif beta:
        to += _product(left, right, alpha)
    else:
        to.copy_(_product(left, right, alpha))


def _add_transposed_product(
    to: Tensor, left: Tensor, right: Tensor, *, alpha: float = 1.0, beta: bool
) -> None:
    """(pairs, group, rows, n) times (pairs, group, rows, m), times alpha, summed over rows.

    Added to ``to``, (pairs, n, m), or instead of ``to`` if beta is False.
    """
    to.baddbmm_(left.flatten(1, 2).mT, right.flatten(1, 2), beta=int(beta), alpha=alpha)


def _bent(ds: Tensor, bent: Tensor | None) -> Tensor:
    """The gradients of scores before softcap, in place. ``bent`` are its hyperbolic tangents."""
    return ds if bent is None else torch.ops.aten.tanh_backward.grad_input(ds, bent, grad_input=ds)


def _dropped(values: Tensor, kept: Tensor | None, options: Options) -> Tensor:
    return values if kept is None else (values * kept).div_(1.0 - options.dropout_p)
