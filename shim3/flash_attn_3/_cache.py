"""Attention over a cache, after appending to it.

``flash_attn_rocm.flash_attn_with_kvcache`` computes all calls within its arguments. For the others, PyTorch
appends. If a page table or cache_batch_idx gives the keys' places, each sequence's keys are gathered by a
copy.
Attention is then computed in pieces (``flash_attn_rocm.pieces``). Packed queries over pages of a multiple of
16 rows need no copy.
"""

from typing import Any, NamedTuple

import torch
from flash_attn_rocm import FlashAttnArgumentError, flash_attn_with_kvcache, raw
from flash_attn_rocm.interfaces import rotate
from torch import Tensor

from flash_attn_3._forward import (
    Descales,
    Lengths,
    Rules,
    Two,
    attend,
    check_chunk,
    right_beyond_keys,
    with_sides_that_hide,
)
from flash_attn_3._refused import is_coded, is_fp8, refuse_cache

PAGE = 16  # kernels take pages of a multiple of so many rows


class Cache(NamedTuple):
    """Keys and values (batch_cache, seqlen, nheads_k, headdim), or pages of them.

    ``lengths`` (batch) int32 is the number of keys of each sequence, by default all. ``rows`` (batch) int32
    its row of the cache or of the page table.
    """

    k: Tensor
    v: Tensor
    lengths: Tensor | None
    rows: Tensor | None = None
    leftpad: Tensor | None = None
    page_table: Tensor | None = None
    k_descale: Tensor | None = None
    v_descale: Tensor | None = None

    @property
    def capacity(self) -> int:
        """How many keys a sequence can have."""
        return self.k.shape[1] * (1 if self.page_table is None else self.page_table.shape[1])

    @property
    def has_pages_of_kernels(self) -> bool:
        """Whether kernels read these pages."""
        return self.page_table is not None and self.k.shape[1] % PAGE == 0 and self.leftpad is None


class New(NamedTuple):
    """The appended rows: (batch, seqlen_new, nheads_k, headdim), or packed by cu_seqlens."""

    k: Tensor
    v: Tensor
    cu_seqlens: Tensor | None = None


class Rotary(NamedTuple):
    """Angles (any, rotary_dim / 2). ``positions`` are those of the first new rows, by default the lengths."""

    cos: Tensor
    sin: Tensor
    interleaved: bool
    positions: Tensor | None = None


class Queries(NamedTuple):
    """(batch, seqlen_q, nheads, headdim), or packed by cu_seqlens."""

    q: Tensor
    cu_seqlens: Tensor | None = None
    max_seqlen: Any = None
    descale: Tensor | None = None

    @property
    def batch(self) -> int:
        return self.q.shape[0] if self.cu_seqlens is None else len(self.cu_seqlens) - 1

    @property
    def longest(self) -> Any:  # noqa: ANN401
        return self.q.shape[-3] if self.cu_seqlens is None else self.max_seqlen


def attend_cache(
    queries: Queries, cache: Cache, new: New | None, rotary: Rotary | None, rules: Rules, num_splits: int
) -> Two:
    """out and the log-sum-exp, without gradients."""
    check_chunk(rules.attention_chunk)
    if cache.page_table is not None and cache.rows is not None:
        cache = cache._replace(page_table=cache.page_table[cache.rows], rows=None)
    rules = with_sides_that_hide(rules, queries.longest, cache.capacity)
    with torch.no_grad():
        codes = new if is_coded(cache.k) and new and is_coded(new.k) else None
        new = None if codes else new
        at_once = _has_all(queries, cache, new, rules)
        copied = not at_once and (new or not _is_of_pages(queries, cache, rules))
        refused = (codes and rotary) or (copied and (new or not is_fp8(queries.q)))
        if is_coded(cache.k) and refused:
            refuse_cache()  # before anything is written
        if codes:
            _check_codes(cache, codes)
            cache = _appended(cache, codes)
        if new and rotary and (rotary.positions is not None or not at_once):
            if is_fp8(queries.q):
                refuse_cache()
            (queries, new), rotary = _rotated(queries, cache, new, rotary, rules), None
        if at_once:
            return _at_once(queries, cache, new, rotary, rules, num_splits)
        return _in_steps(queries, _appended(cache, new) if new else cache, rules, num_splits)


def _has_all(queries: Queries, cache: Cache, new: New | None, rules: Rules) -> bool:
    """Whether flash_attn_rocm's function supports all arguments of the call."""
    packed = queries.cu_seqlens is not None or (new is not None and new.cu_seqlens is not None)
    pages = cache.page_table is None or cache.has_pages_of_kernels
    beyond = right_beyond_keys(rules, queries.longest, cache.capacity)
    return pages and not packed and not beyond and not rules.attention_chunk


def _at_once(
    queries: Queries, cache: Cache, new: New | None, rotary: Rotary | None, rules: Rules, num_splits: int
) -> Two:
    k, v = new[:2] if new else (None, None)
    cos, sin, interleaved = rotary[:3] if rotary else (None, None, True)
    return flash_attn_with_kvcache(
        queries.q, cache.k, cache.v, k, v, cos, sin, cache.lengths, cache.rows, cache.leftpad,
        cache.page_table, rules.softmax_scale, rules.causal, rules.window_size, rules.softcap, interleaved,
        None, num_splits, return_softmax_lse=True, sink=rules.s_aux, q_descale=queries.descale,
        k_descale=cache.k_descale, v_descale=cache.v_descale,
    )  # fmt: skip


def _in_steps(queries: Queries, cache: Cache, rules: Rules, num_splits: int) -> Two:
    if _is_of_pages(queries, cache, rules):
        return _of_pages(queries, cache, rules, num_splits)
    k, v = (_by_sequence(x, cache) for x in cache[:2])
    lengths = Lengths(queries.cu_seqlens, None, None, cache.lengths, cache.leftpad, queries.max_seqlen)
    descales = Descales(queries.descale, cache.k_descale, cache.v_descale)
    return attend(queries.q, k, v, lengths, rules, descales)


def _is_of_pages(queries: Queries, cache: Cache, rules: Rules) -> bool:
    return not rules.attention_chunk and cache.has_pages_of_kernels and queries.cu_seqlens is not None


def _of_pages(queries: Queries, cache: Cache, rules: Rules, num_splits: int) -> Two:
    """Packed queries over pages. Only the kernels support them, with
    seqused_k."""
    assert queries.cu_seqlens is not None, "asked before"
    beyond = right_beyond_keys(rules, queries.longest, cache.capacity)
    nowhere = torch.zeros_like(queries.cu_seqlens)  # lengths come from seqused_k
    scale = queries.q.shape[-1] ** -0.5 if rules.softmax_scale is None else rules.softmax_scale
    used = cache.lengths
    if used is None:
        used = torch.full((queries.batch,), cache.capacity, dtype=torch.int32, device=queries.q.device)
    left, right = rules.window_size
    out, lse, _, _ = raw.varlen_fwd(
        queries.q, cache.k, cache.v, None, queries.cu_seqlens, nowhere, used, None, cache.page_table, None,
        queries.max_seqlen, max(cache.capacity, beyond), 0.0, scale, is_causal=rules.causal,
        zero_tensors=False, window_size_left=left, window_size_right=right, softcap=rules.softcap,
        return_softmax=False, num_splits=num_splits, sink=rules.s_aux, q_descale=queries.descale,
        k_descale=cache.k_descale, v_descale=cache.v_descale,
    )  # fmt: skip
    return out, lse


def _by_sequence(x: Tensor, cache: Cache) -> Tensor:
    """(batch, capacity, nheads_k, headdim)."""
    if is_coded(x):  # PyTorch indexes few tensors of such dtypes
        return _by_sequence(x.view(torch.uint8), cache).view(x.dtype)
    if cache.page_table is not None:
        return x[cache.page_table].flatten(1, 2)
    return x if cache.rows is None else x[cache.rows]


class _Places(NamedTuple):
    """For each row its sequence and its number there. ``counts`` is False for rows outside all sequences."""

    sequence: Tensor
    number: Tensor
    counts: Tensor


def _places(x: Tensor, cut: Tensor | None) -> _Places:
    """For dense rows (batch, rows), for packed ones (rows)."""
    if cut is None:
        batch, rows = (torch.arange(size, device=x.device) for size in x.shape[:2])
        number = rows.expand(len(batch), -1)
        return _Places(batch[:, None].expand_as(number), number, torch.ones_like(number, dtype=torch.bool))
    rows = torch.arange(len(x), device=x.device)
    sequence = torch.searchsorted(cut, rows, right=True) - 1
    counts = sequence < len(cut) - 1
    sequence = sequence.clamp(max=len(cut) - 2)
    return _Places(sequence, rows - cut[sequence], counts)


def _rotated(queries: Queries, cache: Cache, new: New, rotary: Rotary, rules: Rules) -> tuple[Queries, New]:
    """q and the new keys, rotated by position, q by the first position if no mask depends on positions."""
    first = cache.lengths if rotary.positions is None else rotary.positions
    assert first is not None, "checked before"
    local = rules.causal or rules.attention_chunk > 0 or any(side >= 0 for side in rules.window_size)

    def turned(x: Tensor, cut: Tensor | None, *, by_row: bool) -> Tensor:
        place = _places(x, cut)
        where = first[place.sequence] + (place.number if by_row else 0)
        where = torch.where(place.counts, where, 0)
        batched, at = (x, where) if cut is None else (x[None], where[None])
        return rotate(batched, rotary.cos, rotary.sin, at, interleaved=rotary.interleaved).view_as(x)

    q = turned(queries.q, queries.cu_seqlens, by_row=local)
    return queries._replace(q=q), new._replace(k=turned(new.k, new.cu_seqlens, by_row=True))


def _check_codes(cache: Cache, new: New) -> None:
    """Raises FlashAttnArgumentError unless codes are of one format: their bytes are copied."""
    wanted = cache.k.dtype
    found = [
        f"{name}: expected dtype {wanted} like k_cache, got {x.dtype}"
        for name, x in (("v_cache", cache.v), ("k", new.k), ("v", new.v))
        if x.dtype != wanted
    ]
    if found:
        raise FlashAttnArgumentError("\n".join(found))


def _appended(cache: Cache, new: New) -> Cache:
    """The cache with the new rows written after its own."""
    assert cache.lengths is not None, "checked before"
    place = _places(new.k, new.cu_seqlens)
    sequence, number = place.sequence[place.counts], place.number[place.counts]
    at = cache.lengths[sequence] + number
    if (at >= cache.capacity).any():
        most = int(at.max()) + 1
        problem = f"k: expected rows that fit into the cache's {cache.capacity}, got {most} with those in it"
        raise FlashAttnArgumentError(problem)
    page = cache.k.shape[1]
    if cache.page_table is not None:
        block, at = cache.page_table[sequence, at // page], at % page
    else:
        block = sequence if cache.rows is None else cache.rows[sequence]
    for into, x in ((cache.k, new.k), (cache.v, new.v)):
        if is_coded(into):  # PyTorch indexes few tensors of such dtypes
            into, x = into.view(torch.uint8), x.view(torch.uint8)  # noqa: PLW2901
        into[block, at] = x[place.counts]
    added = new.k.shape[1] if new.cu_seqlens is None else new.cu_seqlens.diff()
    return cache._replace(lengths=cache.lengths + added)
