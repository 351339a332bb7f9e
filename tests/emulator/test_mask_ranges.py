"""fa_mask_ranges_fp16: the same bytes as found in Python, for masks of any shape and strides."""

import random
from itertools import product

import pytest

from tests.emulator.masks import find_ranges
from wheel_builder.base.archs import arch_named, known_archs
from wheel_builder.emulator.machine import load_machine
from wheel_builder.emulator.memory import Memory

ROWS = (1, 5, 16, 17, 32, 33, 64, 70, 129)
KEYS = (1, 7, 8, 9, 15, 16, 17, 24, 31, 40, 63, 64, 97, 128, 203, 520, 1100)
MANY = (4090, 4200, 5000)  # a workgroup looks at 4096 before any more
SHAPES = ("", "b", "h", "i", "bh", "bi", "hi", "bhi")  # along what the mask is the same
BLOCK = 33
CALLS, MANY_CALLS = 36, 4
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


class Mask:
    """A mask of a call with sizes ``whole`` (sequences, heads, rows), drawn from ``draw``."""

    def __init__(self, draw, whole, keys):
        same, width = draw.choice(SHAPES), -(-keys // 8) * 8
        sizes = [1 if name in same else size for name, size in zip("bhi", whole, strict=True)]
        row = width + draw.choice((0, 8, 24))
        head = row * sizes[2] + draw.choice((0, 8))
        steps = (head * sizes[1] + draw.choice((0, 8)), head, row)
        self.steps = [step if size > 1 else 0 for step, size in zip(steps, sizes, strict=True)]
        last = sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
        # Behind the keys, and between rows, there is anything.
        data = bytearray(draw.getrandbits(1) for _ in range(last + width))
        shown, one = KINDS[draw.choice([*KINDS])], draw.randrange(keys)
        for b, h, i in product(*map(range, sizes)):
            at, place = b * steps[0] + h * steps[1] + i * steps[2], i * keys // sizes[2]
            for key in range(keys):
                is_one = (i, key) == (sizes[2] // 2, one)
                data[at + key] = shown(draw, key, keys, place, is_one)
        self.memory = Memory.of(bytes(data), "mask", readonly=True, skew=draw.choice((0, 8)))


def check(machine, group, draw, whole, keys):
    batch, heads, rows = whole
    mask, head_dim = Mask(draw, whole, keys), draw.choice((64, 72, 128))
    row = heads * head_dim
    steps = (rows * row + 8, head_dim, row)
    out = Memory.output(2 * batch * steps[0], "out")
    find_ranges(machine, group, whole, keys, (mask.memory, mask.steps), (out, steps))


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
