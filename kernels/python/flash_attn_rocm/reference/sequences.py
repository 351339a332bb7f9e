"""Cuts a batch into dense parts: reads lengths and indices on the host and checks them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from flash_attn_rocm.arguments.checks import refuse
from flash_attn_rocm.arguments.normal_form import Inputs, Options
from flash_attn_rocm.reference.codes import decode, is_coded
from flash_attn_rocm.serving.capture import refuse_capture

Where = tuple[slice, ...]
ALL = slice(None)


class Part(NamedTuple):
    """The sequences with indices ``sequences``, all of one length.

    ``queries`` and ``lse`` index q and the log-sum-exp. ``keys`` index k and v, unless ``blocks`` gives the
    pages of a cache. These hold the keys ``span``.
    """

    sequences: slice
    queries: Where
    lse: Where
    keys: Where
    blocks: Tensor | None = None
    span: slice = ALL

    def rows_of(self, q: Tensor) -> Tensor:
        """(sequences, seqlen_q, nheads, headdim), a view of a tensor shaped like q."""
        return _four(q[self.queries])

    def lse_of(self, lse: Tensor) -> Tensor:
        """(sequences, nheads, seqlen_q) of the log-sum-exp: a view."""
        rows = lse[self.lse]
        return rows if rows.dim() == 3 else rows[None]

    def keys_of(self, k: Tensor) -> Tensor:
        """(sequences, seqlen_k, nheads_k, headdim) of k or v: a view, except of pages."""
        if self.blocks is None:
            return _four(k[self.keys])
        return k[self.blocks].flatten(0, 1)[self.span][None]

    def values_of(self, k: Tensor, descale: Tensor | None, dtype: torch.dtype) -> Tensor:
        """``keys_of`` k or v. Codes of 8 bits become numbers of ``dtype``, times their descales."""
        if not is_coded(k):
            return self.keys_of(k)
        # PyTorch indexes few tensors of such dtypes.
        numbers = decode(self.keys_of(k.view(torch.uint8)).view(k.dtype)).to(dtype)
        if descale is None:
            return numbers
        of_keys = descale.dim() > 2
        own = self.keys_of(descale[..., None]) if of_keys else descale[self.sequences][:, None, :, None]
        return numbers.mul_(own)

    def slopes_of(self, slopes: Tensor | None) -> Tensor | None:
        """(nheads) or (sequences, nheads) of alibi_slopes."""
        return slopes if slopes is None or slopes.dim() == 1 else slopes[self.sequences]


class _Values(NamedTuple):
    """The values of the integer tensors. Empty for missing tensors."""

    cu_q: list[int]
    cu_k: list[int]
    used: list[int]
    pad: list[int]
    table: list[list[int]]
    cache_rows: list[int]


class _Sequence(NamedTuple):
    """One sequence: the place of its queries, and of its keys after ``base``, which has ``room`` rows."""

    rows: slice
    base: int
    begin: int
    end: int
    room: int


def parts(inputs: Inputs, options: Options) -> tuple[Part, ...]:
    """The sequences. Raises FlashAttnArgumentError if lengths or indices point outside of the tensors."""
    if all(tensor is None for tensor in inputs.integers):
        return (Part(slice(0, inputs.batch), (ALL,), (ALL,), (ALL,)),)
    refuse_capture(inputs)
    values = _Values(*([] if x is None else x.tolist() for x in inputs.integers))
    refuse("attention", [*_cumulative_problems(inputs, values)])
    sequences = [*_sequences(inputs, values)]
    refuse("attention", [*_problems(inputs, options, values, sequences)])
    return tuple(_part(inputs, values, b, sequence) for b, sequence in enumerate(sequences))


def index_problem(name: str, indices: Sequence[int], end: int, what: str) -> Iterator[str]:
    """The first index outside of 0 to ``end`` - 1."""
    wrong = next((index for index in indices if not 0 <= index < end), None)
    if wrong is not None:
        yield f"{name}: expected indices of {what}, which are below {end}, got {wrong}"


def _cumulative_problems(inputs: Inputs, values: _Values) -> Iterator[str]:
    if inputs.cu_seqlens_q is not None:
        yield from _cumulative("cu_seqlens_q", values.cu_q, inputs.q.shape[0])
        total = inputs.k.shape[0] if inputs.block_table is None else None
        yield from _cumulative("cu_seqlens_k", values.cu_k, total)


def _cumulative(name: str, ends: Sequence[int], total: int | None) -> Iterator[str]:
    if ends[0] != 0:
        yield f"{name}: expected 0 first, got {ends[0]}"
    fall = next((i for i in range(1, len(ends)) if ends[i] < ends[i - 1]), None)
    if fall is not None:
        yield f"{name}: expected values that do not fall, got {ends[fall]} after {ends[fall - 1]}"
    elif total is not None and ends[-1] > total:
        yield f"{name}: expected at most the number of rows, {total}, last, got {ends[-1]}"


def _sequences(inputs: Inputs, values: _Values) -> Iterator[_Sequence]:
    cu_q, cu_k, used, pad = values[:4]
    paged = inputs.block_table is not None
    for b in range(inputs.batch):
        rows = slice(cu_q[b], cu_q[b + 1]) if cu_q else ALL
        length = cu_k[b + 1] - cu_k[b] if cu_k else inputs.key_capacity
        base = cu_k[b] if cu_k and not paged else 0
        room = length if cu_k and not paged else inputs.key_capacity
        yield _Sequence(rows, base, pad[b] if pad else 0, used[b] if used else length, room)


def _problems(
    inputs: Inputs, options: Options, values: _Values, sequences: Sequence[_Sequence]
) -> Iterator[str]:
    length_name = "cache_seqlens" if values.used else "cu_seqlens_k"
    for b, (rows, _, begin, end, room) in enumerate(sequences):
        if rows is not ALL and rows.stop - rows.start > options.max_seqlen_q:
            yield f"max_seqlen_q: expected {rows.stop - rows.start} or more, got {options.max_seqlen_q}"
        if not 0 <= end <= room:
            most = f"{room} keys, as block_table has pages for" if values.table else f"{room} keys"
            yield f"{length_name}: expected at most {most}, got {end} for sequence {b}"
        elif not 0 <= begin <= end:
            yield f"cache_leftpad: expected 0 to the sequence's {end} keys, got {begin} for sequence {b}"
        elif end - begin > options.max_seqlen_k:
            yield f"max_seqlen_k: expected {end - begin} or more, got {options.max_seqlen_k}"
        elif values.table:
            used = values.table[b][: _pages(inputs, end)]
            yield from index_problem("block_table", used, inputs.k.shape[0], "the cache's blocks")
    yield from index_problem("cache_batch_idx", values.cache_rows, inputs.k.shape[0], "the cache's rows")


def _part(inputs: Inputs, values: _Values, b: int, sequence: _Sequence) -> Part:
    rows, base, begin, end, _ = sequence
    one, keys = slice(b, b + 1), slice(base + begin, base + end)
    queries, lse = ((rows,), (ALL, rows)) if values.cu_q else ((one,), (one,))
    if inputs.block_table is not None:
        return Part(one, queries, lse, (), inputs.block_table[b, : _pages(inputs, end)], keys)
    row = values.cache_rows[b] if values.cache_rows else b
    return Part(one, queries, lse, (keys,) if values.cu_k else (slice(row, row + 1), keys))


def _pages(inputs: Inputs, end: int) -> int:
    page = inputs.k.shape[1]
    return -(-end // page) if page else 0


def _four(tensor: Tensor) -> Tensor:
    return tensor if tensor.dim() == 4 else tensor[None]
