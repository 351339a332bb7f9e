"""The calls of the check at first use, made from their rows: fixed random tensors on the CPU."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from flash_attn_rocm.arguments.normal_form import TORCH_DTYPES, Inputs, Options
from flash_attn_rocm.canary.rows import (
    BOOL,
    CACHE,
    DENSE,
    FLAT,
    IN_USE,
    LATER,
    LEFT,
    ONE,
    OTHERS,
    PACKED,
    PAGED,
    SOME,
    UNIT,
    WHOLE,
    Mask,
    Row,
)
from flash_attn_rocm.canary.rows import FP32 as MASK_FP32
from flash_attn_rocm.library.host import LIMITS
from flash_attn_rocm.library.plans import has_kernel
from flash_attn_rocm.machine.remembered import Family
from flash_attn_rocm.reference import codes
from flash_attn_rocm.values import kinds

FP32 = torch.float32  # for any default dtype
NO_NUMBERS = (math.nan, -math.inf, math.inf)
PAGE = 48
STEEPEST = 0.03  # ALiBi slope small enough that keys at both ends of a window count
SINKS = 4.0  # sinks lie between half of it and minus half of it, among the scores
ALONG = 128.0  # value of all queries in the one element that makes the scores of a row
# Distance in elements between the starts of q, k, v and dout in the random numbers: 16 bytes, the alignment
# that kernels want, and less than a row, so that the tensors share no row.
APART = 8
# Period of the random numbers: a multiple of 8 and of no head dim, so that rows differ.
DRAWN = 8 * 4099
TINY = 2.0**-30  # zero in fp16
NO_CODE = 0xFF  # NaN of two formats, and a number of the others
BEYOND = 8  # NaN behind a row of a bias, at most: rows begin at multiples of so many elements
# Extra heads behind each row of q, k, v and dout, so that dense tensors have distinct strides.
BEHIND = (3, 0, 1, 2)
Lengths = tuple[int, ...]
Stored = tuple[Tensor, Tensor, dict[str, Tensor]]  # k, v, and the tensors with the places of sequences


class Call(NamedTuple):
    """A call of a row, with ``rows`` and ``keys`` per sequence.

    ``padded`` is the call as one dense batch, and ``dout`` has the shape of its q. All sequences end at the
    end of the longest one. Windows and ALiBi count from the end, so a mask of the keys before the first is
    enough. With ``nan``, kernels get tensors of NaN in place of ``inputs``.
    """

    name: str
    inputs: Inputs
    options: Options
    nan: bool
    padded: Inputs
    dout: Tensor
    rows: Lengths
    keys: Lengths
    path: str = ""

    @property
    def ragged(self) -> bool:
        """Whether queries are packed."""
        return self.inputs.cu_seqlens_q is not None


def made(rows: Sequence[Row], family: Family) -> Iterator[Call]:
    """The calls of rows. Their tensors are views of shared random numbers, or copies of views."""
    draw, rows = torch.Generator().manual_seed(0), [row.of(family.head_dim) for row in rows]
    most = max(len(row.rows) * max(*row.rows, *row.keys) * (row.heads[0] + max(BEHIND)) for row in rows)
    length = most * family.head_dim + 3 * APART
    pool = torch.randn(DRAWN, generator=draw, dtype=FP32).to(TORCH_DTYPES[family.dtype])
    pool = pool.repeat(-(-length // DRAWN))
    steep = torch.rand(max(len(row.rows) * row.heads[0] for row in rows), generator=draw, dtype=FP32)
    return (_made(row, family, pool, steep * STEEPEST) for row in rows)


def _made(row: Row, family: Family, pool: Tensor, slopes: Tensor) -> Call:
    padded, dout = _padded(row, family, pool)
    options = Options(
        row.scale * family.head_dim**-0.5, *row.window, row.softcap, row.dropout,
        max(row.rows), max(row.keys), row.parts,
    )  # fmt: skip
    if row.alibi:
        padded = padded._replace(alibi_slopes=slopes[: len(row.rows) * row.heads[0]].view(-1, row.heads[0]))
    if row.sink:
        padded = padded._replace(sink=slopes[: row.heads[0]] / STEEPEST * SINKS - SINKS / 2)
    stored = padded
    if row.codes:
        stored, padded = _coded(row, padded, family)
    k, v, where = STORES[row.store](stored.k, stored.v, row.keys)
    if row.codes:
        k, v = (x.view(getattr(torch, row.codes)) for x in (k, v))
        where |= _descales(row, stored)
    q = padded.q if row.store == DENSE else padded.q.contiguous()
    if row.store in {PACKED, IN_USE, PAGED}:
        q, where["cu_seqlens_q"] = packed(q, row.rows), _ends(row.rows)
    inputs = padded._replace(q=q, k=k, v=v, attn_mask=padded.attn_mask if row.mask else None, **where)
    return Call(row.why, inputs, options, row.nan, padded, dout, row.rows, row.keys, row.path)


def _padded(row: Row, family: Family, pool: Tensor) -> tuple[Inputs, Tensor]:
    """q, k and v of all sequences with their mask, and dout."""
    lengths, heads = (row.rows, row.keys, row.keys, row.rows), (*row.heads, row.heads[1], row.heads[0])
    of_v = LIMITS.uneven_head_dim if row.uneven else family.head_dim
    dims = (family.head_dim, family.head_dim, of_v, of_v)
    q, k, v, dout = (
        _view(pool[place * APART :], row, max(its), (number, behind), head_dim)
        for place, (its, number, behind, head_dim) in enumerate(
            zip(lengths, heads, BEHIND, dims, strict=True)
        )
    )
    if row.scores != FLAT or row.infinite:
        q, k = q.clone(), k.clone()
        _score(row, q, k, row.scale * family.head_dim**-0.5)
    if row.tiny:
        v = v.clone()
        v[..., 0] = TINY
    mask = None if min(row.keys) == max(row.keys) else there(row.keys)[:, None, None]
    if row.mask:
        mask = _mask(row, row.mask, pool)
    return Inputs(q, k, v, attn_mask=mask), dout


def _coded(row: Row, padded: Inputs, family: Family) -> tuple[Inputs, Inputs]:
    """The bits of k and v with descales, and the call with the numbers that kernels take them for."""
    widened = row.widened or not has_kernel(*family[:3], kinds.ATTENDING[kinds.CODED])
    dtype, bits, numbers, descales = getattr(torch, row.codes), [], [], []
    for behind, x in enumerate((padded.k.float(), padded.v.float())):
        descale = codes.own_descales(x, dtype)
        descale = descale if row.per_key else descale.amax(1)
        of = descale[..., None] if row.per_key else descale[:, None, :, None]
        encoded = codes.encode(x, of, dtype)
        wide = pad(encoded.view(torch.uint8), (0, 0, 0, behind), value=NO_CODE)
        bits.append(wide[:, :, : x.shape[2]])
        number = codes.decode(encoded) * of
        numbers.append(number.to(padded.q.dtype) if widened else number)
        descales.append(descale)
    stored = padded._replace(k=bits[0], v=bits[1], k_descale=descales[0], v_descale=descales[1])
    return stored, padded._replace(k=numbers[0], v=numbers[1])


def _descales(row: Row, stored: Inputs) -> dict[str, Tensor]:
    """As the call has them: of keys in the places of the keys."""
    descales = stored.k_descale, stored.v_descale
    if row.per_key:
        one, other = (x[..., None] for x in descales if x is not None)
        descales = tuple(x[..., 0] for x in STORES[row.store](one, other, row.keys)[:2])
    return dict(zip(("k_descale", "v_descale"), descales, strict=True))


def _mask(row: Row, mask: Mask, pool: Tensor) -> Tensor:
    """(batch, nheads, rows, keys), with size 1 for shared dimensions."""
    whole = {"b": len(row.rows), "h": row.heads[0], "i": row.rows[0]}
    sizes = (*(size if name in mask.of else 1 for name, size in whole.items()), row.keys[0])
    number = math.prod(sizes)
    drawn, other = (numbers.view(sizes) for numbers in (pool[:number], pool[-number:].flip(0)))
    keys, places = torch.arange(row.keys[0]), torch.arange(row.rows[0])[:, None]
    hidden = {
        SOME: lambda: drawn > 0.0,
        LEFT: lambda: (keys < row.keys[0] // 2).expand(sizes),
        WHOLE: lambda: (drawn[..., :1] > 0.5).expand(sizes),
        LATER: lambda: (keys > places).expand(sizes),
        ONE: lambda: _one_key(sizes),
        OTHERS: lambda: ~_one_key(sizes),
    }[mask.hides]()
    if mask.holds == BOOL:
        return ~hidden
    bias = (other * 2.0).masked_fill(hidden, mask.low)
    return _part_of_nan(bias.to(FP32) if mask.holds == MASK_FP32 else bias)


def _part_of_nan(x: Tensor) -> Tensor:
    """A copy with NaN behind the elements of a row, where kernels load them too."""
    keys = x.shape[-1]
    wide = x.new_full((*x.shape[:-1], keys + BEYOND - keys % BEYOND), torch.nan)
    wide[..., :keys] = x
    return wide[..., :keys]


def _one_key(sizes: tuple[int, ...]) -> Tensor:
    """One element of each head: in each of 32 rows each of 4 words of a unit of keys, from the first unit to
    the last."""
    batch, heads, rows, keys = sizes
    head = torch.arange(batch * heads)
    unit = head * (keys // UNIT - 1) // (batch * heads - 1)
    found = torch.zeros(batch * heads, rows, keys, dtype=torch.bool)
    found[head, head % 32, unit * UNIT + head // 32 * 4 + head % 4] = True
    return found.view(sizes)


def _view(pool: Tensor, row: Row, length: int, heads: tuple[int, int], head_dim: int) -> Tensor:
    number, behind = heads
    if row.heads_first:  # extra rows behind each head, extra elements behind each row
        sizes = (len(row.rows), number, length + behind, head_dim + APART * behind)
        return pool[: math.prod(sizes)].view(sizes)[..., :length, :head_dim].transpose(1, 2)
    sizes = (len(row.rows), length, number + (behind if row.store == DENSE else 0), head_dim)
    return pool[: math.prod(sizes)].view(sizes)[:, :, :number, : head_dim - row.narrower]


def there(lengths: Lengths) -> Tensor:
    """(sequences, longest): True for rows, False for padding."""
    longest = max(lengths)
    return torch.arange(longest) >= longest - _integers(*lengths)[:, None]


def packed(x: Tensor, lengths: Lengths) -> Tensor:
    """(sequences, longest, ...) to (rows, ...), without padding."""
    longest = x.shape[1]
    return torch.cat([one[longest - length :] for one, length in zip(x, lengths, strict=True)])


def _score(row: Row, q: Tensor, k: Tensor, scale: float) -> None:
    """Sets the scores of keys as the row asks."""
    first, step = row.scores
    before = [k.shape[1] - length for length in row.keys]
    if row.scores != FLAT:
        along = ALONG * (1.0 - 2.0 * (torch.arange(q.shape[2]) % 2))  # of each head
        if row.mixed:
            along = along * (1.0 - torch.arange(q.shape[1]) % 3)[:, None]
        wanted = first + step * (torch.arange(k.shape[1]) - _integers(*before)[:, None])
        q[..., 0], k[..., 0] = along, (wanted / (ALONG * scale))[..., None]
    if row.infinite:
        for b, number in enumerate(NO_NUMBERS):
            at = row.keys[b] - 1 if row.window[0] == 0 else 2 * row.keys[b] // 3
            k[b, before[b] + at, -1, 1] = number


def _dense(k: Tensor, v: Tensor, _lengths: Lengths) -> Stored:
    return k, v, {}


def _packed(k: Tensor, v: Tensor, lengths: Lengths) -> Stored:
    return packed(k, lengths), packed(v, lengths), {"cu_seqlens_k": _ends(lengths)}


def _in_use(k: Tensor, v: Tensor, lengths: Lengths) -> Stored:
    """Packed, with one unused key behind each sequence."""
    ends = _ends([length + 1 for length in lengths])
    caches = hollow((k, v), lengths, _slots(ends[:-1].tolist(), lengths), int(ends[-1]))
    return *caches, {"cu_seqlens_k": ends, "seqused_k": _integers(*lengths)}


def _slots(begins: Sequence[int], lengths: Lengths) -> list[int]:
    """Slots of sequences with consecutive keys."""
    return [begin + at for begin, length in zip(begins, lengths, strict=True) for at in range(length)]


def _cache(k: Tensor, v: Tensor, lengths: Lengths) -> Stored:
    """Cache rows by index, in reverse order. A sequence's left padding equals its cache row's index."""
    capacity, places = max(lengths) + len(lengths) + 1, [*range(len(lengths), 0, -1)]
    begins = [place * capacity + place for place in places]
    caches = hollow((k, v), lengths, _slots(begins, lengths), len(lengths) + 1, capacity)
    used = [place + length for place, length in zip(places, lengths, strict=True)]
    return *caches, {
        "seqused_k": _integers(*used), "leftpad_k": _integers(*places), "cache_batch_idx": _integers(*places),
    }  # fmt: skip


def _paged(k: Tensor, v: Tensor, lengths: Lengths) -> Stored:
    """Pages in the reverse order."""
    blocks = [-(-length // PAGE) for length in lengths]
    firsts = [sum(blocks[b:]) for b in range(len(blocks))]  # the page of each sequence's first keys
    table = torch.full((len(lengths), max(blocks)), -1, dtype=torch.int32)
    slots = []
    for b, (first, length) in enumerate(zip(firsts, lengths, strict=True)):
        table[b, : blocks[b]] = torch.arange(first, first - blocks[b], -1)
        slots += [(first - at // PAGE) * PAGE + at % PAGE for at in range(length)]
    caches = hollow((k, v), lengths, slots, sum(blocks) + 1, PAGE)
    return *caches, {"block_table": table, "cu_seqlens_k": _ends(lengths)}


def hollow(tensors: tuple[Tensor, ...], lengths: Lengths, slots: Sequence[int], *sizes: int) -> list[Tensor]:
    """Caches of (blocks, keys) with rows in ``slots``; NaN in all other rows and behind the elements of v.

    Bits of codes get NO_CODE there.
    """
    caches = []
    for behind, x in enumerate(tensors):
        _, _, heads, head_dim = x.shape
        fill = torch.nan if x.is_floating_point() else NO_CODE
        wide = x.new_full((math.prod(sizes), heads + behind, head_dim), fill)[:, :heads]
        wide[torch.tensor(slots)] = packed(x, lengths)
        caches.append(wide.unflatten(0, sizes))
    return caches


STORES = {DENSE: _dense, PACKED: _packed, IN_USE: _in_use, CACHE: _cache, PAGED: _paged}


def _ends(lengths: Sequence[int]) -> Tensor:
    return _integers(0, *itertools.accumulate(lengths))


def _integers(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)
