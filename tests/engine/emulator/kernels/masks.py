"""fa_fwd_masked_* on the emulator: calls with a mask or a bias of any form, and float64 references."""

import math
import random
import struct
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from wheel_builder.machine_code.emulator.attention import (
    HIDES,
    Case,
    has_ranges,
    make_call,
    shown_keys,
    with_mask,
)
from wheel_builder.machine_code.emulator.formats import decode, encode
from wheel_builder.machine_code.emulator.machine import Launch, Options
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.machine_code.emulator.reference import dot
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import workgroup_of

LEAST = {"fp16": -65504.0, "bf16": -3.3895313892515355e38, "fp32": -3.4028234663852886e38}
BLOCK = 33  # keys of a block in block-diagonal masks
CLAMPED = -1e30  # replaces finite biases below it, in kernels whose products start from the softmax's shift


@dataclass(frozen=True)
class Masked:
    """A call and its mask. The mask is constant along the dimensions named in ``broadcast`` (of "bhi").

    ``hides``: rows without keys, left or right halves of the keys, keys of another block or after the row,
    nothing, all, one of one row, or "" (half of the keys, at random). ``by``: the number that hides in a
    bias.
    """

    case: Case
    kind: str
    broadcast: str = ""
    hides: str = ""
    by: float = -math.inf
    window: tuple[int, int] = (-1, -1)

    @property
    def kernel(self):
        return f"fa_fwd_masked_{self.case.dtype}_d{self.case.head_dim}"

    @property
    def sizes(self):
        case = self.case
        whole = {"b": case.batch, "h": case.nheads, "i": case.seqlen_q}
        return [1 if name in self.broadcast else size for name, size in whole.items()]

    @property
    def keys(self):
        return -(-self.case.seqlen_k // 8) * 8


def drawn(masked):
    """The mask's rows by (batch, head, row), as addends of scores."""
    draw = random.Random(masked.case.seed + 1)
    keys = masked.case.seqlen_k
    rows = {}
    for at in product(*map(range, masked.sizes)):
        place = at[2] * keys // masked.sizes[2]  # the row's on the diagonal
        blind = masked.hides == "rows" and draw.random() < 0.3
        row = []
        for key in range(masked.keys):
            hidden = {
                "": draw.random() < 0.5,
                "left": key <= keys // 2,
                "right": key >= keys // 2,
                "rows": blind,
                "other blocks": key // BLOCK != place // BLOCK,
                "later": key > place,
                "none": False,
                "all": True,
                "one": (key, at[2]) == (BLOCK, 3),
            }[masked.hides]
            value = 0.0 if masked.kind == "bytes" else draw.gauss(0.0, 2.0)
            row.append((-math.inf if masked.kind == "bytes" else masked.by) if hidden else value)
        rows[at] = row
    return rows


def memory_of(masked, rows):
    """The mask in memory, and its rows as they are there."""
    flat = [value for row in rows.values() for value in row]
    if masked.kind == "bytes":
        data = bytes(int(value == 0.0) for value in flat)
    elif masked.kind == "fp32":
        data = struct.pack(f"{len(flat)}f", *flat)
        flat = list(struct.unpack(f"{len(flat)}f", data))
    else:
        data = encode(flat, masked.case.dtype)
        flat = list(decode(data, masked.case.dtype))
    width = masked.keys
    kept = {at: flat[n * width : (n + 1) * width] for n, at in enumerate(rows)}
    return Memory.of(data, "mask", readonly=True), kept


def inputs(masked):
    """A call before its run, the mask in memory, and its rows as stored."""
    return make_call(masked.case), *memory_of(masked, drawn(masked))


def run(machine, ranges, arch, masked):
    """The finished call. ``ranges`` has the kernel for the ranges of a mask's visible keys."""
    case = masked.case
    call, memory, _ = inputs(masked)
    inner = layout("FwdParams")
    given = dict(zip((s.name for s in inner.scalars), inner.unpack(call.kernarg()), strict=True))
    given |= {"window_left": masked.window[0], "window_right": masked.window[1]}
    sizes = masked.sizes
    steps = [masked.keys * math.prod(sizes[n + 1 :]) if sizes[n] > 1 else 0 for n in range(3)]
    kernarg = with_mask(inner.pack(given), memory, masked.kind, steps)
    if has_ranges(masked.kind, steps):
        whole, group = (case.batch, case.nheads, case.seqlen_q), arch_named(arch).isa.step_columns
        out = (call.out.memory, (call.out.batch, call.out.head, call.out.row))
        dtype = "bool" if masked.kind == "bytes" else case.dtype
        find_ranges(ranges, group, whole, case.seqlen_k, (memory, steps, dtype), out)
        call.out.memory.initialised = True
    tile = workgroup_of(arch_named(arch), "fwd_masked", case.dtype, case.head_dim)
    launch = Launch((-(-case.seqlen_q // tile.rows), case.nheads, case.batch), (tile.threads, 1, 1))
    result = machine.run(masked.kernel, launch, kernarg, [*call.memory, memory], Options(seed=1))
    assert not result.error
    assert not result.findings, "\n".join(map(str, result.findings))
    return call


def find_ranges(machine, group, whole, keys, mask, out):
    """Run fa_mask_ranges_fp16, compare its results in ``out``, and check for other writes.

    ``whole`` are the call's sequences, heads and rows. ``mask`` and ``out`` are each a memory and its strides
    along these, in elements. ``mask`` also has its dtype. A wave of the reading kernel has ``group`` rows.
    """
    (batch, heads, rows), (memory, steps, dtype), (results, out_steps) = whole, mask, out
    hides = HIDES[dtype]
    size = len(hides)
    kernarg = layout("MaskRangesParams").pack({
        "mask": memory.address, "out": results.address,
        **dict(zip(("mask_batch", "mask_head", "mask_row"), steps, strict=True)),
        **dict(zip(("o_batch", "o_head", "o_row"), out_steps, strict=True)),
        "seqlen_q": rows, "seqlen_k": keys, "nheads": heads, "batch": batch,
        "shift": size - 1, "hidden": int.from_bytes(hides * (4 // size), "little"),
    })  # fmt: skip
    sizes = (-(-rows // group), heads, batch)
    grid = tuple(size if step else 1 for size, step in zip(sizes, reversed(steps), strict=True))
    launch = Launch(grid, (256, 1, 1))
    result = machine.run("fa_mask_ranges_fp16", launch, kernarg, [results, memory], Options(seed=1))
    assert not result.error
    assert not result.findings, "\n".join(map(str, result.findings))
    data, width = memory.read(), -(-keys // 8) * 8 * size
    wanted = bytearray(b"\xa5" * results.size)
    for b, h, first in product(range(batch), range(heads), range(0, rows, group)):
        of_wave = range(first, min(first + group, rows))
        begins = [(b * steps[0] + h * steps[1] + i * steps[2]) * size for i in of_wave]
        at = 2 * (b * out_steps[0] + h * out_steps[1] + first * out_steps[2])
        wanted[at : at + 16] = shown_keys([data[begin : begin + width] for begin in begins], hides)
    assert results.read() == bytes(wanted), (whole, keys, steps)


@lru_cache(maxsize=1)  # one call is tested on all archs in turn
def exact(masked):
    """Rows of out and their log-sum-exps by (batch, head, row), in float64."""
    case = masked.case
    left, right = masked.window
    call, _, rows = inputs(masked)
    q, k, v = (each.values() for each in (call.q, call.k, call.v))
    found = []
    keys = range(case.seqlen_k)
    for b, h in product(range(case.batch), range(case.nheads)):
        head_k = h // (case.nheads // case.nheads_k)
        rows_k = [call.k.at(k, b, j, head_k) for j in keys]
        columns_v = list(zip(*(call.v.at(v, b, j, head_k) for j in keys), strict=True))
        for i in range(case.seqlen_q):
            at = tuple(0 if name in masked.broadcast else n for name, n in zip("bhi", (b, h, i), strict=True))
            query, diagonal = call.q.at(q, b, i, h), i + case.seqlen_k - case.seqlen_q
            scores = [-math.inf] * case.seqlen_k
            for j in keys:
                if (left < 0 or j >= diagonal - left) and (right < 0 or j <= diagonal + right):
                    scores[j] = case.scale * dot(query, rows_k[j]) + rows[at][j]
            most = max(scores, default=-math.inf)
            if most == -math.inf:
                found.append(((b, h, i), [0.0] * case.head_dim, math.inf))
                continue
            weights = [math.exp(score - most) for score in scores]
            total = sum(weights)
            out = [dot(weights, column) / total for column in columns_v]
            found.append(((b, h, i), out, most + math.log(total)))
    return found
