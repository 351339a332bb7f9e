"""A decode's results on the emulator, compared with float64: few queries whose heads share keys.

The kernel answers with all keys, or with parts of them, which are joined here as ``fa_combine_*`` does.
"""

import ctypes
import math
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from wheel_builder.extras.perf.measure import Subject
from wheel_builder.extras.perf.workloads.coded import DESCALE, FORMAT, finite_codes
from wheel_builder.extras.tune.rows import Kernel
from wheel_builder.machine_code.emulator.attention import (
    Call,
    Case,
    Descales,
    Grid,
    Tensor,
    compare,
    make_call,
    with_codes,
)
from wheel_builder.machine_code.emulator.formats import encode, values_of_codes
from wheel_builder.machine_code.emulator.machine import Launch, Options
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import Workgroup

PARTS, HEADS = 2, 2
PARAMS = "FwdParams"
ROW_BYTES = 16  # rows of codes begin at multiples of it


class Parts(NamedTuple):
    """Answers of parts of the keys: out and log-sum-exp, by part, head and query."""

    out: Memory
    lse: Memory


def cases_of(kernel: Kernel, tile: Workgroup, step: int) -> tuple[tuple[Case, int], ...]:
    """Calls with their number of parts: rows of two workgroups, tiles for each wave and a part of one."""
    waves = tile.threads // arch_named(kernel.arch).isa.wave
    rows, keys = tile.rows // HEADS + 3, 2 * waves * step + 9
    own: dict[str, Any] = {"nheads": HEADS, "nheads_k": 1}
    return (
        (Case(kernel.dtype, kernel.head_dim, rows, keys, **own), 1),
        (Case(kernel.dtype, kernel.head_dim, 5, keys + step, causal=True, pad=8, seed=1, **own), PARTS),
    )


class Given(NamedTuple):
    """What a kernel is given. ``call``: the numbers of its tensors, and where its results are.

    ``coded``: the same call with codes as k and v, and the descales of both.
    """

    call: Call
    coded: Call
    descales: tuple[Descales, ...] = ()

    def kernarg(self, grid: Grid, parts: Parts, splits: int) -> bytes:
        plain = _with_parts(self.coded.kernarg(grid), parts, splits, self.call.case)
        return with_codes(plain, FORMAT, *self.descales) if self.descales else plain

    @property
    def memory(self) -> tuple[Memory, ...]:
        return (*self.coded.memory, *(each.memory for each in self.descales))


def problems(subject: Subject, kernel: Kernel, tile: Workgroup, step: int) -> Iterator[str]:
    for case, splits in cases_of(kernel, tile, step):
        call = make_call(case)
        yield from _problems(subject, kernel, tile, Given(call, call), splits)


def coded_problems(subject: Subject, kernel: Kernel, tile: Workgroup, step: int) -> Iterator[str]:
    """Over a cache of 8 bits."""
    for case, splits in cases_of(kernel, tile, step):
        given = with_coded_cache(make_call(replace(case, pad=ROW_BYTES * bool(case.pad))))
        yield from _problems(subject, kernel, tile, given, splits)


def with_coded_cache(call: Call) -> Given:
    """Random codes, with a descale of all keys. Their products are numbers of the call's dtype."""
    case, values = call.case, values_of_codes(FORMAT)
    draw = random.Random(case.seed)  # noqa: S311  (test data, repeatable)

    def both(name: str) -> tuple[Tensor, Tensor]:
        size = len(call.k.memory.read()) // 2
        codes = draw.choices(finite_codes(), k=size)
        numbers = encode([values[code] * DESCALE for code in codes], case.dtype)
        memories = (Memory.of(data, name, readonly=True) for data in (numbers, bytes(codes)))
        one, other = (Tensor(name, case, case.seqlen_k, case.nheads_k, memory) for memory in memories)
        return one, other

    (k, k_codes), (v, v_codes) = both("k"), both("v")
    descales = (
        Descales(Memory.of(struct.pack("<f", DESCALE), f"{name}_descale", readonly=True), (1, 0, 1))
        for name in ("k", "v")
    )
    return Given(replace(call, k=k, v=v), replace(call, k=k_codes, v=v_codes), tuple(descales))


def _problems(subject: Subject, kernel: Kernel, tile: Workgroup, given: Given, splits: int) -> Iterator[str]:
    call, case = given.call, given.call.case
    grid = (-(-case.seqlen_q * HEADS // tile.rows) * splits, case.nheads_k, 1)
    parts = _parts(case, splits)
    memory = [*given.memory, *(parts if splits > 1 else ())]
    launch = Launch(grid, (tile.threads, 1, 1))
    run = subject.machine.run(kernel.name, launch, given.kernarg(grid, parts, splits), memory, Options())
    yield from filter(None, [run.error, *map(str, run.findings)])
    if splits > 1:
        _join(call, parts, splits)
    if (first := compare(call).first) is not None:
        where = f"{first.what}{list(first.index)} of {splits} parts"
        yield f"{where} is {first.found:g}, expected {first.expected:g}"


def _parts(case: Case, splits: int) -> Parts:
    lse = 4 * splits * case.nheads * case.seqlen_q
    return Parts(Memory.output(lse * case.head_dim, "partial_out"), Memory.output(lse, "partial_lse"))


def _with_parts(kernarg: bytes, parts: Parts, splits: int, case: Case) -> bytes:
    if splits == 1:
        return kernarg
    params = layout(PARAMS)
    names = [scalar.name for scalar in params.scalars]
    given = dict(zip(names, params.unpack(kernarg), strict=True))
    given |= {"partial_out": parts.out.address, "partial_lse": parts.lse.address, "splits": splits}
    return params.pack({**given, "partial_split": case.nheads * case.seqlen_q})


def _join(call: Call, parts: Parts, splits: int) -> None:
    """Into out and lse of the call. A part without a visible key has a log-sum-exp of -inf."""
    case, flat = call.case, [0.0] * (len(call.out.memory.read()) // 2)
    outs, lses = parts.out.values("f"), parts.lse.values("f")
    rows, whole = case.nheads * case.seqlen_q, []
    for row in range(rows):
        every = [(lses[part * rows + row], part * rows + row) for part in range(splits)]
        seen = [(lse, at * case.head_dim) for lse, at in every if lse != -math.inf]
        joined, lse = _joined([(lse, outs[at : at + case.head_dim]) for lse, at in seen], case.head_dim)
        head, query = divmod(row, case.seqlen_q)
        at = query * call.out.row + head * call.out.head
        flat[at : at + case.head_dim] = joined
        whole.append(lse)
    _write(call.out.memory, encode(flat, case.dtype))
    _write(call.lse, (ctypes.c_float * rows)(*whole))


def _joined(parts: Sequence[tuple[float, Sequence[float]]], head_dim: int) -> tuple[Sequence[float], float]:
    if not parts:
        return [0.0] * head_dim, math.inf
    top = max(lse for lse, _ in parts)
    weights = [math.exp(lse - top) for lse, _ in parts]
    total = math.fsum(weights)
    columns = zip(*(out for _, out in parts), strict=True)
    out = [sum(w * x for w, x in zip(weights, column, strict=True)) / total for column in columns]
    return out, top + math.log(total)


def _write(memory: Memory, data: object) -> None:
    raw = bytes(data)  # type: ignore[call-overload]
    ctypes.memmove(memory.address, raw, len(raw))
    memory.initialised = True
