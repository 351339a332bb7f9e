"""fa_fwd_fp8_* on the emulator: calls, and float64 references on the numbers of the codes."""

import math
import random
import struct
from dataclasses import dataclass
from itertools import product

from tests.engine.emulator.kernels.coded import fp32
from wheel_builder.machine_code.emulator.attention import HARDWARES, Descales, with_fp8
from wheel_builder.machine_code.emulator.formats import decode, nearest, values_of_codes
from wheel_builder.machine_code.emulator.machine import Launch, Options
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.machine_code.emulator.reference import dot
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import workgroup_of

KERNEL = "fa_fwd_fp8_bf16_d{}"


@dataclass(frozen=True)
class Fp8:
    """A call. ``queries`` and ``keys`` of each sequence.

    ``values``: "normal", "codes" (every finite code), "outliers" (a few channels of k, an offset of v),
    "sinks" (the first key takes most of each row, and its value is small), "rising" (scores), "large"
    (scores of millions, which rise by a unit or two of fp32 from a tile to the next) or "zeros" (codes of 0
    and -0).
    """

    code: str = "e4m3fn"
    queries: tuple = (70,)
    keys: tuple = (70,)
    heads: tuple = (1, 1)
    ragged: bool = False
    descales: bool = True
    window: tuple = (-1, -1)
    sinks: bool = False
    values: str = "normal"
    scale: float = 128**-0.5
    seed: int = 0
    width: int = 128  # the head dim


class Call:
    """The memory of a call before its run."""

    def __init__(self, case):
        self.case, self.random, self.width = case, random.Random(case.seed), case.width
        self.batch, (self.nheads, self.nheads_k) = len(case.keys), case.heads
        self.values = values_of_codes(case.code)
        self.memory, self.codes, self.descale = {}, {}, {}
        for name, heads, rows in (
            ("q", self.nheads, case.queries), ("k", self.nheads_k, case.keys), ("v", self.nheads_k, case.keys)
        ):  # fmt: skip
            scales = [fp32(2.0 ** self.random.uniform(-6, -4)) for _ in range(self.batch * self.nheads_k)]
            self.descale[name] = scales if case.descales else [1.0] * len(scales)
            if case.descales:
                self.given(f"{name}_descale", struct.pack(f"<{len(scales)}f", *scales))
            count = sum(rows) if case.ragged else self.batch * max(rows)
            self.codes[name] = self._drawn(name, count, heads)
            self.given(name, bytes(self.codes[name]))
        rows = (sum(case.queries) if case.ragged else self.batch * max(case.queries)) * self.nheads
        self.memory["out"] = Memory.output(rows * self.width * 2, "out")
        self.memory["lse"] = Memory.output(rows * 4, "lse")
        if case.sinks:
            self.given("sink", struct.pack(f"<{self.nheads}f", *(0.5 - n for n in range(self.nheads))))

    def given(self, name, data):
        self.memory[name] = Memory.of(data, name, readonly=True)

    def _drawn(self, name, rows, heads):
        case, count = self.case, rows * heads * self.width
        if case.values == "zeros":
            return [0x80 * (case.code == "e4m3fn" and self.random.random() < 0.5) for _ in range(count)]
        if case.values == "codes":
            finite = [n for n, value in enumerate(self.values) if math.isfinite(value)]
            step = {"q": 7, "k": 11, "v": 1}[name]
            return [finite[n * step % len(finite)] for n in range(count)]
        find, size = nearest(case.code), 2.0**-5 if case.descales else 1
        return [find(self._number(name, n, heads) / size) for n in range(count)]

    def _number(self, name, n, heads):
        x, values, row = self.random.gauss(0, 1), self.case.values, n // (heads * self.width)
        first = row == 0
        if values == "outliers" and name == "k" and n % self.width in {3, 40, 77, 111}:
            return x + 9
        if values == "outliers" and name == "v":
            return x + 2
        if values == "rising" and name != "v":
            return x / 4 + (1 if name == "q" else row / 512)
        if values == "large" and name != "v":
            return 448 if n % self.width else 1 if name == "q" else row // 64 * 4
        if values == "sinks":
            if name == "q":
                return x + 1
            if first:
                return 0.7 if name == "k" else x / 64
        return x

    def begins(self, lengths):
        return [sum(lengths[:n]) if self.case.ragged else n * max(lengths) for n in range(self.batch)]

    def row(self, name, b, row, head):
        """A row's numbers, times their descale."""
        lengths = self.case.queries if name == "q" else self.case.keys
        heads = self.nheads if name == "q" else self.nheads_k
        at = ((self.begins(lengths)[b] + row) * heads + head) * self.width
        scale = self.descale[name][b * self.nheads_k + head // (heads // self.nheads_k)]
        return [self.values[code] * scale for code in self.codes[name][at : at + self.width]]

    def kernarg(self, grid):
        case = self.case
        rows, keys = max(case.queries), max(case.keys)
        lengths = {}
        if case.ragged:
            for name, found in (("q", case.queries), ("k", case.keys)):
                ends = [sum(found[:n]) for n in range(self.batch + 1)]
                self.given(f"cu_seqlens_{name}", struct.pack(f"<{self.batch + 1}i", *ends))
                lengths[f"cu_seqlens_{name}"] = self.memory[f"cu_seqlens_{name}"].address
        if case.sinks:
            lengths["sink"] = self.memory["sink"].address
        words = self.width // 2
        q_row, k_row, o_row = self.nheads * words, self.nheads_k * words, self.nheads * self.width
        all_rows = sum(case.queries) if case.ragged else rows
        fields = {
            **{name: self.memory[name].address for name in ("q", "k", "v", "out", "lse")}, **lengths,
            "q_batch": rows * q_row, "q_row": q_row, "q_head": words,
            "k_batch": keys * k_row, "k_row": k_row, "k_head": words,
            "v_batch": keys * k_row, "v_row": k_row, "v_head": words,
            "o_batch": rows * o_row, "o_row": o_row, "o_head": self.width,
            "lse_batch": 0 if case.ragged else self.nheads * rows, "lse_head": all_rows,
            "seqlen_q": rows, "seqlen_k": keys, "rows_q": all_rows,
            "rows_k": sum(case.keys) if case.ragged else keys, "batch_k": self.batch,
            "nheads": self.nheads, "nheads_k": self.nheads_k, "splits": 1,
            "window_left": case.window[0], "window_right": case.window[1],
            "scale": case.scale, "dropout_scale": 1.0, "rare": 2 if case.ragged else 0,
            **HARDWARES.fields(grid),
        }  # fmt: skip
        steps = (self.nheads_k, 0, 1)
        names = [f"{name}_descale" for name in "qkv" if case.descales]
        descales = {name: Descales(self.memory[name], steps) for name in names}
        return with_fp8(layout("FwdParams").pack(fields), case.code, descales)


def run(machine, arch, case, **options):
    """The finished call."""
    call = Call(case)
    tile = workgroup_of(arch_named(arch), "fwd_fp8", "bf16", case.width)
    grid = (-(-max(case.queries) // tile.rows), call.nheads, call.batch)
    kernarg = call.kernarg(grid)
    result = machine.run(
        KERNEL.format(case.width), Launch(grid, (tile.threads, 1, 1)), kernarg, list(call.memory.values()),
        Options(seed=1, **options),
    )  # fmt: skip
    assert not result.error, result.error
    assert not result.findings, "\n".join(map(str, result.findings))
    call.result = result
    return call


def exact(call, b, head, query):
    """out, the log-sum-exp and out of the magnitudes of v, of a row in float64."""
    case = call.case
    keys, head_k = case.keys[b], head // (call.nheads // call.nheads_k)
    diagonal = query + keys - case.queries[b]
    left, right = case.window
    shown = [
        j for j in range(keys) if (left < 0 or j >= diagonal - left) and (right < 0 or j <= diagonal + right)
    ]
    if not shown:
        return [0.0] * case.width, math.inf, [0.0] * case.width
    q = call.row("q", b, query, head)
    scores = [dot(q, call.row("k", b, j, head_k)) * case.scale for j in shown]
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    total = math.fsum(powers) + (math.exp(0.5 - head - top) if case.sinks else 0.0)
    values = [call.row("v", b, j, head_k) for j in shown]
    columns = [*zip(*values, strict=True)]
    out, sizes = (
        [dot(powers, each) / total for each in of] for of in (columns, [[*map(abs, x)] for x in columns])
    )
    return out, math.log(total) + top, sizes


def results(call, step=1):
    """(place, row of out, log-sum-exp) of each row, or of one in ``step``."""
    case = call.case
    out, lse = decode(call.memory["out"].read(), "bf16"), call.memory["lse"].values("f")
    all_rows = sum(case.queries) if case.ragged else max(case.queries)
    for b, h in product(range(call.batch), range(call.nheads)):
        for i in range(0, case.queries[b], step):
            row = call.begins(case.queries)[b] + i
            at = (row * call.nheads + h) * case.width
            of_batch = 0 if case.ragged else b * call.nheads * all_rows
            place = of_batch + h * all_rows + (row if case.ragged else i)
            yield (b, h, i), out[at : at + case.width], lse[place]
