"""A dense call in the inner layout (``layout``), cut into blocks: their places, scores and masks.

A block is (batch x kv head) pairs times query rows times keys, so memory grows with the lengths instead of
their product.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import Options
from flash_attn_rocm.reference import philox
from flash_attn_rocm.reference.layout import product

BLOCK_SCORES = 1 << 26  # scores of a block: 256 MiB in fp32
BLOCK_KEYS = 1 << 11  # PyTorch's softmax keeps this many in registers, and more rows make faster products
BLOCK_ROWS = 512  # of a pair: few enough for a causal mask to skip keys
SKIPPING = 16  # that mask has at least so many blocks of rows, if they have the scores to fill a GPU
ON_CPU = 16  # on a CPU rows and scores of a block are divided by this, so that it fits into caches
IF_DROPPED = 4  # on a GPU with dropout: its random numbers need several times the memory of the scores


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
class Block:
    """``pairs`` are whole sequences, or heads of one."""

    pairs: slice
    rows: slice
    keys: slice

    @property
    def where(self) -> tuple[slice, slice, slice]:
        """The block's rows, as an index into tensors shaped like the queries."""
        return self.pairs, slice(None), self.rows


@dataclass(frozen=True)
class Problem:
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
    def blocks(self) -> Iterator[Block]:
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

    def rows_of(self, x: Tensor, block: Block) -> Tensor:
        """The block's rows of a tensor shaped like the queries: a view."""
        return x if self.is_one_block else x[block.where]

    def keys_of(self, x: Tensor, block: Block) -> Tensor:
        """The block's keys of a tensor shaped like the keys: a view."""
        return x if self.is_one_block else x[block.pairs, block.keys]

    @cached_property
    def by_rows(self) -> list[list[Block]]:
        """Lists of blocks: each list has all visible keys of some pairs and rows."""
        (pairs, group, seqlen_q, _), seqlen_k = self.q.shape, self.k.shape[1]
        most = BLOCK_SCORES // (ON_CPU if self.on_cpu else IF_DROPPED if self.dropout else 1)
        if not self.is_bounded and 0 < pairs * group * seqlen_q * seqlen_k <= most:
            return [[Block(slice(0, pairs), slice(0, seqlen_q), slice(0, seqlen_k))]]
        at_once = max(1, most // max(1, min(seqlen_k, BLOCK_KEYS)))
        row_step = max(1, min(seqlen_q, self._rows(most, at_once), at_once // group))
        found = []
        for some in self._some_pairs(at_once // (row_step * group)):
            key_step = max(1, most // ((some.stop - some.start) * group * row_step))
            for row in range(0, seqlen_q, row_step):
                rows = slice(row, min(row + row_step, seqlen_q))
                keys = self._visible_keys(rows)
                starts = range(keys.start, keys.stop, key_step)
                found.append([Block(some, rows, slice(i, min(i + key_step, keys.stop))) for i in starts])
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

    def scores(self, block: Block) -> tuple[Tensor | None, Tensor]:
        """The scores less ``lse``, (pairs, group, rows, keys), and softcap's hyperbolic tangents, if any.

        Without ``lse`` no tangents are kept.
        """
        left, right = self.rows_of(self.left, block), self.keys_of(self.right, block)
        scores = product(left, right.mT, self.alpha)
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

    def probabilities(self, block: Block) -> tuple[Tensor | None, Tensor]:
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

    def _hide(self, block: Block, scores: Tensor) -> None:
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

    def _distance(self, block: Block) -> Tensor:
        """Of the keys from the rows' diagonals: (rows, keys), in the arithmetic's dtype."""
        first = block.rows.start + self.k.shape[1] - self.q.shape[2] - block.keys.start
        ends = (first, first + block.rows.stop - block.rows.start), (0, block.keys.stop - block.keys.start)
        rows, keys = (torch.arange(*each, device=self.q.device, dtype=self.q.dtype) for each in ends)
        return keys - rows[:, None]

    def _mask_of(self, block: Block, mask: Tensor) -> Tensor:
        """A view (sequences, kv heads, group, rows, keys), with any of these 1."""
        first, last, heads = block.pairs.start, block.pairs.stop, self.nheads_k
        sequences, head = slice(first // heads, -(-last // heads)), first % heads
        wanted = (sequences, slice(head, head + last - first), slice(None), block.rows, block.keys)
        return mask[tuple(x if n > 1 else slice(None) for x, n in zip(wanted, mask.shape, strict=True))]

    def add_of_mask(self, block: Block, ds: Tensor, to: Tensor) -> None:
        """Adds a block's score gradients (pairs, group, rows, keys) to the mask's gradient ``to``.

        Dimensions of size 1 in ``to`` are summed, always in one order.
        """
        place = self._mask_of(block, to.unflatten(1, (-1, self.q.shape[1] if to.shape[1] > 1 else 1)))
        place += self._by_sequence(ds).sum_to_size(place.shape)

    def kept(self, block: Block) -> Tensor | None:
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
