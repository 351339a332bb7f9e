"""Batches cut into pieces, each a sequence of its own, for features outside of kernels.

Used for ``attention(…, chunk=)``, and by interfaces on top of this package, such as the distribution
flash-attn-3.

A chunk: row i of a sequence is at the position p = i + seqlen_k - seqlen_q and sees the keys of its own
chunk, from p - p % chunk on. The rows and the keys of a chunk lie together, and the last row and the last key
have the same position, as causal masks and windows require. So attention of a chunk is attention of a shorter
sequence. Rows before position 0 see no key.

seqused_q, seqused_k, cache_leftpad: unused rows are a sequence without keys, and unused keys a sequence
without rows.

This module leaves tensor values unread, so it never waits for the GPU.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Span(NamedTuple):
    """Rows, or keys, of each sequence, (batch) int32: ``begin`` to ``end``, the start of the next one.

    Rows from ``first`` to before ``last`` count.
    """

    begin: Tensor
    first: Tensor
    last: Tensor
    end: Tensor


class Pieces(NamedTuple):
    """The arguments of ``flash_attn_varlen_func`` for the pieces."""

    cu_seqlens_q: Tensor
    cu_seqlens_k: Tensor
    max_seqlen_q: int
    max_seqlen_k: int


def packed(cu_seqlens: Tensor, used: Tensor | None = None) -> Span:
    """Packed sequences. ``used`` (batch) rows of each count, by default all."""
    begin, end = cu_seqlens[:-1], cu_seqlens[1:]
    return Span(begin, begin, end if used is None else begin + used, end)


def dense(
    batch: int, length: int, device: torch.device, *, first: Tensor | None = None, last: Tensor | None = None
) -> Span:
    """Sequences of one length. The rows from ``first`` to ``last``, (batch), count."""
    cut = ends(batch, length, device)
    begin, end = cut[:-1], cut[1:]
    of_last = end if last is None else begin + last
    return Span(begin, begin if first is None else torch.minimum(begin + first, of_last), of_last, end)


def ends(batch: int, length: int, device: torch.device) -> Tensor:
    """cu_seqlens of sequences with one length."""
    return torch.arange(batch + 1, dtype=torch.int32, device=device) * length


def flat(x: Tensor) -> Tensor:
    """(batch, seqlen, nheads, headdim) to (batch * seqlen, nheads, headdim). Packed rows stay."""
    return x.flatten(0, 1) if x.dim() == 4 else x


def cut(rows: Span, keys: Span, chunk: int, max_seqlen_q: int, max_seqlen_k: int) -> Pieces:
    """The pieces of a batch of at least one, equally many per sequence. ``chunk`` 0: no chunks."""
    begins, longest = [(rows.first, keys.first)], max_seqlen_k
    if chunk:
        begins.append(_chunks(rows, keys, chunk, max_seqlen_k))
        longest = min(chunk, max_seqlen_k)
    if keys.first is not keys.begin:
        begins.insert(0, (rows.begin, keys.begin))
        longest = max_seqlen_k  # the keys in front of the first that counts are a piece, too
    if rows.last is not rows.end or keys.last is not keys.end:
        begins += [(rows.last, keys.last), (rows.end, keys.last)]
        longest = max_seqlen_k
    of_rows, of_keys = (
        torch.cat([x.view(len(x), -1) for x in each], 1).flatten() for each in zip(*begins, strict=True)
    )
    cut_q, cut_k = torch.cat((of_rows, rows.end[-1:])), torch.cat((of_keys, keys.end[-1:]))
    return Pieces(cut_q, cut_k, max_seqlen_q, longest)


def _chunks(rows: Span, keys: Span, chunk: int, most: int) -> tuple[Tensor, Tensor]:
    """First row and first key of each chunk, (batch, chunks). Rows in front of these see no key."""
    used, seqlen_k = ((each.last - each.first)[:, None] for each in (rows, keys))
    width = min(chunk, max(most, 1))  # a wider chunk also has all keys, and may exceed int32
    positions = torch.arange(0, most, width, dtype=torch.int32, device=used.device)
    row = torch.minimum((positions - seqlen_k + used).clamp(min=0), used)
    return rows.first[:, None] + row, keys.first[:, None] + torch.minimum(positions, seqlen_k)
