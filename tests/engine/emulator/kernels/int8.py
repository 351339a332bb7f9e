"""fa_quantise_* and fa_fwd_int8_* on the emulator: codes, calls, and float64 references."""

import math
import random
import struct
from dataclasses import dataclass
from itertools import product

from tests.engine.emulator.kernels.coded import fp32
from wheel_builder.machine_code.emulator.attention import HARDWARES
from wheel_builder.machine_code.emulator.formats import decode, encode, values_of_codes
from wheel_builder.machine_code.emulator.machine import Launch, Options
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.machine_code.emulator.reference import dot
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import workgroup_of

QUANTISE, FORWARD = "fa_quantise_{}", "fa_fwd_int8_{}_d{}"
KEYS_OF_SCALE, ROWS = 32, 256  # kKeysOfScale, kQuantisedRows
THREADS = 256
# Elements of q and k, and of k's row 37 if it has others: scores up to 10^10 times softmax_scale. A step of
# int8 is then far more than the exponents of fp32.
HUGE = {
    "huge": (30000, 30000, 30000), "far below": (30000, -30000, -30000), "alternating": (30000, None, None),
    "one huge key": (30000, 0, 30000), "one far below": (30000, 0, -30000),
}  # fmt: skip
SIGNS = 0x13198A2E03707344243F6A8885A308D3  # kSigns of quantise.hpp
VALUES = {name: values_of_codes(name) for name in ("int8", "e4m3fn", "e4m3fnuz")}


@dataclass(frozen=True)
class Int8:
    """A call, as many queries and keys in each sequence.

    ``values``: "normal", "outliers" (a few channels of k, an offset of v), "sinks" (the first key takes most
    of each row, and its value is small), "rising" (scores), "zeros", "large" (elements near 10^4), or HUGE.
    """

    queries: int = 70
    keys: int = 70
    batch: int = 1
    heads: tuple = (1, 1)
    window: tuple = (-1, -1)
    values: str = "normal"
    scale: float = 128**-0.5
    dtype: str = "fp16"
    width: int = 128  # the head dim
    seed: int = 0
    of_v: str = "e4m3fn"  # its codes in products. "": fp16 as given


class Call:
    """The memory of a call before its run. q, k and v are (batch, heads, rows, width): strides differ."""

    def __init__(self, case):
        self.case, self.random = case, random.Random(case.seed)
        self.rows = {"q": case.queries, "k": case.keys, "v": case.keys}
        self.heads = {"q": case.heads[0], "k": case.heads[1], "v": case.heads[1]}
        self.memory, self.numbers = {}, {}
        for name in "qkv":
            count = case.batch * self.heads[name] * self.rows[name]
            given = [self._number(name, n) for n in range(count * case.width)]
            data = encode(given, case.dtype)
            self.memory[name] = Memory.of(data, name, readonly=True)
            self.numbers[name] = decode(data, case.dtype)
            self.memory[f"{name}_codes"] = Memory.output(count * case.width, f"{name}_codes")
            scales = {
                "q": count,
                "k": count // case.keys * self.blocks if count else 0,
                "v": count // case.keys,
            }
            self.memory[f"{name}_scales"] = Memory.output(4 * scales[name], f"{name}_scales")
        self.memory["largest"] = Memory.output(
            4 * case.batch * case.heads[1] * -(-case.keys // ROWS), "largest"
        )
        rows = case.batch * case.heads[0] * case.queries
        self.memory["out"] = Memory.output(2 * rows * case.width, "out")
        self.memory["lse"] = Memory.output(4 * rows, "lse")

    @property
    def coded_tensors(self):
        return "qkv" if self.case.of_v else "qk"

    @property
    def blocks(self):
        """Scales of a head of k."""
        return -(-self.case.keys // (2 * KEYS_OF_SCALE)) * 2

    def _number(self, name, n):
        x, values, width = self.random.gauss(0, 1), self.case.values, self.case.width
        row = n // width % self.rows[name]
        if values == "zeros":
            return 0.0
        if values in HUGE and name != "v":
            of_q, of_k, of_one = HUGE[values]
            found = of_q if name == "q" else of_one if row == 37 else of_k
            return float(30000 * (-1) ** row if found is None else found)
        if values == "large":
            return x * 4096
        if values == "outliers" and name == "k" and n % 32 == 5:
            return x + 9
        if values == "outliers" and name == "v":
            return x + 2
        if values == "rising" and name != "v":
            return x / 4 + (1 if name == "q" else row / 512)
        if values == "sinks":
            if name == "q":
                return x + 1
            if row == 0:
                return 0.7 if name == "k" else x / 64
        return x

    def at(self, name, b, head, row):
        """The place of a row in a tensor (batch, heads, rows, width)."""
        return ((b * self.heads[name] + head) * self.rows[name] + row) * self.case.width

    def given(self, name, b, head, row):
        at = self.at(name, b, head, row)
        return self.numbers[name][at : at + self.case.width]

    def quantised(self, phase):
        """The argument and the grid of fa_quantise_*."""
        case = self.case
        fields = {"head_dim": case.width, "phase": phase}
        fields["largest"] = self.memory["largest"].address
        for place, name in enumerate(self.coded_tensors):
            rows, heads = self.rows[name], self.heads[name]
            fields |= {
                f"tensors[{place}].from": self.memory[name].address,
                f"tensors[{place}].codes": self.memory[f"{name}_codes"].address,
                f"tensors[{place}].scales": self.memory[f"{name}_scales"].address,
                f"tensors[{place}].from_batch": heads * rows * case.width,
                f"tensors[{place}].from_row": case.width,
                f"tensors[{place}].from_head": rows * case.width,
                f"tensors[{place}].rows": rows, f"tensors[{place}].heads": heads,
            }  # fmt: skip
        grid = (
            -(-max(self.rows.values()) // ROWS),
            max(case.heads),
            case.batch * (len(self.coded_tensors) if phase else 1),
        )
        return layout("QuantiseParams").pack(fields), grid

    def forward(self, grid):
        """The argument of fa_fwd_int8_*. Codes are (batch, rows, heads, width), strides count pairs."""
        case, words = self.case, self.case.width // 2
        q_row, k_row, o_row = case.heads[0] * words, case.heads[1] * words, case.width
        v_batch, v_row, v_head = case.keys * k_row, k_row, words
        if not case.of_v:
            v_batch, v_row, v_head = case.heads[1] * case.keys * o_row, o_row, case.keys * o_row
        coded = {name: f"{name}_codes" if name in self.coded_tensors else name for name in "qkv"}
        fields = {
            **{f"fwd.{name}": self.memory[coded[name]].address for name in "qkv"},
            **{f"fwd.{name}": self.memory[name].address for name in ("out", "lse")},
            "fwd.q_batch": case.queries * q_row, "fwd.q_row": q_row, "fwd.q_head": words,
            "fwd.k_batch": case.keys * k_row, "fwd.k_row": k_row, "fwd.k_head": words,
            "fwd.v_batch": v_batch, "fwd.v_row": v_row, "fwd.v_head": v_head,
            "fwd.o_batch": case.heads[0] * case.queries * o_row, "fwd.o_row": o_row,
            "fwd.o_head": case.queries * o_row,
            "fwd.lse_batch": case.heads[0] * case.queries, "fwd.lse_head": case.queries,
            "fwd.seqlen_q": case.queries, "fwd.seqlen_k": case.keys, "fwd.rows_q": case.queries,
            "fwd.rows_k": case.keys, "fwd.batch_k": case.batch,
            "fwd.nheads": case.heads[0], "fwd.nheads_k": case.heads[1], "fwd.splits": 1,
            "fwd.window_left": case.window[0], "fwd.window_right": case.window[1],
            "fwd.scale": case.scale, "fwd.dropout_scale": 1.0,
            **{f"fwd.{name}": value for name, value in HARDWARES.fields(grid).items()},
            **{f"{name}_descale": self.memory[f"{name}_scales"].address for name in self.coded_tensors},
            "q_descale_batch": case.heads[0] * case.queries, "q_descale_head": case.queries,
            "k_descale_batch": case.heads[1] * self.blocks, "k_descale_head": self.blocks,
            "v_descale_batch": case.heads[1], "v_descale_head": 1,
        }  # fmt: skip
        return layout("Fp8Params").pack(fields)

    def coded(self, name, b, head, row):
        """A row's numbers: its codes times their scales."""
        if name not in self.coded_tensors:
            return self.given(name, b, head, row)
        case, heads, rows = self.case, self.heads[name], self.rows[name]
        at = ((b * rows + row) * heads + head) * case.width
        codes = self.memory[f"{name}_codes"].read()[at : at + case.width]
        scales, of_head = self.memory[f"{name}_scales"].values("f"), b * heads + head
        place = {"q": of_head * rows + row, "k": of_head * self.blocks + row // KEYS_OF_SCALE, "v": of_head}
        values = VALUES[case.of_v if name == "v" else "int8"]
        return [values[code] * scales[place[name]] for code in codes]


def quantise(machine, case, **options):
    """The call after fa_quantise_*."""
    call = Call(case)
    for phase in (0, 1) if case.of_v else (1,):
        kernarg, grid = call.quantised(phase)
        _ran(machine, QUANTISE.format(case.dtype), grid, THREADS, kernarg, call, options)
        written = (
            ["largest"]
            if phase == 0
            else [f"{name}_{of}" for name in call.coded_tensors for of in ("codes", "scales")]
        )
        for name in written:
            call.memory[name].initialised = True
    return call


def run(machines, arch, case, **options):
    """The finished call. ``machines``: of the two kernels."""
    call = quantise(machines[0], case, **options)
    tile = workgroup_of(arch_named(arch), "fwd_int8", case.dtype, case.width)
    grid = (-(-case.queries // tile.rows), case.heads[0], case.batch)
    name = FORWARD.format(case.dtype, case.width)
    call.result = _ran(machines[1], name, grid, tile.threads, call.forward(grid), call, options)
    return call


def _ran(machine, name, grid, threads, kernarg, call, options):
    launch, memory = Launch(grid, (threads, 1, 1)), [*call.memory.values()]
    result = machine.run(name, launch, kernarg, memory, Options(seed=1, **options))
    assert not result.error, result.error
    assert not result.findings, "\n".join(map(str, result.findings))
    return result


def rotated(row):
    """A row, with its signs changed, times the Hadamard matrix without its factor, in fp32."""
    x = [-value if SIGNS >> n & 1 else value for n, value in enumerate(row)]
    apart = 1
    while apart < len(x):
        for j in range(len(x)):
            if not j & apart:
                a, b = x[j], x[j + apart]
                x[j], x[j + apart] = fp32(a + b), fp32(a - b)
        apart *= 2
    return x


def exact(call, b, head, query, coded=True):
    """out, the log-sum-exp and out of the magnitudes of v, of a row in float64: of the codes, or as given."""
    case = call.case
    head_k = head // (case.heads[0] // case.heads[1])
    diagonal = query + case.keys - case.queries
    left, right = case.window
    shown = [
        j
        for j in range(case.keys)
        if (left < 0 or j >= diagonal - left) and (right < 0 or j <= diagonal + right)
    ]
    if not shown:
        return [0.0] * case.width, math.inf, [0.0] * case.width
    of = call.coded if coded else call.given
    q = of("q", b, head, query)
    scores = [dot(q, of("k", b, head_k, j)) * case.scale for j in shown]
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    total = math.fsum(powers)
    values = [of("v", b, head_k, j) for j in shown]
    columns = [*zip(*values, strict=True)]
    out, sizes = (
        [dot(powers, each) / total for each in of] for of in (columns, [[*map(abs, x)] for x in columns])
    )
    return out, math.log(total) + top, sizes


def results(call, step=1):
    """(place, row of out, log-sum-exp) of each row, or of one in ``step``."""
    case = call.case
    out = decode(call.memory["out"].read(), case.dtype)
    lse = struct.unpack(f"<{len(out) // case.width}f", call.memory["lse"].read())
    for b, h in product(range(case.batch), range(case.heads[0])):
        for i in range(0, case.queries, step):
            at = call.at("q", b, h, i)
            yield (b, h, i), out[at : at + case.width], lse[at // case.width]
