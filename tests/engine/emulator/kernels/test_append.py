"""Appending to a cache with arguments out of reach of tests/installed/numerics.

Written places are more than 32 bits of bytes apart, and there are more blocks than work.  Every bit is right,
and there are no findings.
"""

import random
import struct
from dataclasses import dataclass

import pytest

from wheel_builder.machine_code.emulator.formats import decode, encode
from wheel_builder.machine_code.emulator.machine import ALL_CHECKS, Launch, Options, load_machine
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.tables.archs import known_archs

ARCHS = tuple(known_archs())
THREADS = 256
BATCH, ROWS, HEADS = 2, 3, 2
CAPACITY, PAGES = 32, 5
FAR = 1 << 33  # elements: beyond 32 bits, as a number of bytes and of elements


@dataclass(frozen=True)
class Case:
    """``skew`` bytes off alignment. ``page`` 0 is a dense cache. In a ``far`` one, places are far apart."""

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
    "far-apart": Case(far=True, lengths=(1, 1)),
    "far-apart-elements": Case(far=True, lengths=(0, 3), skew=2),
    "blocks-without-work": Case(page=16, blocks=3),
}


def fp32(value):
    """Round a double. A sum or product of two fp32 numbers rounded this way equals fp32's own."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Call:
    """The memory of a call, with k and v as the kernel's fp32 numbers."""

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
        # If places are far apart, only the second has memory. It belongs to the first sequence.
        back = 2 * FAR if case.far else 0
        moved = (
            (at["k"], at["k_cache"] - back, cache),
            (at["v"], at["v_cache"] - back, cache),
            (at["q"], at["q_out"], new),
        )
        tensors = {
            f"tensors[{number}].{name}": value
            for number, (source, target, steps) in enumerate(moved)
            for name, value in zip(
                ("from", "to", "from_batch", "from_row", "from_head", "to_batch", "to_row", "to_head"),
                (source, target, *new, *steps), strict=True,
            )
        }  # fmt: skip
        return layout("AppendParams").pack(
            {
                **tensors, "cos": at["cos"], "sin": at["sin"], "cache_seqlens": at["lengths"],
                "block_table": at["table"] if case.page else 0,
                "cache_batch_idx": at["places"] if case.far else 0,
                "cos_row": case.rotary // 2, "sin_row": case.rotary // 2, "table_batch": 2,
                "rows_new": ROWS, "rows_q": ROWS, "nheads": HEADS, "nheads_k": HEADS, "head_dim": width,
                "rotary_half": case.rotary // 2, "rotary_rows": CAPACITY + ROWS,
                "interleaved": case.interleaved, "advances": 1, "capacity": CAPACITY,
                "batch_cache": PAGES if case.page else BATCH, "page": case.page, "blocks": case.blocks,
                "vectors": case.vectors,
            }
        )  # fmt: skip

    def place_of(self, b, position):
        """The row in the caches' memory, or None."""
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
