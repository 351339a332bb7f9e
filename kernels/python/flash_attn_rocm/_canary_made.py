"""The calls of the check at first use, made from their rows: random tensors, always the same, on the CPU."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from flash_attn_rocm._canary_rows import CACHE, DENSE, FLAT, PACKED, PAGED, Row
from flash_attn_rocm._options import TORCH_DTYPES, Inputs, Options
from flash_attn_rocm._remembered import Family

FP32 = torch.float32  # whatever the default is
NO_NUMBERS = (math.nan, -math.inf, math.inf)
PAGE = 48
STEEPEST = 0.03  # slope of ALiBi, so that keys at both ends of a window count
ALONG = 128.0  # what all queries have in the one element that makes the scores of a row
Tensors = list[Tensor]  # one for each sequence: (rows, heads, head_dim)
Stored = tuple[Tensor, Tensor, dict[str, Tensor]]  # k, v, and the tensors that say where sequences lie


class Call(NamedTuple):
    """With ``nan`` the kernels get tensors of NaN in place of ``inputs``."""

    name: str
    inputs: Inputs
    options: Options
    nan: bool


def made(row: Row, family: Family) -> Call:
    """The call of a row."""
    draw, scale = torch.Generator().manual_seed(0), row.scale * family.head_dim**-0.5
    nheads, nheads_k = row.heads
    qs = [_normal(draw, family, row, length, nheads) for length in row.rows]
    ks, vs = ([_normal(draw, family, row, length, nheads_k) for length in row.keys] for _ in range(2))
    _score(row, qs, ks, scale)
    ragged = row.store in {PACKED, PAGED}
    q = torch.cat(qs) if ragged else torch.stack(qs)
    k, v, where = STORES[row.store](ks, vs)
    slopes = torch.rand(len(row.rows), nheads, generator=draw, dtype=FP32) * STEEPEST if row.alibi else None
    inputs = Inputs(q.contiguous(), k, v, slopes, _ends(row.rows) if ragged else None, **where)
    longest = (max(row.rows), max(row.keys))
    options = Options(scale, *row.window, row.softcap, row.dropout, *longest, row.parts)
    return Call(row.why, inputs, options, row.nan)


def _normal(draw: torch.Generator, family: Family, row: Row, length: int, heads: int) -> Tensor:
    wide = torch.randn(length, heads, family.head_dim, generator=draw, dtype=FP32)
    return wide.to(TORCH_DTYPES[family.dtype])[..., : family.head_dim - row.narrower]


def _score(row: Row, qs: Tensors, ks: Tensors, scale: float) -> None:
    """Gives keys the scores that the row wants."""
    first, step = row.scores
    if row.scores != FLAT:
        for q, k in zip(qs, ks, strict=True):
            wanted = first + step * torch.arange(len(k), dtype=FP32)
            q[..., 0], k[..., 0] = ALONG, (wanted / (ALONG * scale))[:, None]
    if row.infinite:
        for k, number in zip(ks, NO_NUMBERS, strict=True):
            k[2 * len(k) // 3, -1, 0] = number


def _dense(ks: Tensors, vs: Tensors) -> Stored:
    return torch.stack(ks), torch.stack(vs), {}


def _packed(ks: Tensors, vs: Tensors) -> Stored:
    return torch.cat(ks), torch.cat(vs), {"cu_seqlens_k": _ends([len(k) for k in ks])}


def _cache(ks: Tensors, vs: Tensors) -> Stored:
    """Rows by index, in the reverse order; each sequence begins after as many keys as its place."""
    capacity = max(map(len, ks)) + len(ks) + 1
    places = [*range(len(ks), 0, -1)]
    caches = tuple(_hollow(xs[0], len(xs) + 1, capacity) for xs in (ks, vs))
    for cache, xs in zip(caches, (ks, vs), strict=True):
        for place, x in zip(places, xs, strict=True):
            cache[place, place : place + len(x)] = x
    used = [place + len(k) for place, k in zip(places, ks, strict=True)]
    how = {
        "seqused_k": _integers(*used), "leftpad_k": _integers(*places), "cache_batch_idx": _integers(*places),
    }  # fmt: skip
    return *caches, how


def _paged(ks: Tensors, vs: Tensors) -> Stored:
    """Pages in the reverse order."""
    blocks = [-(-len(k) // PAGE) for k in ks]
    caches = tuple(_hollow(xs[0], sum(blocks) + 1, PAGE) for xs in (ks, vs))
    table = torch.full((len(ks), max(blocks)), -1, dtype=torch.int32)
    free = sum(blocks)
    for b, (k, v) in enumerate(zip(ks, vs, strict=True)):
        for at in range(blocks[b]):
            for cache, x in zip(caches, (k, v), strict=True):
                part = x[at * PAGE : (at + 1) * PAGE]
                cache[free, : len(part)] = part
            table[b, at] = free
            free -= 1
    lengths = [len(k) for k in ks]
    return *caches, {"block_table": table, "cu_seqlens_k": _ends(lengths)}


def _hollow(like: Tensor, *sizes: int) -> Tensor:
    """A cache like a sequence's rows; what no sequence uses is NaN."""
    wide = like.new_full((*sizes, like.shape[1], like.stride(1)), torch.nan)
    return wide[..., : like.shape[2]]


STORES = {DENSE: _dense, PACKED: _packed, CACHE: _cache, PAGED: _paged}


def _ends(lengths: Sequence[int]) -> Tensor:
    return _integers(0, *itertools.accumulate(lengths))


def _integers(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)
