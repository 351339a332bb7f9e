"""The shipped kernels that append to a cache, with all sanitizers on: every bit right, and nothing found.

What the public function does with them is in tests/emulated; here are the arguments that it never has.
"""

import random
import struct
from dataclasses import dataclass

import pytest

from wheel_builder.emulator.formats import decode, encode
from wheel_builder.emulator.machine import ALL_CHECKS, Launch, Options, load_machine
from wheel_builder.emulator.memory import Memory

ARCHS = ("gfx908", "gfx942", "gfx1030", "gfx1100")
# Of fa::AppendParams: three tensors, eight other pointers and strides, sizes.
KERNARG = "<" + "2Q6q" * 3 + "5Q3q14i"
THREADS = 256
BATCH, ROWS, HEADS = 2, 3, 2
CAPACITY, PAGES = 32, 5
FAR = 1 << 33  # elements: twice what 32 bits of bytes reach, and beyond what they count


@dataclass(frozen=True)
class Case:
    """``skew`` bytes off alignment; ``page`` 0 is a dense cache; ``far`` one whose places are far apart."""

    head_dim: int = 32
    rotary: int = 16
    interleaved: bool = False
    skew: int = 0
    page: int = 0
    lengths: tuple = (4, 29)
    table: tuple = (3, 0, 1, 4)
    far: bool = False
    blocks: int = 1

    @property
    def vectors(self):
        return self.skew == 0 and self.head_dim % 8 == 0


CASES = {
    "vectors": Case(),
    "neighbours": Case(interleaved=True),
    "elements": Case(skew=2),
    "elements-neighbours": Case(skew=6, interleaved=True),
    "odd-head-dim": Case(head_dim=41, rotary=32),
    "one-element": Case(head_dim=1, rotary=0),
    "largest": Case(head_dim=256, rotary=256),
    "pages": Case(page=16),
    "lengths-that-lead-out": Case(lengths=(-2, 2**31 - 2)),
    "lengths-far-below": Case(lengths=(-(2**31), 30), interleaved=True),
    "pages-that-are-not-there": Case(page=16, lengths=(15, 14), table=(-1, 2**31 - 1, 4, 5)),
    "far-apart": Case(far=True, lengths=(1, 1)),
    "far-apart-elements": Case(far=True, lengths=(0, 3), skew=2),
    "blocks-without-work": Case(blocks=3),
}


def fp32(value):
    """A sum or product of two fp32 in double precision, rounded again, is fp32's own."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Call:
    """The memory of a call, k and v the same numbers of fp32 that the kernel sees."""

    def __init__(self, case, dtype):
        self.case, self.dtype = case, dtype
        self.random = random.Random(0)
        width, places = case.head_dim, PAGES if case.page else BATCH
        rows = case.page or CAPACITY
        self.used = 1 if case.far else places
        self.memory, self.before = {}, {}
        for name, count in (("q", BATCH * ROWS), ("k", BATCH * ROWS), ("v", BATCH * ROWS)):
            self.tensor(name, count * HEADS * width, readonly=True)
        for name in ("k_cache", "v_cache"):
            self.tensor(name, self.used * rows * HEADS * width)
        for name in ("cos", "sin"):
            self.tensor(name, (CAPACITY + ROWS) * (case.rotary // 2), readonly=True)
        self.memory["q_out"] = Memory.output(BATCH * ROWS * HEADS * width * 2, "q_out")
        self.integers("lengths", case.lengths)
        self.integers("table", case.table)
        self.integers("places", (1, 7))

    def tensor(self, name, count, *, readonly=False):
        data = encode([self.random.gauss(0, 2) for _ in range(count)], self.dtype)
        self.memory[name] = Memory.of(data, name, readonly=readonly, skew=self.case.skew)
        self.before[name] = decode(data, self.dtype)

    def integers(self, name, values):
        self.memory[name] = Memory.of(struct.pack(f"<{len(values)}i", *values), name, readonly=True)

    def kernarg(self):
        case, width = self.case, self.case.head_dim
        rows = case.page or CAPACITY
        at = {name: memory.address for name, memory in self.memory.items()}
        place = FAR if case.far else rows * HEADS * width
        new, cache = (ROWS * HEADS * width, HEADS * width, width), (place, HEADS * width, width)
        # Of places that are far apart only the second is memory, and the first sequence has it.
        back = 2 * FAR if case.far else 0
        pages = (at["table"] if case.page else 0, at["places"] if case.far else 0)
        return struct.pack(
            KERNARG,
            at["k"], at["k_cache"] - back, *new, *cache, at["v"], at["v_cache"] - back, *new, *cache,
            at["q"], at["q_out"], *new, *new, at["cos"], at["sin"], at["lengths"], *pages,
            case.rotary // 2, case.rotary // 2, 2, ROWS, ROWS, HEADS, HEADS, width, case.rotary // 2,
            CAPACITY + ROWS, case.interleaved, 1, CAPACITY, PAGES if case.page else BATCH, case.page,
            case.blocks, case.vectors,
        )  # fmt: skip

    def place_of(self, b, position):
        """The row of the caches' memory, or None."""
        if not 0 <= position < CAPACITY:
            return None
        if self.case.far:
            return position if b == 0 else None
        if not self.case.page:
            return b * CAPACITY + position
        page = self.case.table[b * 2 + position // self.case.page]
        return page * self.case.page + position % self.case.page if 0 <= page < PAGES else None

    def rotated(self, row, position):
        half, row = self.case.rotary // 2, list(row)
        at = min(max(position, 0), CAPACITY + ROWS - 1) * half
        for j in range(half):
            one, two = (2 * j, 2 * j + 1) if self.case.interleaved else (j, j + half)
            c, s, x, y = self.before["cos"][at + j], self.before["sin"][at + j], row[one], row[two]
            row[one] = fp32(fp32(x * c) - fp32(y * s))
            row[two] = fp32(fp32(y * c) + fp32(x * s))
        return row

    def expected(self):
        width = self.case.head_dim
        after = {name: list(self.before[name]) for name in ("k_cache", "v_cache")} | {"q_out": []}
        for b, i, head in ((b, i, h) for b in range(BATCH) for i in range(ROWS) for h in range(HEADS)):
            position, first = self.case.lengths[b] + i, ((b * ROWS + i) * HEADS + head) * width
            q, k, v = (self.before[name][first : first + width] for name in "qkv")
            after["q_out"] += self.rotated(q, position)
            if (place := self.place_of(b, position)) is not None:
                to = slice((place * HEADS + head) * width, (place * HEADS + head + 1) * width)
                after["k_cache"][to], after["v_cache"][to] = self.rotated(k, position), v
        return {name: encode(values, self.dtype) for name, values in after.items()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("arch", ARCHS)
def test_append(core, device_code, disassembled, arch, dtype, name):
    kernel = f"fa_append_{dtype}"
    code = device_code(arch) / f"{kernel}.hsaco"
    call = Call(CASES[name], dtype)
    launch = Launch((call.case.blocks, BATCH, 3), (THREADS, 1, 1))
    memory = [each for each in call.memory.values() if each.size]
    machine = load_machine(core, code, disassembled(code))
    result = machine.run(kernel, launch, call.kernarg(), memory, Options(checks=ALL_CHECKS, seed=1))
    assert not result.error
    assert not result.findings, "\n".join(map(str, result.findings))
    for each, data in call.expected().items():
        assert call.memory[each].read() == data, each
