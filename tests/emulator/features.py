"""Forward calls with what attention.py's lack: any strides, windows, dropout, cache rows and pages.

Every row of a tensor is memory of its own, wherever its strides put it, so a kernel that reads one element
too far, or computes an address with too few bits, is found out.  Expected numbers: plain Python, float64.
"""

import ctypes
import itertools
import math
import mmap
import random
import struct
from dataclasses import dataclass, field

from wheel_builder.emulator.attention import FACTOR, KERNARG, TINY
from wheel_builder.emulator.formats import decode, encode, rounded
from wheel_builder.emulator.memory import Memory

SPACE = 1 << 40  # addresses, of which only those of rows are ever touched
MAP_NORESERVE = 0x4000  # Linux; the mmap module has no name for it
GAP = 4096  # bytes between two tensors
KEY = (0x9_0123_4567, 0x1_FEDC_BA98)  # only the low words count
STATE = tuple(word & 0xFFFFFFFF for word in KEY)
# Half a unit in the last place of an output, relative to it.
HALF_ULP = {"fp16": 2.0**-11, "bf16": 2.0**-8}


class Placed(Memory):
    """Memory at an address of somebody else's choice."""

    def __init__(self, address, size, name, *, readonly=False, initialised=True):
        self.name, self.size, self.readonly, self.initialised = name, size, readonly, initialised
        self.address = address


class Space:
    """Addresses far apart: tensors are put one after the other, as long as their strides make them."""

    def __init__(self):
        self._map = mmap.mmap(-1, SPACE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
        self._free = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def take(self, size):
        begin = self._free
        self._free += -(-(size + GAP) // GAP) * GAP
        return begin


@dataclass
class Tensor:
    """(batch, rows, heads, head_dim); ``strides`` of the first three, in elements, 0 among them."""

    space: Space
    name: str
    dtype: str
    shape: tuple
    strides: tuple
    given: bool
    skew: int = 0  # elements that the first one is off its alignment
    rows: dict = field(default_factory=dict)

    def __post_init__(self):
        last = sum((n - 1) * s for n, s in zip(self.shape[:3], self.strides, strict=True))
        self.address = self.space.take(2 * (last + self.shape[3] + self.skew)) + 2 * self.skew
        size = 2 * self.shape[3]
        for index in itertools.product(*map(range, self.shape[:3])):
            place = Placed(self._at(index), size, self.name, readonly=self.given, initialised=self.given)
            self.rows.setdefault(place.address, place)

    def _at(self, index):
        return self.address + 2 * sum(i * s for i, s in zip(index, self.strides, strict=True))

    def fill(self, draw, magnitude=1.0):
        for row in self.rows.values():
            data = encode([draw.gauss(0.0, magnitude) for _ in range(self.shape[3])], self.dtype)
            ctypes.memmove(row.address, data, row.size)

    def __getitem__(self, index):
        return decode(self.rows[self._at(index)].read(), self.dtype)


@dataclass(frozen=True)
class Call:
    """Sizes and features of one call; ``layout(name, shape)`` gives strides, contiguous where it is None."""

    dtype: str
    head_dim: int
    seqlen_q: int
    seqlen_k: int
    batch: int = 1
    nheads: int = 1
    nheads_k: int = 1
    left: int = -1
    right: int = -1
    dropout_p: float = 0.0
    scale: float = 0.25
    seed: int = 0
    skew: int = 0
    layout: object = None
    cache_rows: tuple = ()  # cache_batch_idx, into a batch of cache_size
    cache_size: int = 0
    page: int = 0
    pages: tuple = ()  # each sequence's pages, of num_pages
    num_pages: int = 0

    def tensors(self, space):
        draw = random.Random(self.seed)
        if self.page:
            k_shape = (self.num_pages, self.page, self.nheads_k, self.head_dim)
        else:
            k_shape = (self.cache_size or self.batch, self.seqlen_k, self.nheads_k, self.head_dim)
        q_shape = (self.batch, self.seqlen_q, self.nheads, self.head_dim)
        found = []
        for name, shape in (("q", q_shape), ("k", k_shape), ("v", k_shape), ("out", q_shape)):
            strides = self.layout(name, shape) if self.layout else contiguous(shape)
            tensor = Tensor(space, name, self.dtype, shape, strides, given=name != "out", skew=self.skew)
            if name != "out":
                tensor.fill(draw)
            found.append(tensor)
        return found


def contiguous(shape):
    return shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3]


@dataclass
class Running:
    """A call's tensors in device memory, and the bytes of its ``fa::FwdParams``."""

    call: Call

    def __post_init__(self):
        call, self.space = self.call, Space()
        self.q, self.k, self.v, self.out = self.tensors = call.tensors(self.space)
        self.lse = Memory.output(4 * call.batch * call.nheads * call.seqlen_q, "lse")
        self.optional = {
            "cache_rows": _given("i", call.cache_rows),
            "table": _given("i", itertools.chain.from_iterable(call.pages)),
            "state": _given("q", KEY if call.dropout_p else ()),
        }

    def memory(self):
        rows = [row for tensor in self.tensors for row in tensor.rows.values() if row.size]
        given = [memory for memory in self.optional.values() if memory is not None]
        return [*rows, self.lse, *given]

    def params(self):
        call = self.call
        table, cache_rows, state = (
            memory.address if memory else 0
            for memory in (self.optional["table"], self.optional["cache_rows"], self.optional["state"])
        )
        blocks = len(call.pages[0]) if call.pages else 0
        seqlen_k = blocks * call.page if call.page else call.seqlen_k
        return struct.pack(
            KERNARG,
            *(tensor.address for tensor in self.tensors), self.lse.address,
            0, 0, 0, 0, 0, table, cache_rows, state, 0, 0,
            *(stride for tensor in self.tensors for stride in tensor.strides),
            call.nheads * call.seqlen_q, call.seqlen_q, blocks, 0, 0,
            call.seqlen_q, seqlen_k, call.seqlen_q, seqlen_k, call.page, call.num_pages,
            call.cache_size or call.batch, 1, call.nheads, call.nheads_k, call.left, call.right,
            call.scale, 0.0, int(call.dropout_p * 2**32), 1 / (1 - call.dropout_p),
        )  # fmt: skip

    def key_row(self, batch, key):
        """The first two indices of a key in k and v."""
        if self.call.page:
            return self.call.pages[batch][key // self.call.page], key % self.call.page
        return (self.call.cache_rows[batch] if self.call.cache_rows else batch), key

    def keys(self):
        return len(self.call.pages[0]) * self.call.page if self.call.page else self.call.seqlen_k

    def expected(self, dtype=""):
        """(index of the row, output, log-sum-exp); with a ``dtype`` as plain tensor operations round."""
        call, keys = self.call, self.keys()
        group = call.nheads // call.nheads_k
        for batch, row, head in itertools.product(
            range(call.batch), range(call.seqlen_q), range(call.nheads)
        ):
            diagonal = row + keys - call.seqlen_q
            begin = 0 if call.left < 0 else max(0, diagonal - call.left)
            end = keys if call.right < 0 else max(0, min(keys, diagonal + call.right + 1))
            seen = range(begin, end)
            places = [(*self.key_row(batch, key), head // group) for key in seen]
            yield (batch, row, head), *self._row((batch, row, head), seen, places, dtype)

    def _row(self, index, seen, places, dtype):
        call = self.call
        batch, row, head = index
        if not seen:
            return [0.0] * call.head_dim, math.inf

        def keep(values):
            return rounded(values, dtype) if dtype else values

        query = self.q[index]
        scores = keep([x * call.scale for x in keep([_dot(query, self.k[place]) for place in places])])
        top = max(scores)
        powers = [math.exp(score - top) for score in scores]
        total = math.fsum(powers)
        below = int(call.dropout_p * 2**32)
        weights = [
            power / total / (1 - call.dropout_p) if word(batch, head, row, key) >= below else 0.0
            for key, power in zip(seen, powers, strict=True)
        ]
        columns = zip(*(self.v[place] for place in places), strict=True)
        return keep([_dot(keep(weights), column) for column in columns]), math.log(total) + top


def check(running, result, *, plain):
    """The outputs of a run against float64: of a ``plain`` kernel to the last bit of the dtype, of others
    by the numerics rule."""
    assert result.error == ""
    assert result.findings == ()
    call = running.call
    exact = list(running.expected())
    low = [] if plain else list(running.expected(call.dtype))
    worst = max((abs(a - b) for x, y in zip(exact, low) for a, b in zip(x[1], y[1])), default=0.0)  # noqa: B905
    lse = running.lse.values("f")
    for index, out, sum_ in exact:
        batch, row, head = index
        for found, wanted in zip(running.out[index], out, strict=True):
            # fp32 over some hundred keys beside the last rounding.
            near = abs(wanted) * HALF_ULP[call.dtype] + 1e-6 if plain else FACTOR * worst + TINY[call.dtype]
            assert abs(found - wanted) <= near, (index, found, wanted)
        found = lse[(batch * call.nheads + head) * call.seqlen_q + row]
        assert found == sum_ or abs(found - sum_) <= 1e-5 * max(1.0, abs(sum_)), (index, found, sum_)


def word(batch, head, row, column):
    """Of a probability: kernels/python/flash_attn_rocm/_philox.py, without PyTorch."""
    c = [column // 4, row, head, batch]
    k = list(STATE)
    for _ in range(10):
        even, odd = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [odd >> 32 ^ c[1] ^ k[0], odd & 0xFFFFFFFF, even >> 32 ^ c[3] ^ k[1], even & 0xFFFFFFFF]
        k = [k[0] + 0x9E3779B9 & 0xFFFFFFFF, k[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return c[column % 4]


def _given(kind, values):
    values = tuple(values)
    data = struct.pack(f"<{len(values)}{kind}", *values)
    return Memory.of(data, "given", readonly=True) if values else None


def _dot(one, other):
    return math.fsum(a * b for a, b in zip(one, other, strict=True))
