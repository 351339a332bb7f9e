"""A decode's results on the emulator, compared with float64: few queries whose heads share keys.

The kernel answers with all keys, or with parts of them, which are joined here as ``fa_combine_*`` does.
"""

import ctypes
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from wheel_builder.extras.perf.measure import Subject
from wheel_builder.extras.tune.rows import Kernel
from wheel_builder.machine_code.emulator.attention import Call, Case, compare, make_call
from wheel_builder.machine_code.emulator.formats import encode
from wheel_builder.machine_code.emulator.machine import Launch, Options
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import Workgroup

PARTS, HEADS = 2, 2
PARAMS = "FwdParams"


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


def problems(subject: Subject, kernel: Kernel, tile: Workgroup, step: int) -> Iterator[str]:
    for case, splits in cases_of(kernel, tile, step):
        call = make_call(case)
        grid = (-(-case.seqlen_q * HEADS // tile.rows) * splits, case.nheads_k, 1)
        parts = _parts(case, splits)
        kernarg = _with_parts(call.kernarg(grid), parts, splits, case)
        memory = [*call.memory, *(parts if splits > 1 else ())]
        launch = Launch(grid, (tile.threads, 1, 1))
        run = subject.machine.run(kernel.name, launch, kernarg, memory, Options())
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
