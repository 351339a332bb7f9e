"""Number formats in exact arithmetic: every result is computed as a fraction and rounded once.

Values are bit patterns (ints).  The emulator's C++ is compared with this independent code. Finite numbers are
integers times a power of two: much faster than fractions.
"""

import functools
from dataclasses import dataclass
from fractions import Fraction

INF = float("inf")
Value = Fraction | float  # a fraction, or one of +inf, -inf, nan


@dataclass(frozen=True, eq=False)
class Format:
    """A binary floating-point format of IEEE 754's kind."""

    exponent_bits: int
    mantissa_bits: int

    @functools.cached_property
    def width(self):
        return 1 + self.exponent_bits + self.mantissa_bits

    @functools.cached_property
    def sign(self):
        return 1 << (self.width - 1)

    @functools.cached_property
    def inf(self):
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @functools.cached_property
    def nan(self):
        return self.inf | 1 << (self.mantissa_bits - 1)

    @functools.cached_property
    def bias(self):
        return (1 << (self.exponent_bits - 1)) - 1

    @functools.cached_property
    def min_normal(self):
        return Fraction(2) ** (1 - self.bias)

    # ---- bits and values
    def is_nan(self, x):
        return (x & ~self.sign) > self.inf

    def is_signalling(self, x):
        return self.is_nan(x) and not x >> (self.mantissa_bits - 1) & 1

    def negative(self, x):
        return bool(x & self.sign)

    def parts(self, x):
        """(integer, exponent): a finite number is integer * 2^exponent."""
        exponent = x >> self.mantissa_bits & ((1 << self.exponent_bits) - 1)
        mantissa = x & ((1 << self.mantissa_bits) - 1)
        whole = mantissa | (1 << self.mantissa_bits if exponent else 0)
        return -whole if x & self.sign else whole, max(exponent, 1) - self.bias - self.mantissa_bits

    def flushed(self, x):
        """Zero, with the sign, for a denormal."""
        return x if x & self.inf else x & self.sign

    def value(self, x) -> Value:
        return value(self, x)

    def round(self, x: Value, *, negative_zero=False, toward_zero=False):
        """The nearest number to ``x``, ties to even (or the next one toward zero)."""
        if x != x:
            return self.nan
        if x in (INF, -INF):
            return self.inf | (self.sign if x < 0 else 0)
        x = Fraction(x)
        exponent = -(x.denominator.bit_length() - 1)
        if x.denominator != 1 << -exponent:
            # Not a binary fraction: enough bits to recognise a tie, plus a sticky bit for the rest.
            exponent = floor_log2(abs(x)) - self.mantissa_bits - 2
            whole = int(abs(x) / Fraction(2) ** exponent) << 1 | 1
            return self.round_parts(-whole if x < 0 else whole, exponent - 1, toward_zero=toward_zero)
        return self.round_parts(x.numerator, exponent, negative_zero=negative_zero, toward_zero=toward_zero)

    def round_parts(self, whole, exponent, *, negative_zero=False, toward_zero=False):
        """``round`` of whole * 2^exponent."""
        sign = self.sign if whole < 0 or (not whole and negative_zero) else 0
        whole = abs(whole)
        if not whole:
            return sign
        top = max(exponent + whole.bit_length() - 1, 1 - self.bias)
        shift = top - self.mantissa_bits - exponent
        units = whole >> shift if shift > 0 else whole << -shift
        if shift > 0 and not toward_zero:
            rest, half = whole & (1 << shift) - 1, 1 << shift - 1
            units += rest > half or (rest == half and units & 1)
        bits = units + (top + self.bias - 1 << self.mantissa_bits)
        if bits >= self.inf:
            bits = self.inf - 1 if toward_zero else self.inf
        return sign | bits

    # ---- operations
    def fma(self, a, b, c, out=None):
        """a * b + c, rounded once (to the format ``out``)."""
        out = out or self
        if all(x & self.inf != self.inf for x in (a, b, c)):
            (x, e), (y, f), (z, g) = self.parts(a), self.parts(b), self.parts(c)
            low = min(e + f, g)
            total = (x * y << e + f - low) + (z << g - low)
            negative_zero = self.negative(a) != self.negative(b) and self.negative(c) and not x * y | z
            return out.round_parts(total, low, negative_zero=negative_zero)
        x, y, z = self.value(a), self.value(b), self.value(c)
        if any(v != v for v in (x, y, z)):
            return out.nan
        if INF not in (abs(x), abs(y)):
            return out.round(z)
        if 0 in (x, y):
            return out.nan
        return out.round(
            (-INF if self.negative(a) != self.negative(b) else INF) + (z if abs(z) == INF else 0)
        )

    def add(self, a, b):
        return self.fma(a, self.round(Fraction(1)), b)

    def mul(self, a, b):
        zero_of_its_sign = (a ^ b) & self.sign
        return self.fma(a, b, zero_of_its_sign)

    def neg(self, a):
        return a ^ self.sign

    def abs(self, a):
        return a & ~self.sign

    def sub(self, a, b):
        return self.add(a, self.neg(b))

    def flush(self, a):
        """Denormals become zero of their sign."""
        return a & self.sign if not a & self.inf else a

    def quiet(self, a):
        return a | 1 << (self.mantissa_bits - 1) if self.is_nan(a) else a

    def pick(self, a, b, *, largest):
        """Maximum or minimum in IEEE mode: numbers beat quiet NaNs, signalling NaNs beat all, -0 < +0."""
        for x in (a, b):
            if self.is_signalling(x):
                return self.quiet(x)
        if self.is_nan(a):
            return b
        if self.is_nan(b):
            return a
        order = sorted((a, b), key=lambda x: (self.value(x), not self.negative(x)))
        return order[1 if largest else 0]

    def max(self, a, b):
        return self.pick(a, b, largest=True)

    def min(self, a, b):
        return self.pick(a, b, largest=False)

    def pick_number(self, a, b, *, largest):
        """Maximum or minimum of RDNA 4: numbers beat all NaNs."""
        if self.is_nan(a) and self.is_nan(b):
            return self.quiet(a)
        if self.is_nan(a) or self.is_nan(b):
            return b if self.is_nan(a) else a
        return self.pick(a, b, largest=largest)

    def max_num(self, a, b):
        return self.pick_number(a, b, largest=True)

    def min_num(self, a, b):
        return self.pick_number(a, b, largest=False)

    def to_integer(self, a, low, high):
        """Truncated and saturated. NaN is 0."""
        x = self.value(a)
        if x != x:
            return 0
        if abs(x) == INF:
            return low if x < 0 else high
        return max(low, min(high, int(x)))

    def classify(self, a):
        """The class bit as v_cmp_class counts them."""
        if self.is_nan(a):
            return 1 if self.is_signalling(a) else 2
        size, negative = self.abs(a), self.negative(a)
        if size == self.inf:
            return 4 if negative else 0x200
        if size == 0:
            return 0x20 if negative else 0x40
        if size < 1 << self.mantissa_bits:
            return 0x10 if negative else 0x80
        return 8 if negative else 0x100


@functools.lru_cache(maxsize=1 << 16)
def value(f: Format, x) -> Value:
    """The value of a bit pattern."""
    if f.is_nan(x):
        return float("nan")
    if x & f.inf == f.inf:
        return -INF if f.negative(x) else INF
    whole, exponent = f.parts(x)
    return Fraction(whole << exponent) if exponent >= 0 else Fraction(whole, 1 << -exponent)


def floor_log2(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if Fraction(2) ** guess <= x else guess - 1


def convert(x, source: Format, target: Format, *, toward_zero=False):
    return target.round(source.value(x), negative_zero=source.negative(x), toward_zero=toward_zero)


F16 = Format(5, 10)
BF16 = Format(8, 7)
F32 = Format(8, 23)
F64 = Format(11, 52)
