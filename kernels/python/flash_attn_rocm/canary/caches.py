"""The check at first use of the kernels that write into caches: results match PyTorch bit for bit.

In each call some sequences begin or end outside of the cache, or have an invalid slot. Kernels must leave out
these writes.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import TORCH_DTYPES, Inputs, New
from flash_attn_rocm.canary.calls import ended, endless, moved
from flash_attn_rocm.canary.making import APART, DRAWN, FP32
from flash_attn_rocm.canary.rows import APPENDS, CACHE, CODED_APPENDS, DENSE, PAGED, AppendRow
from flash_attn_rocm.machine.remembered import CODED, Family
from flash_attn_rocm.reference import codes
from flash_attn_rocm.reference.rotary import rotate

Append = Callable[[Inputs, New, bool], Inputs]
Widened = Callable[[Inputs, Tensor], Tensor]  # of a cache and its descales
ROWS, NEW = 3, 17  # more rows than a workgroup has threads, for the longest head
CAPACITY, PAGE = 80, 16  # a quotient of 5: integer division corrects a wrong start by up to 2 only
LENGTHS = (0, 17, CAPACITY - 5, -9, 2**31 - 3, 20, 5)  # of the sequences, before
PLACED = 5  # of these slots; the next sequence has a slot before the cache, and the last one behind it
TIES = (1.5, -1.25, 0.75, -1.75, 0.625)
ANGLES = 20  # fewer than positions: later positions use the last angle
# One element in five is NaN, infinite, so large that products overflow, or subnormal in fp16. Five is coprime
# to the number of elements per thread, so each element of a thread is special somewhere.
SPARSE = 5
NAMES = ("q", "k_cache", "v_cache", "k_descale", "v_descale")
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}  # of elements of so many bytes


def append_problem(family: Family, append: Append, where: torch.device) -> str:
    """The error of in-place appends with rotation, or ""."""
    pool = _numbers(family.dtype)
    for row in CODED_APPENDS if family.work == CODED else APPENDS:
        inputs, new = _made(row, *pool)
        wanted = _expected(row, inputs, new)
        given, its_new = Inputs(*(moved(x, where) for x in inputs)), _new_on(new, where)
        found = ended(where, lambda: append(given, its_new, row.advances)[:1])  # noqa: B023
        if found is None:
            return endless(row.why)
        places = (given.k, given.v, given.k_descale, given.v_descale)
        written = (found[0], *(x for x in places if x is not None))
        pairs = zip(NAMES, written, wanted, strict=False)  # descales of heads are only read
        if wrong := [name for name, one, other in pairs if not _same(one.cpu(), other)]:
            return f"{row.why}: {', '.join(wrong)} differ from the PyTorch implementation"
    return ""


def widening_problem(family: Family, widened: Widened, where: torch.device) -> str:
    """The error of a cache of latent attention that is widened, or ""."""
    lengths = torch.tensor([CAPACITY, 5, 0], dtype=torch.int32)
    table = torch.arange(len(lengths) * CAPACITY // PAGE, dtype=torch.int32).flip(0).view(len(lengths), -1)
    sizes = (table.numel(), PAGE, 1, family.head_dim)
    bits = (
        (torch.arange(math.prod(sizes)) * 7).to(torch.uint8).view(sizes)
    )  # all codes, differently in each row
    q = torch.empty(len(lengths), 1, 1, family.head_dim, dtype=TORCH_DTYPES[family.dtype])
    for number, dtype in enumerate(codes.DTYPES):
        paged, coded = number % 2 == 0, bits.view(dtype)
        cache = coded if paged else coded.view(len(lengths), CAPACITY, 1, -1)
        descale = torch.arange(1.0, 1.0 + cache[..., 0].numel()).view(cache.shape[:3]) / 61
        numbers = codes.dequantised(cache.view(torch.uint8).view(dtype), descale[..., None], q.dtype)
        wanted = numbers[table.long()].flatten(1, 2) if paged else numbers
        given = Inputs(q, cache, cache, None, None, None, lengths, None, table if paged else None)
        given, own = Inputs(*(moved(x, where) for x in given)), moved(descale, where)
        found = ended(where, lambda: (widened(given, own),))  # noqa: B023
        if found is None:
            return endless(f"widening {dtype}")
        pairs = zip(found[0].cpu(), wanted, lengths.tolist(), strict=True)
        if any(not _same(one[:length], other[:length]) for one, other, length in pairs):
            return f"widening {dtype}: keys differ from the PyTorch implementation"
    return ""


def _numbers(dtype: str) -> tuple[Tensor, Tensor]:
    """Random numbers, and a copy with numbers that are hard to multiply and to round."""
    kind = TORCH_DTYPES[dtype]
    pool = torch.randn(DRAWN, generator=torch.Generator().manual_seed(0), dtype=FP32).to(kind)
    hard = pool.new_tensor([
        math.nan, math.inf, -math.inf, 0.75 * torch.finfo(kind).max, torch.finfo(torch.float16).tiny / 64,
    ])  # fmt: skip
    hardest = pool.clone()
    places = hardest[::SPARSE]
    places.copy_(hard.repeat(-(-len(places) // len(hard)))[: len(places)])
    return pool.repeat(4), hardest


def _made(row: AppendRow, pool: Tensor, hard: Tensor) -> tuple[Inputs, New]:
    batch, (nheads, nheads_k) = len(LENGTHS), row.heads

    def of(numbers: Tensor, place: int, *sizes: int) -> Tensor:
        return numbers[place * APART :][: math.prod(sizes)].view(sizes)

    # Heads first, so that q's strides differ from the cache's.
    q = of(hard, 0, batch, nheads, ROWS, row.head_dim).transpose(1, 2)
    # With codes, k has none of the hard numbers: beside these a key's descale leaves few codes to others.
    k, v = (
        of(numbers, place, batch, nheads_k, NEW, row.head_dim).transpose(1, 2)
        for numbers, place in ((pool if row.codes else hard, 1), (hard, 2))
    )
    cos, sin = (_angles(of(pool, n, ANGLES, row.rotary // 2), n) if row.rotary else None for n in range(2))
    page = PAGE if row.store == PAGED else CAPACITY
    placed = PLACED * CAPACITY // page
    slots = batch if row.store == DENSE else placed + 1
    store = pool.view(torch.uint8) if row.codes else pool
    k_cache, v_cache = (of(store, n, slots, page, nheads_k, row.head_dim).clone() for n in range(2))
    k_descale = v_descale = None
    if row.codes:
        k_cache, v_cache = (x.view(getattr(torch, row.codes)) for x in (k_cache, v_cache))
        sizes = (slots, page, nheads_k) if row.per_key else (batch, nheads_k)
        k_descale, v_descale = (of(pool, n, *sizes).float().abs() / 64 + 0.01 for n in range(2))
    places = torch.arange(placed, 0, -1, dtype=torch.int32)
    outside = torch.tensor([-1, slots], dtype=torch.int32).repeat_interleave(CAPACITY // page)
    places = torch.cat([places, outside])
    table = places.view(batch, -1) if row.store == PAGED else None
    indices = places if row.store == CACHE else None
    lengths = torch.tensor(LENGTHS, dtype=torch.int32)
    inputs = Inputs(
        q, k_cache, v_cache, None, None, None, lengths, None, table, indices, k_descale=k_descale,
        v_descale=v_descale,
    )  # fmt: skip
    return inputs, New(k, v, cos, sin, row.interleaved)


def _angles(random: Tensor, first: int) -> Tensor:
    """Every other angle has so few bits that products often lie midway between two numbers of the type.

    The angles of a thread differ from each other, and each cosine differs from its sine.
    """
    rows, columns = (torch.arange(size) for size in random.shape)
    ties = random.new_tensor(TIES)[(first + rows[:, None] + columns // 2) % len(TIES)]
    return random.where(columns % 2 == 0, ties)


def _new_on(new: New, where: torch.device) -> New:
    k, v, cos, sin = (moved(x, where) for x in new[:4])
    return new._replace(k=k, v=v, cos=cos, sin=sin)


def _expected(row: AppendRow, inputs: Inputs, new: New) -> tuple[Tensor, ...]:
    """q and both caches, after, and descales if they are written."""
    q, k, begins = inputs.q, new.k, torch.tensor(LENGTHS)[:, None]
    positions = begins + torch.arange(NEW)
    if new.cos is not None and new.sin is not None:
        queries = begins + torch.arange(ROWS) * int(row.advances)
        q, k = (
            rotate(x, new.cos, new.sin, at.clamp(0, ANGLES - 1), interleaved=row.interleaved)
            for x, at in ((q, queries), (k, positions))
        )
    at = positions.clamp(0, CAPACITY - 1)
    place = torch.arange(len(LENGTHS))[:, None].expand_as(at)
    if inputs.block_table is not None:
        place, at = inputs.block_table.long().gather(1, at // PAGE), at % PAGE
    elif inputs.cache_batch_idx is not None:
        place = inputs.cache_batch_idx.long()[:, None].expand_as(at)
    inside = (positions >= 0) & (positions < CAPACITY) & (place >= 0) & (place < len(inputs.k))
    where = (place[inside], at[inside])
    if row.codes:
        return q, *_coded(row, inputs, (k, new.v), where, inside)
    return q, *(x.index_put(where, its[inside]) for x, its in ((inputs.k, k), (inputs.v, new.v)))


def _coded(
    row: AppendRow, inputs: Inputs, new: tuple[Tensor, Tensor], where: tuple[Tensor, ...], inside: Tensor
) -> list[Tensor]:
    caches, descales, dtype = [], [], inputs.k.dtype
    for cache, x, descale in zip(inputs[1:3], new, (inputs.k_descale, inputs.v_descale), strict=True):
        assert isinstance(descale, Tensor), "rows with codes have them"
        own = codes.own_descales(x, dtype) if row.per_key else descale[:, None].expand(x.shape[:3])
        coded = codes.encode(x, own[..., None], dtype).view(torch.uint8)
        caches.append(cache.view(torch.uint8).index_put(where, coded[inside]).view(dtype))
        descales += [descale.index_put(where, own[inside])] if row.per_key else []
    return [*caches, *descales]


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether the bits are equal. All NaNs of 16 bits count as equal."""
    bits = BITS[other.element_size()]
    if bits != torch.int16:
        return torch.equal(one.view(bits), other.view(bits))
    no_number = other.isnan()
    numbers = (x.masked_fill(no_number, 0.0).view(bits) for x in (one, other))
    return torch.equal(one.isnan(), no_number) and torch.equal(*numbers)
