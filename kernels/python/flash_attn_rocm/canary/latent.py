"""The check at first use of the kernels of latent attention."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import Inputs, Options
from flash_attn_rocm.arguments.packed_rows import CODE, GROUPS, NUMBERS, VALUE_DIM
from flash_attn_rocm.canary.calls import answer_problem, ended, moved
from flash_attn_rocm.canary.making import Call, hollow, made
from flash_attn_rocm.canary.rows import (
    CAUSAL,
    DENSE,
    E4M3FN,
    E4M3FNUZ,
    E5M2,
    FLAT,
    IN_USE,
    INT8,
    NONE,
    PAGED,
    TILE,
    Row,
)
from flash_attn_rocm.machine.remembered import Family
from flash_attn_rocm.reference import codes
from flash_attn_rocm.serving.layouts import Device

Latent = Callable[
    [Tensor, Tensor, Tensor | None, Tensor | None, Options, Device, Tensor | None], tuple[Tensor, Tensor]
]  # of q, the cache, its lengths, its blocks, and at the end its descales
REST = 64  # elements of K after the elements of V
PAGE = 48


class LatentRow(NamedTuple):
    """One call with ``rows`` queries per sequence, like ``canary.rows.Row`` with other stores.

    DENSE has all keys in use, IN_USE has lengths, PAGED has pages. ``codes``: the dtype of a cache of 8 bits.
    ``packed``: a cache in rows that hold their scales.
    """

    why: str
    rows: int
    keys: tuple[int, ...]
    heads: int
    window: tuple[int, int] = CAUSAL
    scale: float = 1.0
    store: str = DENSE
    parts: int = 1
    scores: tuple[float, float] = FLAT
    mixed: bool = False
    infinite: bool = False
    codes: str = ""
    per_key: bool = False
    packed: bool = False


# A workgroup has 16 rows of all heads and queries (CDNA: 64), in one or two blocks with separate loops. Most
# calls have both blocks, the second with one or two rows. Within a workgroup some queries see fewer keys than
# others. Rising scores move the maximum. Scores far apart or far below 0 take another way of scaling.
LATENT = (
    LatentRow("causal", 3, (97,), 22),
    LatentRow("all keys, in parts, scores that rise and fall", 2, (161, 161), 33, NONE, parts=3,
        scores=(0.0, 0.5)),
    LatentRow("lengths, negative scale, scores far below 0", 1, (129, 40, 1), 65, scale=-1.0, store=IN_USE,
        scores=(-1500.0, -0.5)),
    LatentRow("pages, in parts, infinite scores", 3, (161, 209, 97, 2), 22, store=PAGED, parts=3,
        infinite=True),
    LatentRow("pages, scores far apart", 5, (200, 70), 13, store=PAGED, scores=(0.0, 120.0), mixed=True),
    LatentRow("lengths, scale of 0", 2, (50, 0, 7), 3, NONE, scale=0.0, store=IN_USE),
    LatentRow("in many parts, scores that rise and fall", 1, (67 * TILE,), 2, parts=67,
        scores=(-2700.0, 1.1)),
)  # fmt: skip


# Over caches of 8 bits: a workgroup has 32 rows. Each format, with descales of sequences and of keys.
CODED_LATENT = (
    LatentRow("8 bits, causal, descales of keys", 3, (97,), 22, codes=E4M3FN, per_key=True),
    LatentRow("8 bits, all keys, in parts, scores that rise and fall", 2, (161, 161), 17, NONE, parts=3,
        scores=(0.0, 0.5), codes=E4M3FN),
    LatentRow("8 bits, lengths, negative scale", 1, (129, 40, 1), 33, scale=-1.0, store=IN_USE, codes=INT8),
    LatentRow("8 bits, pages, in parts, descales of keys", 3, (161, 209, 97, 2), 11, store=PAGED, parts=3,
        codes=INT8, per_key=True),
    LatentRow("8 bits, pages, scores far apart", 5, (200, 70), 7, store=PAGED, scores=(0.0, 120.0),
        mixed=True, codes=E5M2),
    LatentRow("8 bits, lengths, scale of 0", 2, (50, 0, 7), 3, NONE, scale=0.0, store=IN_USE, codes=E4M3FNUZ),
    LatentRow("8 bits, in many parts, descales of keys", 1, (67 * TILE,), 2, parts=67, scores=(0.0, 1.1),
        codes=E4M3FNUZ, per_key=True),
)  # fmt: skip

# Over rows of 656 bytes. Scales double every RISE keys, RISES - 1 times, and kernels follow the largest.
RISE, RISES = 37, 5
PACKED_LATENT = (
    LatentRow("rows of 656 bytes, causal", 3, (97,), 22, packed=True),
    LatentRow("rows of 656 bytes, all keys, in parts, scores that rise and fall", 2, (161, 161), 17, NONE,
        parts=3, scores=(0.0, 0.5), packed=True),
    LatentRow("rows of 656 bytes, lengths, negative scale", 1, (129, 40, 1), 33, scale=-1.0, store=IN_USE,
        packed=True),
    LatentRow("rows of 656 bytes, pages, in parts", 3, (161, 209, 97, 2), 11, store=PAGED, parts=3,
        packed=True),
    LatentRow("rows of 656 bytes, pages, scores far apart", 5, (200, 70), 7, store=PAGED,
        scores=(0.0, 120.0), mixed=True, packed=True),
    LatentRow("rows of 656 bytes, lengths, scale of 0", 2, (50, 0, 7), 3, NONE, scale=0.0, store=IN_USE,
        packed=True),
    LatentRow("rows of 656 bytes, in many parts", 1, (67 * TILE,), 2, parts=67, scores=(0.0, 1.1),
        packed=True),
)  # fmt: skip


def latent_problem(family: Family, answer: Latent, device: Device, where: torch.device) -> str:
    """The error in out and the log-sum-exp, or ""."""
    return _problem(LATENT, family, answer, device, where)


def coded_latent_problem(family: Family, answer: Latent, device: Device, where: torch.device) -> str:
    """Likewise, over caches of 8 bits."""
    return _problem(CODED_LATENT, family, answer, device, where)


def packed_latent_problem(family: Family, answer: Latent, device: Device, where: torch.device) -> str:
    """Likewise, over rows that hold their scales."""
    return _problem(PACKED_LATENT, family, answer, device, where)


def _problem(
    rows: Sequence[LatentRow], family: Family, answer: Latent, device: Device, where: torch.device
) -> str:
    for call in latent_calls(family, rows):
        inputs = Inputs(*(moved(x, where) for x in call.inputs))
        places = (inputs.seqused_k, inputs.block_table)
        given = (inputs.q, inputs.k, *places, call.options, device, inputs.k_descale)
        if problem := answer_problem(call, family, ended(where, lambda: answer(*given))):  # noqa: B023
            return problem
    return ""


def latent_calls(family: Family, latent: Sequence[LatentRow]) -> Iterator[Call]:
    """Small calls that execute all code of the kernels, on the CPU."""
    rows = [
        Row(row.why, (row.rows,) * len(row.keys), row.keys, (row.heads, 1), row.window, row.scale,
            parts=row.parts, scores=row.scores, mixed=row.mixed, infinite=row.infinite)
        for row in latent
    ]  # fmt: skip
    return (_stored(call, row) for call, row in zip(made(rows, family), latent, strict=True))


def _stored(call: Call, row: LatentRow) -> Call:
    """The call with keys in the row's store. Their first elements are the values."""
    numbers = call.padded.k
    if row.codes:
        k, numbers, where = _coded(call, row)
    elif row.packed:
        k, numbers, where = _packed(call, row)
    else:
        k, where = STORES[row.store](call, numbers)
    width = numbers.shape[-1] - REST
    inputs = Inputs(call.padded.q.contiguous(), k, k[..., :width], **where)
    padded = call.padded._replace(k=numbers, v=numbers[..., :width])
    return call._replace(inputs=inputs, padded=padded)


def _coded(call: Call, row: LatentRow) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """The cache of codes, the numbers that kernels take them for, and other tensors of the call."""
    x, dtype = call.padded.k.float(), getattr(torch, row.codes)
    of_keys = codes.own_descales(x, dtype)
    descale = of_keys if row.per_key else of_keys.amax(1)
    of = of_keys[..., None] if row.per_key else descale[:, None, :, None]
    encoded = codes.encode(x, of, dtype)
    bits, where = STORES[row.store](call, encoded.view(torch.uint8))
    if row.per_key:
        descale = STORES[row.store](call, of)[0][..., 0]
    return bits.view(dtype), codes.decode(encoded) * of, where | {"k_descale": descale}


def _packed(call: Call, row: LatentRow) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """The cache in rows, and the numbers of their bytes."""
    x = call.padded.k.float()
    groups, rest = x[..., :VALUE_DIM].unflatten(-1, (GROUPS, -1)), x[..., VALUE_DIM:].to(NUMBERS)
    rises = torch.exp2((torch.arange(x.shape[1]) // RISE % RISES).float())
    scales = codes.own_descales(groups, CODE) * rises[:, None, None]
    encoded = codes.encode(groups, scales[..., None], CODE)
    numbers = (codes.decode(encoded) * scales[..., None]).flatten(-2)
    parts = (encoded.flatten(-2), scales, rest.contiguous())
    k, where = STORES[row.store](call, torch.cat([part.view(torch.uint8) for part in parts], -1))
    return k, torch.cat((numbers, rest.float()), -1), where


def _dense(_call: Call, k: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    return k, {}


def _in_use(call: Call, k: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Dense keys of a larger capacity, with NaN behind those in use."""
    lengths, capacity = call.keys, max(call.keys) + len(call.keys)
    slots = [b * capacity + at for b, length in enumerate(lengths) for at in range(length)]
    (k,) = hollow((k,), lengths, slots, len(lengths), capacity)
    return k, {"seqused_k": torch.tensor(lengths, dtype=torch.int32)}


def _paged(call: Call, k: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Pages in the reverse order."""
    lengths = call.keys
    blocks = [-(-length // PAGE) for length in lengths]
    firsts = [sum(blocks[b:]) for b in range(len(blocks))]
    table = torch.full((len(lengths), max(blocks)), -1, dtype=torch.int32)
    slots = []
    for b, (first, length) in enumerate(zip(firsts, lengths, strict=True)):
        table[b, : blocks[b]] = torch.arange(first, first - blocks[b], -1)
        slots += [(first - at // PAGE) * PAGE + at % PAGE for at in range(length)]
    (k,) = hollow((k,), lengths, slots, sum(blocks) + 1, PAGE)
    return k, {"block_table": table, "seqused_k": torch.tensor(lengths, dtype=torch.int32)}


STORES = {DENSE: _dense, IN_USE: _in_use, PAGED: _paged}
