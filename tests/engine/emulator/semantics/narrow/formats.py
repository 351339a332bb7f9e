"""Floats of 8 bits, from their definitions: 256 numbers each, and rounding by comparison with all of them."""

import functools
import itertools
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction

from tests.engine.emulator.semantics.numbers.exact import F32, INF
from wheel_builder.tables.archs import arch_named

NAN = float("nan")


@dataclass(frozen=True)
class Small:
    """FP8 (E4M3) or BF8 (E5M2). ``fnuz``: 0x80 is NaN, there is neither -0 nor an infinity."""

    mantissa_bits: int
    bias: int
    largest: int  # code
    fnuz: bool

    @functools.cached_property
    def values(self):
        """The number of each code."""
        return [self._number(code & 0x7F, negative=code > 0x7F) for code in range(256)]

    def _number(self, size, *, negative):
        if self.fnuz and negative and not size:
            return NAN
        if size > self.largest:
            infinite = self.mantissa_bits == 2 and size == self.largest + 1
            return NAN if not infinite else -INF if negative else INF
        exponent, fraction = divmod(size, 1 << self.mantissa_bits)
        whole = Fraction(fraction, 1 << self.mantissa_bits) + (exponent > 0)
        x = whole * Fraction(2) ** (max(exponent, 1) - self.bias)
        return -x if negative else x

    @functools.cached_property
    def steps(self):
        """The numbers from 0 on, and the next one that it lacks."""
        found = self.values[: self.largest + 1]
        return [*found, found[-1] + (found[-1] - found[-2])]

    def is_nan(self, code):
        return self.values[code] != self.values[code]

    @property
    def too_large(self):
        """The code of a positive number beyond the range, without saturation."""
        return 0x80 if self.fnuz else self.largest + 1

    @property
    def nan(self):
        """One code of NaN."""
        return 0x80 if self.fnuz else 0x7F

    def signed(self, size, *, negative):
        if self.fnuz and size in (0, 0x80):
            return size
        return size | 0x80 if negative else size

    def beyond(self, *, negative, saturates):
        return self.signed(self.largest if saturates else self.too_large, negative=negative)

    def rounded(self, x, *, negative, saturates=False, infinities=False):
        """The code of the nearest number, ties to even.

        ``saturates``: beyond the range it is the largest number, for infinities if ``infinities``.
        """
        if x != x:
            return self.nan
        if abs(x) == INF:
            return self.beyond(negative=x < 0, saturates=saturates and infinities)
        size = self._nearest(abs(x))
        if size > self.largest:
            return self.beyond(negative=negative, saturates=saturates)
        return self.signed(size, negative=negative)

    def _nearest(self, x):
        if x >= self.steps[-1]:
            return self.largest + 1
        above = bisect_left(self.steps, x)
        if self.steps[above] == x:
            return above
        low, high = x - self.steps[above - 1], self.steps[above] - x
        return above - 1 if low < high or (low == high and above % 2) else above

    def random(self, x, bits, *, negative, saturates=False, infinities=False):
        """Stochastic rounding: cut to the precision of normal numbers, a random part of a step, cut again."""
        if x != x or abs(x) == INF:
            return self.rounded(x, negative=negative, saturates=saturates, infinities=infinities)
        binade = max(floor_log2(abs(x)), 1 - self.bias) if x else 1 - self.bias
        step = Fraction(2) ** (binade - self.mantissa_bits)
        cut = 23 - self.mantissa_bits
        fine = int(abs(x) / (step / (1 << cut)))
        size = (fine + (bits >> 32 - cut) >> cut) * step
        if size > self.steps[-2]:
            return self.beyond(negative=negative, saturates=saturates)
        return self.signed(self.steps.index(size), negative=negative)


def floor_log2(x):
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if Fraction(2) ** guess <= x else guess - 1


OCP = {"fp8": Small(3, 7, 0x7E, fnuz=False), "bf8": Small(2, 15, 0x7B, fnuz=False)}
FNUZ = {"fp8": Small(3, 8, 0x7F, fnuz=True), "bf8": Small(2, 16, 0x7F, fnuz=True)}
FAMILIES = {"ocp": OCP, "fnuz": FNUZ}


def family_of(arch):
    return FAMILIES[arch_named(arch).isa.fp8]


@functools.cache
def boundaries(small):
    """f32 around each number and each middle of two: exact, and one unit of f32 to both sides."""
    ends = [*small.steps, *(2 * small.steps[-1] * n for n in (1, 2**30, 2**100))]
    middles = [(a + b) / 2 for a, b in itertools.pairwise(ends)]
    exact = [F32.round(x) for x in (*ends, *middles)]
    around = {x + n for x in exact for n in (-1, 0, 1) if x or n == 0}
    around |= {1, 2, F32.inf, F32.nan, F32.inf | 1, F32.inf - 1, 1 << 23}
    return sorted({x | sign for x in around for sign in (0, F32.sign)})
