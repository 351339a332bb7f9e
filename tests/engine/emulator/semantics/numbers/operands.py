"""Kinds of operands: width, interesting values, and equality of results."""

import random
from dataclasses import dataclass

from tests.engine.emulator.semantics.numbers.exact import BF16, F16, F32, F64, Format


@dataclass(frozen=True)
class Kind:
    name: str
    width: int
    edges: tuple[int, ...]
    format: Format | None = None

    @property
    def words(self):
        return max(1, self.width // 32)

    def canonical(self, x):
        """One pattern for all NaNs of a float result: their payload is unpublished."""
        x &= (1 << self.width) - 1
        return self.format.nan if self.format and self.format.is_nan(x) else x

    def value(self, rng: random.Random):
        return rng.choice(self.edges) if rng.random() < 0.6 else rng.getrandbits(self.width)


def integers(width):
    top = 1 << (width - 1)
    some = (
        0,
        1,
        2,
        3,
        5,
        7,
        15,
        16,
        31,
        32,
        33,
        63,
        64,
        0x55,
        0x7F,
        0x80,
        0xFF,
        0x100,
        top // 2,
        top - 1,
        top,
        top + 1,
    )
    large = (0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF, 0x800000, 0xFFFFFF, 0x1000000, 0x12345678)
    return tuple(dict.fromkeys(x & (2 * top - 1) for x in (*some, *large, -1, -2, -16, -17, -31, -32, -33)))


def floats(f: Format):
    one, ulp = f.round(1), 1
    normal = 1 << f.mantissa_bits  # the smallest one
    positive = [
        0,
        1,
        2,
        normal // 2,
        normal - 1,
        normal,
        normal + 1,
        one,
        one + ulp,
        one - ulp,
        one + normal // 2,
    ]
    positive += [
        f.round(2),
        f.round(3),
        f.round(10) + 1,
        one - normal,
        one + 2 * normal,
        f.inf - 1,
        f.inf - 2,
        f.inf,
    ]
    # around the limits of halves and of 32-bit integers, ties of conversion to a narrower format
    if f.width >= 32:
        tie = (2**10 + 1) * 2**-10
        limits = (
            65504,
            65519,
            65520,
            65536,
            2.0**-14,
            2.0**-24,
            2.0**-25,
            1.5 * 2.0**-24,
            2.5 * 2.0**-24,
            127.5,
            255.5,
        )
        limits += (
            tie + 2.0**-11,
            tie + 2.0**-11 + 2.0**-20,
            1 + 2.0**-11,
            2.0**24,
            2.0**31,
            2.0**32,
            2.0**31 - 128,
        )
        positive += [f.round(exact(x)) for x in limits]
    both = [*positive, *(x | f.sign for x in positive)]
    return tuple(dict.fromkeys([*both, f.nan, f.nan | f.sign | 1, f.inf | 1]))


def exact(x):
    from fractions import Fraction

    return Fraction(x)


U16 = Kind("u16", 16, integers(16))
U32 = Kind("u32", 32, integers(32))
U64 = Kind("u64", 64, (*integers(64), 1 << 32, (1 << 32) - 1, 0xFFFFFFFF00000000, 0x80000000FFFFFFFF))
H = Kind("f16", 16, floats(F16), F16)
B = Kind("bf16", 16, floats(BF16), BF16)
F = Kind("f32", 32, floats(F32), F32)
D = Kind("f64", 64, floats(F64), F64)
# Counts of a shift and fields' offsets and widths, also too large and negative ones.
SHIFT = Kind("shift", 32, (*range(36), 63, 64, 65, 0xFFFFFFFF, 0xFFFFFFE0, 0x80000001, 0x10001F))
SHIFT16 = Kind("shift16", 16, (*range(18), 31, 32, 0xFFFF, 0x8001, 0xFFF0))
PAIR_F16 = Kind(
    "2xf16", 32, tuple(a | b << 16 for a, b in zip(floats(F16), reversed(floats(F16)), strict=True))
)
PAIR_B16 = Kind(
    "2xb16", 32, tuple(a | b << 16 for a, b in zip(integers(16), reversed(integers(16)), strict=True))
)
# Finite values, for cases where NaNs would hide the operand read.
NUMBERS = [x for x in F.edges if x & F32.inf != F32.inf]
PAIR_F32 = Kind(
    "2xf32", 64, tuple(a | b << 32 for a, b in zip(floats(F32), reversed(floats(F32)), strict=True))
)


def signed(x, width=32):
    x &= (1 << width) - 1
    return x - (1 << width) if x >> (width - 1) else x


def halves(x):
    return x & 0xFFFF, x >> 16 & 0xFFFF
