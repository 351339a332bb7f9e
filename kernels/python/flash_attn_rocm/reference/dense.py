"""The PyTorch implementation of dense attention, on any device, one block of scores at a time.

``reference.operators`` brings every call into this form.

Arithmetic is in fp32, for float64 tensors in float64. A block is (batch x kv head) pairs times query rows
times keys, so memory grows with the lengths instead of their product. The forward pass adds blocks of equal
rows up by their log-sum-exps. The backward pass recomputes each block's probabilities from the log-sum-exp
over all keys, from any implementation: it also serves the kernels. Calls without features go to PyTorch's own
fused operators where available (``torch_fused``).

Inside, queries are grouped by the kv head that they read: (pairs, group, seqlen_q, headdim). Keys and values
are (pairs, seqlen_k, headdim). pairs = batch * nheads_k, group = nheads / nheads_k.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import Options, arithmetic
from flash_attn_rocm.reference import philox, torch_fused
from flash_attn_rocm.rewrite import sinks
from flash_attn_rocm.serving.capture import is_capturing

BLOCK_SCORES = 1 << 25  # scores of a block: 128 MiB in fp32
BLOCK_ROWS = 512  # of a pair: few enough for a causal mask to skip keys
ROWS_AT_ONCE = 1 << 14  # over all pairs: enough for products that fill a GPU
ON_CPU = 8  # on a CPU rows and scores of a block are divided by this, so that it fits into caches
# limit of scale / softcap: larger products bend to 1, as with infinity, and 0 stays 0
STEEP = 1e30
# Below this log-sum-exp, fp32 loses the logarithm of the number of keys.
FAR_BELOW = -(2.0**16)


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

    @property
    def seen(self) -> tuple[slice, slice]:
        """The keys."""
        return self.pairs, self.keys


@dataclass(frozen=True)
class _Problem:
    """The inputs in the inner layout and the arithmetic's dtype, v with any headdim.

    q is multiplied by softmax_scale, and divided by softcap if there is one. ``slopes`` is (pairs, group, 1,
    1) or None. ``mask`` is None or a view (batch, nheads_k, group, seqlen_q, seqlen_k), where any size may be
    1: numbers to add to scores, or booleans that hide them.
    """

    nheads_k: int
    q: Tensor
    k: Tensor
    v: Tensor
    slopes: Tensor | None
    mask: Tensor | None
    options: Options
    dropout: Dropout | None

    def blocks(self) -> Iterator[_Block]:
        """All blocks with visible keys."""
        return itertools.chain.from_iterable(self.by_rows())

    def by_rows(self) -> Iterator[list[_Block]]:
        """Lists of blocks: each list has all visible keys of some pairs and rows."""
        _, group, seqlen_q, _ = self.q.shape
        share = ON_CPU if self.q.device.type == "cpu" else 1
        at_once = max(1, ROWS_AT_ONCE // share // group)
        row_step = max(1, min(seqlen_q, BLOCK_ROWS, at_once))
        for pairs in self._some_pairs(at_once // row_step):
            key_step = max(1, BLOCK_SCORES // share // ((pairs.stop - pairs.start) * group * row_step))
            for row in range(0, seqlen_q, row_step):
                rows = slice(row, min(row + row_step, seqlen_q))
                keys = self._visible_keys(rows)
                starts = range(keys.start, keys.stop, key_step)
                yield [_Block(pairs, rows, slice(i, min(i + key_step, keys.stop))) for i in starts]

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
        """The hyperbolic tangents of softcap, if there is one, and the scores, both (pairs, group, rows,
        keys)."""
        bent, scores = None, _product(self.q[block.where], self.k[block.seen].transpose(1, 2))
        if self.options.softcap > 0.0:
            bent = scores.tanh_()
            scores = bent * self.options.softcap
        if self.slopes is not None:
            scores.addcmul_(self.slopes[block.pairs], self._distance(block).abs().to(scores.dtype), value=-1)
        if self.mask is not None:
            masked = scores.unflatten(0, (-1, min(self.nheads_k, scores.shape[0])))
            mask = self._mask_of(block, self.mask)
            if mask.dtype == torch.bool:  # contiguous, twice as fast on GPUs
                masked.masked_fill_(mask.expand(masked.shape).contiguous(), -math.inf)
            else:
                masked.add_(mask)
        self._hide(block, scores)
        return bent, scores

    def probabilities(self, block: _Block, lse: Tensor) -> tuple[Tensor | None, Tensor]:
        """As ``scores``, with the probabilities by the log-sum-exp of all rows."""
        bent, scores = self.scores(block)
        return bent, scores.sub_(lse[block.where]).exp_()

    def _hide(self, block: _Block, scores: Tensor) -> None:
        """Applies window and chunk. Most blocks have few hidden keys, at their ends."""
        shift, keys = self.k.shape[1] - self.q.shape[2], block.keys
        left, right = self.options.window_left, self.options.window_right
        ends = (
            (left, -1, slice(keys.start, min(keys.stop, block.rows.stop - 1 + shift - left))),
            (right, 1, slice(max(keys.start, block.rows.start + shift + right + 1), keys.stop)),
        )
        for most, sign, some in ends:
            if most >= 0 and some.start < some.stop:
                distance = self._distance(replace(block, keys=some))
                beyond = distance > most if sign > 0 else distance < -most
                part = scores[..., some.start - keys.start : some.stop - keys.start]
                part.masked_fill_(beyond, -math.inf)
        if chunk := self.options.chunk:
            of_rows, of_keys = (x.div(chunk, rounding_mode="floor") for x in self._places(block))
            scores.masked_fill_(of_rows != of_keys, -math.inf)

    def _places(self, block: _Block) -> tuple[Tensor, Tensor]:
        """The rows' diagonals (rows, 1), and the keys (1, keys)."""
        shift = self.k.shape[1] - self.q.shape[2]
        rows = torch.arange(block.rows.start + shift, block.rows.stop + shift, device=self.q.device)
        keys = torch.arange(block.keys.start, block.keys.stop, device=self.q.device)
        return rows[:, None], keys[None, :]

    def _distance(self, block: _Block) -> Tensor:
        rows, keys = self._places(block)
        return keys - rows

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
        batch, heads, rows, keys = to.shape
        first, last = block.pairs.start, block.pairs.stop
        group = ds.shape[1]
        for number, pair in enumerate(range(first, last)):
            one = ds[number]
            one = one.sum(-1, keepdim=True) if keys == 1 else one
            one = one.sum(-2, keepdim=True) if rows == 1 else one
            at_rows = slice(None) if rows == 1 else block.rows
            at_keys = slice(None) if keys == 1 else block.keys
            entry = to[0 if batch == 1 else pair // self.nheads_k]
            head = pair % self.nheads_k * group
            if heads == 1:
                entry[0, at_rows, at_keys] += one.sum(0)
            else:
                entry[head : head + group, at_rows, at_keys] += one

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
    with torch.autocast(q.device.type, enabled=False):
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
            signed = _signed(problem, lse[..., None]).to(q.dtype).view(*heads, k.shape[1])
    return _ungrouped(out, q), lse.view(heads), signed


def _attended(problem: _Problem) -> tuple[Tensor, Tensor]:
    """out (pairs, group, seqlen_q, headdim) and the log-sum-exp, before rounding."""
    rows = problem.q.shape[:3]
    out = problem.q.new_zeros((*rows, problem.v.shape[-1]))
    lse = out.new_full(rows, -math.inf)
    for blocks in problem.by_rows():
        if blocks:
            where = blocks[0].where
            parts = (_attended_in(problem, block) for block in blocks)
            out[where], lse[where] = reduce(_joined, parts)
    # exp(score - lse) must be 0 for blind rows and where a score is NaN.
    return out, lse.masked_fill_((lse == -math.inf) | lse.isnan(), math.inf)


def _attended_in(problem: _Problem, block: _Block) -> tuple[Tensor, Tensor]:
    """out and the log-sum-exp of one block. The latter is -inf for rows without a visible key in it."""
    scores = problem.scores(block)[1]
    most = scores.amax(dim=-1)
    weights = torch.softmax(scores, dim=-1)
    del scores
    # The largest weight is 1 / sum(exp(score - most)).
    lse = most - weights.amax(dim=-1).log_()
    weights = _dropped(weights, problem.kept(block), problem.options)
    out, blind = _product(weights, problem.v[block.seen]), most == -math.inf
    return out.masked_fill_(blind[..., None], 0.0), lse.masked_fill_(blind, -math.inf)


def _joined(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """out and the log-sum-exp over the keys of both."""
    # NaN: rows without visible keys, whose out is 0
    share = torch.sigmoid(one[1] - other[1]).nan_to_num_(0.0)
    return torch.lerp(other[0], one[0], share[..., None]), torch.logaddexp(one[1], other[1])


def _signed(problem: _Problem, lse: Tensor) -> Tensor:
    """The probabilities, negative where dropout dropped them: (pairs, group, seqlen_q, seqlen_k)."""
    signed = problem.q.new_zeros((*problem.q.shape[:3], problem.k.shape[1]))
    for block in problem.blocks():
        probabilities, kept = problem.probabilities(block, lse)[1], problem.kept(block)
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
    with torch.autocast(q.device.type, enabled=False):
        plain = all(x is None for x in (alibi_slopes, dropout, mask))
        if plain and (found := torch_fused.backward(dout, q, k, v, out, lse, options)):
            return found
        problem = _problem(q, k, v, alibi_slopes, options, dropout, mask)
        grouped_dout = _grouped(dout, k.shape[2]).to(problem.q.dtype)
        delta = (grouped_dout * _grouped(out, k.shape[2])).sum(dim=-1, keepdim=True)
        lse = lse.view((*problem.q.shape[:3], 1))
        total = _total_far_below(problem, lse)
        dq, dk, dv = (torch.zeros_like(x) for x in (problem.q, problem.k, problem.v))
        for block in problem.blocks():
            bent, probabilities = problem.probabilities(block, lse)
            if total is not None:
                probabilities.div_(total[block.where])
            some_dout, kept = grouped_dout[block.where], problem.kept(block)
            _add_transposed_product(dv[block.seen], _dropped(probabilities, kept, options), some_dout)
            dp = _product(some_dout, problem.v[block.seen].transpose(1, 2))
            ds = _dropped(dp, kept, options).sub_(delta[block.where]).mul_(probabilities)
            if of_mask is not None:
                problem.add_of_mask(block, ds, of_mask)
            ds = _bent(ds, bent)
            dq[block.where] += _product(ds, problem.k[block.seen])
            _add_transposed_product(dk[block.seen], ds, problem.q[block.where])
        dq.mul_(options.softmax_scale)
        if options.softcap > 0.0:
            dk.mul_(options.softcap)
    return _ungrouped(dq, q), _unflattened(dk, k), _unflattened(dv, v)


def _total_far_below(problem: _Problem, lse: Tensor) -> Tensor | None:
    """The sum of the probabilities recomputed from lse, for rows with all scores far below 0, else 1.

    Shaped like lse. None without such rows. Only a bias makes them.
    """
    if problem.mask is None or problem.mask.dtype == torch.bool:
        return None
    far = lse < FAR_BELOW
    if not is_capturing(lse.device) and not far.any():
        return None
    total = torch.zeros_like(lse)
    for block in problem.blocks():
        total[block.where] += problem.probabilities(block, lse)[1].sum(dim=-1, keepdim=True)
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
    with torch.autocast(q.device.type, enabled=False):
        problem = _problem(q, k, v, alibi_slopes, options, dropout, mask)
        moved = _problem(*tangents, None, options, None, None)
        lse = lse.view((*problem.q.shape[:3], 1))
        found = problem.q.new_zeros((*problem.q.shape[:3], v.shape[-1]))
        total = torch.zeros_like(lse)
        for block in problem.blocks():
            bent, probabilities = problem.probabilities(block, lse)
            ds = _product(moved.q[block.where], problem.k[block.seen].transpose(1, 2))
            ds.add_(_product(problem.q[block.where], moved.k[block.seen].transpose(1, 2)))
            if options.softcap > 0.0:
                ds.mul_(options.softcap)
            weighted = _bent(ds, bent).mul_(probabilities)
            total[block.where] += weighted.sum(dim=-1, keepdim=True)
            kept = problem.kept(block)
            of_scores = _product(_dropped(weighted, kept, options), problem.v[block.seen])
            of_values = _product(_dropped(probabilities, kept, options), moved.v[block.seen])
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
) -> _Problem:
    nheads_k, work = k.shape[2], arithmetic(q.dtype)
    slopes = None
    if alibi_slopes is not None:
        slopes = _of_heads(alibi_slopes, q, k)[..., None, None].to(work)
    if mask is not None:
        mask = ~mask if mask.dtype == torch.bool else mask
        mask = mask.unflatten(1, (-1, q.shape[2] // nheads_k if mask.shape[1] > 1 else 1))
    scale = options.softmax_scale
    if options.softcap > 0.0:
        scale = max(-STEEP, min(scale / options.softcap, STEEP))
    scaled = _grouped(q, nheads_k).to(work) * scale
    keys, values = (_flattened(x).to(work).contiguous() for x in (k, v))
    return _Problem(nheads_k, scaled.contiguous(), keys, values, slopes, mask, options, dropout)


def _of_heads(x: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """(nheads) or (batch, nheads) to (pairs, group)."""
    batch, _, nheads, _ = q.shape
    return x.expand(batch, nheads).reshape(batch * k.shape[2], nheads // k.shape[2])


def _grouped(q: Tensor, nheads_k: int) -> Tensor:
    """(batch, seqlen_q, nheads, headdim) to (pairs, group, seqlen_q, headdim)."""
    batch, seqlen_q, nheads, head_dim = q.shape
    split = q.reshape(batch, seqlen_q, nheads_k, nheads // nheads_k, head_dim)
    return split.permute(0, 2, 3, 1, 4).flatten(0, 1)


def _ungrouped(grouped: Tensor, q: Tensor) -> Tensor:
    """The reverse of ``_grouped``, contiguous, in q's dtype and q's shape with the given headdim."""
    batch, seqlen_q, nheads, _ = q.shape
    return grouped.view(batch, nheads, seqlen_q, grouped.shape[-1]).transpose(1, 2).to(q.dtype).contiguous()


def _flattened(k: Tensor) -> Tensor:
    """(batch, seqlen_k, nheads_k, headdim) to (pairs, seqlen_k, headdim)."""
    return k.transpose(1, 2).flatten(0, 1)


def _unflattened(flat: Tensor, k: Tensor) -> Tensor:
    """The reverse of ``_flattened``, contiguous, in k's shape and dtype."""
    batch, seqlen_k, nheads_k, head_dim = k.shape
    return flat.view(batch, nheads_k, seqlen_k, head_dim).transpose(1, 2).to(k.dtype).contiguous()


def _product(left: Tensor, right: Tensor) -> Tensor:
    """(pairs, group, rows, n) times (pairs, n, m) to (pairs, group, rows, m)."""
    return torch.bmm(left.flatten(1, 2), right).view(*left.shape[:3], right.shape[2])


def _add_transposed_product(to: Tensor, left: Tensor, right: Tensor) -> None:
    """Add (pairs, group, rows, n) times (pairs, group, rows, m) to (pairs, n, m), summed over rows."""
    to.baddbmm_(left.flatten(1, 2).transpose(1, 2), right.flatten(1, 2))


def _bent(ds: Tensor, bent: Tensor | None) -> Tensor:
    """The gradients of scores before softcap. ``bent`` are the scores after it."""
    return ds if bent is None else torch.ops.aten.tanh_backward(ds, bent)


def _dropped(values: Tensor, kept: Tensor | None, options: Options) -> Tensor:
    return values if kept is None else (values * kept).div_(1.0 - options.dropout_p)
