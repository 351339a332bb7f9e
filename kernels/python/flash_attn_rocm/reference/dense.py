"""The PyTorch implementation of dense attention, on any device, one block of scores at a time.

``reference.operators`` brings every call into this form.

All arithmetic is in fp32, for float64 tensors in float64.  Blocks are (batch x kv head) pairs times query
rows, and their pieces have some of the keys, so that memory grows with the lengths and never with their
product.  The forward pass keeps for each row the largest score and the sum of exponentials so far (M. Milakov
and N. Gimelshein, "Online normalizer calculation for softmax", 2018).  The backward pass recomputes each
piece's probabilities from the log-sum-exp, whoever computed that; it also serves the kernels.

Inside, queries are grouped by the kv head that they read: (pairs, group, seqlen_q, headdim), and keys
and values are (pairs, seqlen_k, headdim), with pairs = batch * nheads_k, group = nheads / nheads_k.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import Options, arithmetic
from flash_attn_rocm.reference import philox
from flash_attn_rocm.rewrite import sinks

BLOCK_SCORES = 1 << 24  # scores of one piece: 64 MiB in fp32
BLOCK_ROWS = 512  # enough rows for fast products, few enough for a causal mask to skip keys
BLOCK_KEYS = 4096
# Beside log-sum-exps below this the logarithm of the number of keys is lost in fp32.
FAR_BELOW = -(2.0**16)


@dataclass(frozen=True)
class Dropout:
    """``state`` is the key (2,) of ``philox``; ``batch`` is the first sequence's index; ``columns`` are the
    keys', (batch, seqlen_k), where they do not count from the first key (``key_masks``)."""

    state: Tensor
    batch: int
    columns: Tensor | None = None


@dataclass(frozen=True)
class _Block:
    pairs: slice
    rows: slice
    keys: slice


@dataclass(frozen=True)
class _Problem:
    """The inputs in the inner layout, v with any headdim; ``slopes`` is (pairs, group, 1, 1) or None,
    ``mask`` a view (batch, nheads_k, group, seqlen_q, seqlen_k) or None, ``sink`` (pairs, group, 1) or None,
    which only the forward pass needs."""

    nheads_k: int
    q: Tensor
    k: Tensor
    v: Tensor
    slopes: Tensor | None
    mask: Tensor | None
    options: Options
    dropout: Dropout | None
    sink: Tensor | None = None

    @property
    def work(self) -> torch.dtype:
        """What is computed in."""
        return arithmetic(self.q.dtype)

    def blocks(self) -> Iterator[_Block]:
        """Pairs and rows with all keys that the rows see."""
        pairs, group, seqlen_q, _ = self.q.shape
        row_scores = max(1, group * min(self.k.shape[1], BLOCK_KEYS))
        row_step = max(1, min(seqlen_q, BLOCK_ROWS, BLOCK_SCORES // row_scores))
        pair_step = max(1, min(pairs, BLOCK_SCORES // (row_step * row_scores)))
        starts = ((p, r) for p in range(0, pairs, pair_step) for r in range(0, seqlen_q, row_step))
        for pair, row in starts:
            rows = slice(row, min(row + row_step, seqlen_q))
            yield _Block(slice(pair, min(pair + pair_step, pairs)), rows, self._visible_keys(rows))

    def pieces(self, block: _Block) -> Iterator[_Block]:
        """The block with some of its keys at a time."""
        for begin in range(block.keys.start, block.keys.stop, BLOCK_KEYS):
            yield replace(block, keys=slice(begin, min(begin + BLOCK_KEYS, block.keys.stop)))

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

    def queries(self, block: _Block) -> Tensor:
        return self.q[block.pairs, :, block.rows].to(self.work)

    def scores(self, block: _Block) -> tuple[Tensor, Tensor]:
        """Softcapped scores without and with bias and mask, both (pairs, group, rows, keys)."""
        q = self.queries(block)
        k = self.k[block.pairs, block.keys].to(self.work)
        capped = _product(q, k.transpose(1, 2)) * self.options.softmax_scale
        if self.options.softcap > 0.0:
            capped = self.options.softcap * torch.tanh(capped / self.options.softcap)
        hidden = self._hidden(block)
        biased = capped
        if self.slopes is not None:
            biased = capped - self.slopes[block.pairs] * self._distance(block).abs()
        if self.mask is not None and self.mask.dtype != torch.bool:
            biased = biased + self._mask_of(block, self.mask).to(self.work)
        return capped, biased if hidden is None else biased.masked_fill(hidden, -math.inf)

    def _places(self, block: _Block) -> tuple[Tensor, Tensor]:
        """The rows' diagonals (rows, 1), and the keys (1, keys)."""
        rows = torch.arange(block.rows.start, block.rows.stop, device=self.q.device)
        keys = torch.arange(block.keys.start, block.keys.stop, device=self.q.device)
        return rows[:, None] + self.k.shape[1] - self.q.shape[2], keys[None, :]

    def _distance(self, block: _Block) -> Tensor:
        rows, keys = self._places(block)
        return keys - rows

    def _hidden(self, block: _Block) -> Tensor | None:
        """What window, chunk and mask hide, in a shape that broadcasts to the scores'; None hides nothing."""
        boolean = self.mask is not None and self.mask.dtype == torch.bool
        hidden = ~self._mask_of(block, self.mask) if boolean else None
        bounds = ((self.options.window_left, -1), (self.options.window_right, 1))
        for most, sign in bounds:
            if most >= 0:
                beyond = self._distance(block) * sign > most
                hidden = beyond if hidden is None else hidden | beyond
        if chunk := self.options.chunk:
            rows, keys = (x.div(chunk, rounding_mode="floor") for x in self._places(block))
            hidden = rows != keys if hidden is None else hidden | (rows != keys)
        return hidden

    def _mask_of(self, block: _Block, mask: Tensor) -> Tensor:
        pairs = torch.arange(block.pairs.start, block.pairs.stop, device=self.q.device)
        part = mask[..., block.rows, block.keys]
        return part[pairs // self.nheads_k, pairs % self.nheads_k]

    def add_of_mask(self, block: _Block, ds: Tensor, to: Tensor) -> None:
        """Add the scores' gradients (pairs, group, rows, keys) of a block to the mask's ``to``, whose sizes
        are 1 where they are summed: always in the same order."""
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
        """Which probabilities dropout keeps; the same in every pass."""
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
    one dtype; ``mask`` and ``sink`` are those of ``Inputs``.
    Returns out (batch, seqlen_q, nheads, headdim of v), the log-sum-exp (batch, nheads, seqlen_q) fp32
    (float64 for float64), and the probabilities in q's dtype, negative where dropout dropped them: (batch,
    nheads, seqlen_q, seqlen_k) when wanted, else (0,).
    Rows without a visible key give out 0 and log-sum-exp +inf.
    """
    problem = _problem(q, k, v, alibi_slopes, options, dropout, mask)
    pairs, group, seqlen_q, _ = problem.q.shape
    if sink is not None:
        problem = replace(problem, sink=_of_heads(sink.to(problem.work), q, k)[..., None])
    out = q.new_empty((pairs, group, seqlen_q, v.shape[-1]))
    lse = torch.empty((pairs, group, seqlen_q), dtype=problem.work, device=q.device)
    signed = q.new_zeros((pairs, group, seqlen_q, k.shape[1])) if want_probabilities else None
    with torch.autocast(q.device.type, enabled=False):
        for block in problem.blocks():
            block_out, block_lse = _attended(problem, block)
            out[block.pairs, :, block.rows] = block_out.to(q.dtype)
            lse[block.pairs, :, block.rows] = block_lse
            if signed is not None:
                _write_probabilities(problem, block, block_lse, signed)
    heads = (q.shape[0], q.shape[2], seqlen_q)
    all_signed = q.new_empty(0) if signed is None else signed.view(*heads, k.shape[1])
    return _ungrouped(out, q), lse.view(heads), all_signed


def _attended(problem: _Problem, block: _Block) -> tuple[Tensor, Tensor]:
    """out (pairs, group, rows, headdim) and the log-sum-exp of a block, not rounded yet."""
    rows = problem.q[block.pairs, :, block.rows].shape[:3]
    out = problem.v.new_zeros((*rows, problem.v.shape[-1]), dtype=problem.work)
    total = out.new_zeros(rows)
    most = torch.full_like(total, -math.inf)
    for piece in problem.pieces(block):
        scores = problem.scores(piece)[1]
        before, most = most, torch.maximum(most, scores.amax(dim=-1))
        base = most.masked_fill(most == -math.inf, 0.0)  # nothing seen yet: exp(-inf - 0) is 0
        weights = scores.sub_(base[..., None]).exp_()
        kept_of_before = torch.exp(before - base)
        total = total * kept_of_before + weights.sum(dim=-1)
        values = problem.v[piece.pairs, piece.keys].to(problem.work)
        seen = _product(_dropped(weights, problem.kept(piece), problem.options), values)
        out = out.mul_(kept_of_before[..., None]).add_(seen)
    blind = total == 0.0
    # exp(score - lse) must be 0 for blind rows and where a score is NaN.
    lse = most + torch.log(total)
    lse = lse.masked_fill(blind | lse.isnan(), math.inf)
    out = out.div_(total[..., None]).masked_fill_(blind[..., None], 0.0)
    if problem.sink is not None:
        share, lse = sinks.shares(lse, problem.sink[block.pairs])
        out = out.mul_(share[..., None])
    return out, lse


def _write_probabilities(problem: _Problem, block: _Block, lse: Tensor, signed: Tensor) -> None:
    for piece in problem.pieces(block):
        probabilities = torch.exp(problem.scores(piece)[1] - lse[..., None])
        kept = problem.kept(piece)
        signs = probabilities if kept is None else torch.where(kept, probabilities, -probabilities)
        signed[piece.pairs, :, piece.rows, piece.keys] = signs.to(signed.dtype)


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
    """Gradients of q, k and v, in their shapes and dtype, from what the forward pass saw and returned.

    That of ``mask`` is added to ``of_mask``, if there is one, shaped like it.
    """
    problem = _problem(q, k, v, alibi_slopes, options, dropout, mask)
    nheads_k = k.shape[2]
    grouped_dout, grouped_out = _grouped(dout, nheads_k), _grouped(out, nheads_k)
    grouped_lse = lse.view(problem.q.shape[:3])
    dq = torch.empty_like(problem.q)
    work = problem.work
    dk = torch.zeros_like(problem.k, dtype=work)
    dv = torch.zeros_like(problem.v, dtype=work)
    with torch.autocast(q.device.type, enabled=False):
        for block in problem.blocks():
            where = (block.pairs, slice(None), block.rows)
            block_dout = grouped_dout[where].to(work)
            delta = (block_dout * grouped_out[where].to(work)).sum(dim=-1, keepdim=True)
            block_dq = torch.zeros_like(dq[where], dtype=work)
            total = _total_far_below(problem, block, grouped_lse[where])
            for piece in problem.pieces(block):
                seen = (piece.pairs, piece.keys)
                capped, scores = problem.scores(piece)
                probabilities = torch.exp(scores - grouped_lse[where][..., None])
                probabilities = probabilities if total is None else probabilities / total
                kept = problem.kept(piece)
                dv[seen] += _transposed_product(_dropped(probabilities, kept, options), block_dout)
                values = problem.v[seen].to(work)
                dp = _dropped(_product(block_dout, values.transpose(1, 2)), kept, options)
                ds = probabilities * (dp - delta)
                if of_mask is not None:
                    problem.add_of_mask(piece, ds, of_mask)
                ds = ds * options.softmax_scale
                if options.softcap > 0.0:
                    ds = ds * (1.0 - (capped / options.softcap) ** 2)
                block_dq += _product(ds, problem.k[seen].to(work))
                dk[seen] += _transposed_product(ds, problem.queries(block))
            dq[where] = block_dq.to(q.dtype)
    return _ungrouped(dq, q), _unflattened(dk, k), _unflattened(dv, v)


def _total_far_below(problem: _Problem, block: _Block, lse: Tensor) -> Tensor | None:
    """What the probabilities from lse add up to in rows whose scores are all far below 0, and 1 for others:
    (pairs, group, rows, 1); None where no bias can make such rows."""
    if problem.mask is None or problem.mask.dtype == torch.bool:
        return None
    total = torch.zeros_like(lse)
    for piece in problem.pieces(block):
        total += torch.exp(problem.scores(piece)[1] - lse[..., None]).sum(dim=-1)
    return torch.where(lse < FAR_BELOW, total, 1.0)[..., None]


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
    """The tangent of out, in its shape and dtype, from those of q, k and v, which are shaped like these:
    forward-mode differentiation."""
    problem = _problem(q, k, v, alibi_slopes, options, dropout, mask)
    nheads_k, work = k.shape[2], problem.work
    q_tangent, out_before = _grouped(tangents[0], nheads_k), _grouped(out, nheads_k)
    k_tangent, v_tangent = _flattened(tangents[1]), _flattened(tangents[2])
    grouped_lse = lse.view(problem.q.shape[:3])
    found = torch.empty_like(out_before)
    with torch.autocast(q.device.type, enabled=False):
        for block in problem.blocks():
            where = (block.pairs, slice(None), block.rows)
            moved = torch.zeros_like(out_before[where], dtype=work)
            total = moved.new_zeros((*moved.shape[:3], 1))
            for piece in problem.pieces(block):
                seen = (piece.pairs, piece.keys)
                keys, values, dk, dv = (
                    x[seen].to(work) for x in (problem.k, problem.v, k_tangent, v_tangent)
                )
                capped, scores = problem.scores(piece)
                ds = _product(q_tangent[where].to(work), keys.transpose(1, 2))
                ds = (ds + _product(problem.queries(block), dk.transpose(1, 2))) * options.softmax_scale
                if options.softcap > 0.0:
                    ds = ds * (1.0 - (capped / options.softcap) ** 2)
                probabilities, kept = torch.exp(scores - grouped_lse[where][..., None]), problem.kept(piece)
                weighted = probabilities * ds
                total += weighted.sum(dim=-1, keepdim=True)
                moved += _product(_dropped(weighted, kept, options), values)
                moved += _product(_dropped(probabilities, kept, options), dv)
            found[where] = (moved - total * out_before[where].to(work)).to(out.dtype)
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
    batch, seqlen_q, nheads, _ = q.shape
    seqlen_k, nheads_k = k.shape[1:3]
    slopes = None
    if alibi_slopes is not None:
        slopes = _of_heads(alibi_slopes, q, k)[..., None, None].to(arithmetic(q.dtype))
    if mask is not None:
        mask = mask.expand(batch, nheads, seqlen_q, seqlen_k).unflatten(1, (nheads_k, nheads // nheads_k))
    tensors = (_grouped(q, nheads_k), _flattened(k), _flattened(v))
    return _Problem(nheads_k, *tensors, slopes, mask, options, dropout)


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
    """The reverse of ``_grouped``, contiguous, in q's shape but for headdim, which stays."""
    batch, seqlen_q, nheads, _ = q.shape
    return grouped.reshape(batch, nheads, seqlen_q, grouped.shape[-1]).transpose(1, 2).contiguous()


def _flattened(k: Tensor) -> Tensor:
    """(batch, seqlen_k, nheads_k, headdim) to (pairs, seqlen_k, headdim)."""
    return k.transpose(1, 2).flatten(0, 1)


def _unflattened(flat: Tensor, k: Tensor) -> Tensor:
    """The reverse of ``_flattened``, contiguous, in k's shape and dtype."""
    batch, seqlen_k, nheads_k, head_dim = k.shape
    return flat.reshape(batch, nheads_k, seqlen_k, head_dim).transpose(1, 2).to(k.dtype).contiguous()


def _product(left: Tensor, right: Tensor) -> Tensor:
    """(pairs, group, rows, n) times (pairs, n, m) to (pairs, group, rows, m)."""
    return torch.bmm(left.flatten(1, 2), right).view(*left.shape[:3], right.shape[2])


def _transposed_product(left: Tensor, right: Tensor) -> Tensor:
    """(pairs, group, rows, n) and (pairs, group, rows, m) to (pairs, n, m): sums over group and rows."""
    return torch.bmm(left.flatten(1, 2).transpose(1, 2), right.flatten(1, 2))


def _dropped(values: Tensor, kept: Tensor | None, options: Options) -> Tensor:
    return values if kept is None else values * kept / (1.0 - options.dropout_p)
