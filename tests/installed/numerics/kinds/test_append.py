"""Appending to a cache through ``flash_attn_with_kvcache``: bits equal the PyTorch implementation's.

tests/installed/wheel/attention/test_kvcache.py compares that implementation with float64. Attention sees the
appended keys.
"""

from dataclasses import dataclass

import pytest
import torch
from flash_attn_rocm import flash_attn_with_kvcache
from flash_attn_rocm.suite.rule import DTYPES, Rules, Sequence, judge
from here import APPEND

INT32 = torch.int32
BATCH, NHEADS, NHEADS_K = 3, 4, 2


@dataclass(frozen=True)
class Case:
    """``new`` and ``rows`` are numbers of keys and queries. ``gap`` elements are unused after each head."""

    new: int = 1
    rows: int = 1
    head_dim: int = 64
    rotary: int = 0
    interleaved: bool = False
    causal: bool = True
    page: int = 0
    places: bool = False
    gap: int = 0
    capacity: int = 48


CASES = {
    "decode": Case(),
    "decode-rotary": Case(rotary=64),
    "interleaved": Case(rotary=32, interleaved=True, new=3, rows=3),
    "queries-at-one-position": Case(rotary=64, new=2, rows=5, causal=False),
    "pages": Case(rotary=64, new=19, rows=19, page=16),
    "pages-of-48-interleaved": Case(rotary=48, interleaved=True, new=5, rows=2, page=48, capacity=96),
    "places": Case(rotary=16, new=4, rows=4, places=True),
    "part-of-wider-rows": Case(rotary=32, new=4, rows=4, gap=8),
    "odd-rows": Case(rotary=32, interleaved=True, new=4, rows=4, gap=3),
    "odd-pages": Case(rotary=32, new=19, rows=4, gap=3, page=16),
    "odd-places": Case(rotary=32, new=4, rows=4, gap=3, places=True),
    "head-dim-40": Case(rotary=32, new=4, rows=4, head_dim=40, page=16),
    "head-dim-59": Case(new=4, rows=4, head_dim=59),
    "pages-of-head-dim-59": Case(rotary=32, new=19, rows=3, head_dim=59, page=16),
    "pages-of-odd-rows": Case(interleaved=True, rotary=32, new=19, rows=3, gap=3, page=16),
    "head-dim-41": Case(rotary=32, new=3, rows=3, head_dim=41),
    "one-element": Case(new=3, rows=3, head_dim=1),
    "largest": Case(rotary=256, new=3, rows=3, head_dim=256),
    "many-rows": Case(rotary=64, new=70, rows=70, capacity=100),
}


class Cache:
    """Random arguments of a case."""

    def __init__(self, case, dtype, device):
        self.case, self.dtype, self.device = case, DTYPES[dtype], device
        self.generator = torch.Generator().manual_seed(len(repr(case)))
        self.q, self.k, self.v = (
            self.tensor(BATCH, rows, heads)
            for rows, heads in ((case.rows, NHEADS), (case.new, NHEADS_K), (case.new, NHEADS_K))
        )
        blocks = case.capacity // case.page if case.page else 0
        sizes = (BATCH * blocks + 2, case.page) if case.page else (BATCH + 2 * case.places, case.capacity)
        self.k_cache, self.v_cache = (self.tensor(*sizes, NHEADS_K) for _ in range(2))
        order = torch.randperm(sizes[0], generator=self.generator).to(INT32).to(device)
        self.table = order[: BATCH * blocks].view(BATCH, blocks) if case.page else None
        self.places = order[:BATCH] if case.places else None
        room = case.capacity - case.new
        self.lengths = torch.tensor([room, 0, room // 2], dtype=INT32, device=device)
        angles = torch.rand(case.capacity + case.rows, case.rotary // 2, generator=self.generator) * 6.3
        self.angles = [x.to(self.dtype).to(device) for x in (angles.cos(), angles.sin())]
        if not case.rotary:
            self.angles = [None, None]

    def tensor(self, *sizes):
        width = self.case.head_dim + self.case.gap
        values = torch.randn(*sizes, width, generator=self.generator).to(self.dtype).to(self.device)
        return values[..., : self.case.head_dim]

    def by_pytorch(self):
        """q rotated and both caches, after."""
        case, caches = self.case, [self.k_cache.clone(), self.v_cache.clone()]
        rotated, _ = torch.ops.flash_attn_rocm.pytorch_append(
            self.q, *caches, self.k, self.v, *self.angles, self.lengths, None, self.table, self.places,
            None, None, case.interleaved, case.causal,
        )  # fmt: skip
        return (rotated if case.rotary else self.q), *caches

    def keys_of(self, cache, b):
        if self.table is not None:
            return cache[self.table[b].long()].flatten(0, 1)
        return cache[b if self.places is None else int(self.places[b])]

    def call(self, target):
        (out, lse), _ = target.attend(
            flash_attn_with_kvcache, self.q, self.k_cache, self.v_cache, self.k, self.v, *self.angles,
            cache_seqlens=self.lengths, cache_batch_idx=self.places, block_table=self.table,
            causal=self.case.causal, rotary_interleaved=self.case.interleaved, return_softmax_lse=True,
        )  # fmt: skip
        return out, lse


@pytest.mark.parametrize("dtype", APPEND)
@pytest.mark.parametrize("name", CASES)
def test_append(target, shown, dtype, name):
    case = CASES[name]
    cache = Cache(case, dtype, target.device)
    q, k_cache, v_cache = cache.by_pytorch()
    launched = shown.kernels[f"fa_append_{dtype}"]
    out, lse = cache.call(target)
    assert target.runtime is None or shown.kernels[f"fa_append_{dtype}"] == launched + 1
    assert torch.equal(cache.k_cache, k_cache)
    assert torch.equal(cache.v_cache, v_cache)
    ends = (cache.lengths + case.new).tolist()
    sequences = [
        Sequence(q[b], *(cache.keys_of(x, b)[:end] for x in (k_cache, v_cache)), out[b], lse[b])
        for b, end in enumerate(ends)
    ]
    instance = f"fa_append_{dtype}"
    judge(shown, instance, f"append {name}", sequences, Rules(right=0 if case.causal else -1))


@pytest.mark.parametrize("dtype", APPEND)
def test_what_leads_out_of_the_cache_is_not_written(target, dtype):
    """Keys before the first or after the last row are dropped, for any lengths."""
    cache = Cache(Case(new=4, rows=1, rotary=32), dtype, target.device)
    before = cache.k_cache.clone()
    cache.lengths = torch.tensor([-2, 46, 2**31 - 3], dtype=INT32, device=target.device)
    cache.call(target)
    changed = (cache.k_cache != before).flatten(2).any(-1).nonzero().tolist()
    assert changed == [[0, 0], [0, 1], [1, 46], [1, 47]]


@pytest.mark.parametrize("dtype", APPEND)
def test_pages_and_places_that_are_not_there_are_not_written(target, dtype):
    paged = Cache(Case(new=20, page=16), dtype, target.device)
    paged.lengths.zero_()
    paged.table[:] = torch.tensor([[-1, 3, 0], [0, 11, 2], [2**31 - 1, -(2**31), 4]], dtype=INT32)
    placed = Cache(Case(places=True), dtype, target.device)
    placed.lengths.zero_()
    placed.places[:] = torch.tensor([5, -1, 4], dtype=INT32)
    for cache, expected in ((paged, {0, 3}), (placed, {4})):
        before = cache.v_cache.clone()
        cache.call(target)
        changed = (cache.v_cache != before).flatten(1).any(-1).nonzero()
        assert set(changed.flatten().tolist()) == expected
