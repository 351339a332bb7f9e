"""fa_decode_8bit_* and fa_mla_8bit_* on the emulator: calls over caches of 8 bits, and float64 references."""

import math
import random
import struct
from dataclasses import dataclass
from itertools import chain, product

from wheel_builder.machine_code.emulator.attention import Descales, with_codes
from wheel_builder.machine_code.emulator.formats import decode, encode, nearest, values_of_codes
from wheel_builder.machine_code.emulator.machine import Launch, Options
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.machine_code.emulator.reference import dot
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import workgroup_of

PLACES = 3  # of a dense cache, one more than sequences
REST = 64  # elements of a key of latent attention beyond its value
NOT_GIVEN = "none"


@dataclass(frozen=True)
class Coded:
    """A call. ``keys`` of each sequence.

    ``descales``: "head" (of each sequence), "key", or "none".
    ``store``: "dense", "used" (a part of it), "leftpad", "places" (cache_batch_idx), "ragged" or "paged".
    ``values``: "normal", "codes" (every finite code), "outliers" (a few channels of K, a few keys of V), or a
    code in place of one element. ``latent``: values are the first elements of keys. ``spread``: heads of q
    are multiplied by 2^spread, 2^-spread, 1 in turn. ``of_k``: each descale of K, unless 0. ``zeros``: q is
    0.
    """

    dtype: str
    head_dim: int
    code: str
    queries: int = 1
    keys: tuple = (70,)
    heads: tuple = (2, 1)
    descales: str = "head"
    store: str = "dense"
    page: int = 16
    window: tuple = (-1, -1)
    softcap: float = 0.0
    slopes: bool = False
    sinks: bool = False
    splits: int = 1
    values: object = "normal"
    spread: int = 0
    of_k: float = 0.0
    zeros: bool = False
    scale: float = 0.0
    seed: int = 0
    latent: bool = False

    @property
    def op(self):
        return "mla_8bit" if self.latent else "decode_8bit"

    @property
    def kernel(self):
        return f"fa_{self.op}_{self.dtype}_d{self.head_dim}"

    @property
    def value_dim(self):
        return self.head_dim - REST if self.latent else self.head_dim

    @property
    def capacity(self):
        """Rows of a place of the cache."""
        return max(self.keys) + (0 if self.store in {"dense", "ragged"} else 9)

    @property
    def factor(self):
        return self.scale or self.head_dim**-0.5


def fp32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Call:
    """The memory of a call before its run."""

    def __init__(self, coded):
        self.coded, self.random = coded, random.Random(coded.seed)
        self.batch, (self.nheads, self.nheads_k) = len(coded.keys), coded.heads
        self.values = values_of_codes(coded.code)
        self.memory = {}
        self._cache()
        self._queries()

    @property
    def row_bytes(self):
        """Of a head's row of k."""
        return self.coded.head_dim

    def given(self, name, data):
        self.memory[name] = Memory.of(data, name, readonly=True)

    def _queries(self):
        coded = self.coded
        count = self.batch * coded.queries * self.nheads * coded.head_dim
        numbers = [self.random.gauss(0, 1) for _ in range(count)]
        if coded.spread:
            powers = (2.0**coded.spread, 2.0**-coded.spread, 1.0)
            numbers = [x * powers[n // coded.head_dim % 3] for n, x in enumerate(numbers)]
        self.given("q", encode([0.0] * count if coded.zeros else numbers, coded.dtype))
        self.q = decode(self.memory["q"].read(), coded.dtype)
        rows = self.batch * coded.queries * self.nheads
        self.memory["out"] = Memory.output(rows * coded.value_dim * 2, "out")
        self.memory["lse"] = Memory.output(rows * 4, "lse")
        if coded.splits > 1:
            self.memory["partial_out"] = Memory.output(
                coded.splits * rows * coded.value_dim * 4, "partial_out"
            )
            self.memory["partial_lse"] = Memory.output(coded.splits * rows * 4, "partial_lse")
        if coded.sinks:
            self.given("sink", struct.pack(f"<{self.nheads}f", *(0.5 - n for n in range(self.nheads))))
        if coded.slopes:
            self.given(
                "alibi_slopes",
                struct.pack(f"<{self.nheads}f", *(2.0 ** -(n + 1) for n in range(self.nheads))),
            )

    def _cache(self):
        coded = self.coded
        if coded.store == "paged":
            pages = -(-max(coded.keys) // coded.page)
            self.places, self.rows = self.batch * pages + 1, coded.page
            numbers = list(range(self.places - 1))
            self.random.shuffle(numbers)
            self.table = [numbers[n * pages : (n + 1) * pages] for n in range(self.batch)]
        elif coded.store == "ragged":
            self.places, self.rows = 1, sum(coded.keys)
        else:
            self.places, self.rows = (PLACES if coded.store == "places" else self.batch), coded.capacity
        rows = self.places * self.rows * self.nheads_k
        self.codes, self.descale = {}, {}
        for name in "k" if coded.latent else "kv":
            per_key = coded.descales == "key"
            scales = {
                "none": lambda: [1.0] * rows,
                "key": lambda: [fp32(2.0 ** self.random.uniform(-7, -3)) for _ in range(rows)],
                "head": lambda: [
                    fp32(2.0 ** self.random.uniform(-6, -4)) for _ in range(self.batch * self.nheads_k)
                ],
            }[coded.descales]()
            self.descale[name] = scales
            self.codes[name] = self._drawn(name, rows, scales if per_key else None)
            if coded.of_k and name == "k":
                scales[:] = [fp32(coded.of_k)] * len(scales)
            self.given(name, bytes(self.codes[name]))
            if coded.descales != NOT_GIVEN:
                self.given(f"{name}_descale", struct.pack(f"<{len(scales)}f", *scales))
        if coded.latent:
            self.codes["v"], self.descale["v"] = self.codes["k"], self.descale["k"]

    def _drawn(self, name, rows, scales):
        coded, width = self.coded, self.coded.head_dim
        if coded.values == "codes":
            finite = [n for n, value in enumerate(self.values) if math.isfinite(value)]
            start = 0 if name == "v" else 7
            step = 1 if name == "v" else 11
            return [finite[(start + n * step) % len(finite)] for n in range(rows * width)]
        find, found = nearest(coded.code), []
        for row in range(rows):
            of_key = scales[row] if scales else 1 if coded.descales == NOT_GIVEN else 2.0**-5
            for d in range(width):
                x = self.random.gauss(0, 1)
                if coded.values == "outliers":
                    x = (
                        x + 9
                        if name == "k" and d % 37 == 5
                        else x * 50
                        if name == "v" and row % 29 == 3
                        else x
                    )
                found.append(find(x / of_key))
        if isinstance(coded.values, int):
            found[5 * width * self.nheads_k + 3] = coded.values
        return found

    def place(self, b, key):
        """The cache's place and row of a sequence's key."""
        coded = self.coded
        if coded.store == "paged":
            return self.table[b][key // coded.page], key % coded.page
        if coded.store == "ragged":
            return 0, sum(coded.keys[:b]) + key
        return (self.places - 1 - b if coded.store == "places" else b), key + self.left(b)

    def left(self, b):
        return 3 + b if self.coded.store == "leftpad" else 0

    def row(self, name, b, key, head):
        """A key's or value's numbers, times their descale."""
        coded, width = self.coded, self.coded.head_dim
        place, row = self.place(b, key)
        at = (place * self.rows + row) * self.nheads_k + head
        by = {"none": 0, "key": at, "head": b * self.nheads_k + head}[coded.descales]
        scale = self.descale[name][by]
        used = coded.value_dim if name == "v" else width
        return [self.values[code] * scale for code in self.codes[name][at * width : at * width + used]]

    def kernarg(self):
        coded, width = self.coded, self.coded.head_dim
        q_row, k_head = self.nheads * width, self.row_bytes
        k_row = self.nheads_k * k_head
        place = self.rows * k_row
        lengths = {}
        if coded.store in {"used", "leftpad", "places", "paged"}:
            stored = [keys + self.left(b) for b, keys in enumerate(coded.keys)]
            self.given("seqused_k", struct.pack(f"<{self.batch}i", *stored))
            lengths = {"seqused_k": self.memory["seqused_k"].address}
        if coded.store == "leftpad":
            self.given("leftpad_k", struct.pack(f"<{self.batch}i", *map(self.left, range(self.batch))))
        if coded.store == "places":
            self.given(
                "cache_batch_idx",
                struct.pack(f"<{self.batch}i", *(self.places - 1 - b for b in range(self.batch))),
            )
        if coded.store == "ragged":
            ends = [sum(coded.keys[:n]) for n in range(self.batch + 1)]
            self.given("cu_seqlens_k", struct.pack(f"<{self.batch + 1}i", *ends))
        if coded.store == "paged":
            self.given(
                "block_table", struct.pack(f"<{self.batch * len(self.table[0])}i", *chain(*self.table))
            )
        optional = ("leftpad_k", "cache_batch_idx", "cu_seqlens_k", "block_table", "sink", "alibi_slopes",
                    "partial_out", "partial_lse")  # fmt: skip
        lengths |= {name: self.memory[name].address for name in optional if name in self.memory}
        longest = len(self.table[0]) * coded.page if coded.store == "paged" else coded.capacity
        o_row = self.nheads * coded.value_dim
        v = "k" if coded.latent else "v"
        fields = {
            **{name: self.memory[name].address for name in ("q", "k", "out", "lse")},
            "v": self.memory[v].address, **lengths,
            "q_batch": coded.queries * q_row, "q_row": q_row, "q_head": width,
            "k_batch": place, "k_row": k_row, "k_head": k_head,
            "v_batch": place, "v_row": k_row, "v_head": k_head,
            "o_batch": coded.queries * o_row, "o_row": o_row, "o_head": coded.value_dim,
            "lse_batch": self.nheads * coded.queries, "lse_head": coded.queries,
            "seqlen_q": coded.queries, "seqlen_k": max(coded.keys) if coded.store == "ragged" else longest,
            "rows_q": coded.queries, "rows_k": self.rows, "batch_k": self.places,
            "nheads": self.nheads, "nheads_k": self.nheads_k, "splits": coded.splits,
            "partial_split": self.batch * self.nheads * coded.queries,
            "window_left": coded.window[0], "window_right": coded.window[1],
            "scale": coded.factor, "softcap": coded.softcap, "dropout_scale": 1.0,
        }  # fmt: skip
        if coded.store == "paged":
            fields |= {"page": coded.page, "num_pages": self.places, "table_batch": len(self.table[0])}
        return self.with_descales(layout("FwdParams").pack(fields))

    def with_descales(self, packed):
        coded, v = self.coded, "k" if self.coded.latent else "v"
        per_key = coded.descales == "key"
        row, width = (self.nheads_k, 1)
        steps = (self.rows * row, row, width) if per_key else (self.nheads_k, 0, 1)
        of = {
            name: Descales(self.memory[f"{given}_descale"], steps) if coded.descales != NOT_GIVEN else None
            for name, given in {"k": "k", "v": v}.items()
        }
        return with_codes(packed, coded.code, of["k"], of["v"], per_key=per_key)


def run(machine, arch, coded, make=Call, **options):
    """The finished call."""
    call = make(coded)
    tile = workgroup_of(arch_named(arch), coded.op, coded.dtype, coded.head_dim)
    blocks = -(-coded.queries * (call.nheads // call.nheads_k) // tile.rows) * coded.splits
    launch = Launch((blocks, call.nheads_k, call.batch), (tile.threads, 1, 1))
    kernarg = call.kernarg()
    result = machine.run(
        coded.kernel, launch, kernarg, list(call.memory.values()), Options(seed=1, **options)
    )
    assert not result.error, result.error
    assert not result.findings, "\n".join(map(str, result.findings))
    call.result = result
    return call


@dataclass(frozen=True)
class Row:
    """An expected row. ``largest``: of the visible values. ``magnitude``: of the scores' terms."""

    out: list
    lse: float
    largest: float
    magnitude: float


def exact(call, b, head, query):
    """In float64."""
    coded = call.coded
    keys, width = coded.keys[b], coded.head_dim
    head_k = head // (call.nheads // call.nheads_k)
    diagonal = query + keys - coded.queries
    left, right = coded.window
    shown = [
        j for j in range(keys) if (left < 0 or j >= diagonal - left) and (right < 0 or j <= diagonal + right)
    ]
    at = ((b * coded.queries + query) * call.nheads + head) * width
    q = call.q[at : at + width]
    scores, magnitude = [], 0.0
    for j in shown:
        key = call.row("k", b, j, head_k)
        score = dot(q, key) * coded.factor
        magnitude = max(magnitude, dot(list(map(abs, q)), list(map(abs, key))) * abs(coded.factor))
        if coded.softcap:
            score = coded.softcap * math.tanh(score / coded.softcap)
        if coded.slopes:
            score -= 2.0 ** -(head + 1) * abs(diagonal - j)
        scores.append(score)
    if not shown:
        return Row([0.0] * coded.value_dim, math.inf, 0.0, 0.0)
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    total = math.fsum(powers)
    if coded.sinks:
        total += math.exp(0.5 - head - top)
    values = [call.row("v", b, j, head_k) for j in shown]
    out = [dot(powers, column) / total for column in zip(*values, strict=True)]
    largest = max(abs(x) for value in values for x in value)
    return Row(out, math.log(total) + top, largest, magnitude)


def joined(call):
    """out and lse, the parts joined as fa_combine_* does, but in float64."""
    coded, width = call.coded, call.coded.value_dim
    if coded.splits == 1:
        return decode(call.memory["out"].read(), coded.dtype), call.memory["lse"].values("f")
    rows = call.batch * call.nheads * coded.queries
    outs, lses = call.memory["partial_out"].values("f"), call.memory["partial_lse"].values("f")
    out, lse = [0.0] * (rows * width), []
    for b, h, i in product(range(call.batch), range(call.nheads), range(coded.queries)):
        row = (b * call.nheads + h) * coded.queries + i
        parts = [(lses[p * rows + row], p) for p in range(coded.splits)]
        seen = [(value, p) for value, p in parts if value != -math.inf]
        top = max((value for value, _ in seen), default=0.0)
        sink = math.exp(0.5 - h - top) if coded.sinks and seen else 0.0
        total = math.fsum(math.exp(value - top) for value, _ in seen) + sink
        lse.append(math.log(total) + top if seen else math.inf)
        at = ((b * coded.queries + i) * call.nheads + h) * width
        for value, p in seen:
            weight = math.exp(value - top) / total
            for d in range(width):
                out[at + d] += weight * outs[(p * rows + row) * width + d]
    return out, lse


def results(call):
    """(place, row of out, log-sum-exp) of each row."""
    coded, width = call.coded, call.coded.value_dim
    out, lse = joined(call)
    for b, h, i in product(range(call.batch), range(call.nheads), range(coded.queries)):
        at = ((b * coded.queries + i) * call.nheads + h) * width
        yield (b, h, i), out[at : at + width], lse[(b * call.nheads + h) * coded.queries + i]
