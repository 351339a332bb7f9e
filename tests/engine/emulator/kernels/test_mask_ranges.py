"""fa_mask_ranges_fp16: bytes equal to a search in Python, for masks of any shape and strides."""

import random
from itertools import product

import pytest

from tests.engine.emulator.kernels.masks import find_ranges
from wheel_builder.machine_code.emulator.attention import HIDES
from wheel_builder.machine_code.emulator.machine import load_machine
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.tables.archs import arch_named, known_archs

ROWS = (1, 5, 16, 17, 32, 33, 64, 70, 129)
KEYS = (1, 7, 8, 9, 15, 16, 17, 24, 31, 40, 63, 64, 97, 128, 203, 520, 1100)
MANY = (4090, 4200, 5000)  # a workgroup looks at 4096 before any more
SHAPES = ("", "b", "h", "i", "bh", "bi", "hi", "bhi")  # dimensions with a constant mask
BLOCK = 33
CALLS, MANY_CALLS = 60, 6
# Whether a key is shown, by key, keys, the row's place on the diagonal, and whether it is its head's one.
KINDS = {
    "half": lambda draw, *_: draw.random() < 0.5,
    "nearly all": lambda draw, *_: draw.random() < 0.999,
    "nearly nothing": lambda draw, *_: draw.random() < 0.002,
    "right": lambda _, key, keys, *__: key < keys // 2,
    "left": lambda _, key, keys, *__: key >= keys // 3,
    "later": lambda _, key, __, place, ___: key <= place,
    "blocks": lambda _, key, __, place, ___: key // BLOCK == place // BLOCK,
    "all": lambda *_: True,
    "nothing": lambda *_: False,
    "one": lambda *given: given[-1],
    "all but one": lambda *given: not given[-1],
}


# Elements that show a key, little-endian. For biases: zeros, the neighbours of -inf, infinity, and numbers
# with one byte of -inf.
SHOW = {
    "bool": (1,),
    "fp16": (0x0000, 0x8000, 0xFBFF, 0xFC01, 0x7C00, 0x00FC, 0xFCFC),
    "bf16": (0x0000, 0x8000, 0xFF7F, 0xFF81, 0x7F80, 0x80FF, 0xFFFF),
}


class Mask:
    """A mask of a call with sizes ``whole`` (sequences, heads, rows), drawn from ``draw``."""

    def __init__(self, draw, whole, keys, dtype):
        same, width = draw.choice(SHAPES), -(-keys // 8) * 8
        sizes = [1 if name in same else size for name, size in zip("bhi", whole, strict=True)]
        row = width + draw.choice((0, 8, 24))
        head = row * sizes[2] + draw.choice((0, 8))
        steps = (head * sizes[1] + draw.choice((0, 8)), head, row)
        self.steps = [step if size > 1 else 0 for step, size in zip(steps, sizes, strict=True)]
        last = sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
        hides, size = HIDES[dtype], len(HIDES[dtype])
        shows = [each.to_bytes(size, "little") for each in SHOW[dtype]]
        # Random elements after the keys and between rows.
        data = bytearray(b"".join(draw.choice((hides, shows[0])) for _ in range(last + width)))
        shown, one = KINDS[draw.choice([*KINDS])], draw.randrange(keys)
        for b, h, i in product(*map(range, sizes)):
            at, place = b * steps[0] + h * steps[1] + i * steps[2], i * keys // sizes[2]
            for key in range(keys):
                is_one = (i, key) == (sizes[2] // 2, one)
                is_shown = shown(draw, key, keys, place, is_one)
                begin = (at + key) * size
                data[begin : begin + size] = draw.choice(shows) if is_shown else hides
        self.memory = Memory.of(bytes(data), "mask", readonly=True, skew=draw.choice((0, 8)) * size)


def check(machine, group, draw, whole, keys):
    batch, heads, rows = whole
    dtype, head_dim = draw.choice([*SHOW]), draw.choice((64, 72, 128))
    mask = Mask(draw, whole, keys, dtype)
    row = heads * head_dim
    steps = (rows * row + 8, head_dim, row)
    out = Memory.output(2 * batch * steps[0], "out")
    find_ranges(machine, group, whole, keys, (mask.memory, mask.steps, dtype), (out, steps))


@pytest.mark.parametrize("arch", known_archs())
def test_ranges_are_those_of_the_rows_of_a_wave(core, device_code, disassembled, arch):
    code = device_code(arch) / "fa_mask_ranges_fp16.hsaco"
    machine, group = load_machine(core, code, disassembled(code)), arch_named(arch).isa.step_columns
    draw = random.Random(arch)
    for _ in range(CALLS):
        whole = (draw.choice((1, 2, 3)), draw.choice((1, 2, 5)), draw.choice(ROWS))
        check(machine, group, draw, whole, draw.choice(KEYS))
    for _ in range(MANY_CALLS):
        check(machine, group, draw, (1, draw.choice((1, 2)), draw.choice((1, 17, 33))), draw.choice(MANY))
