"""The pseudocode's values: unbounded integers, and IEEE numbers rounded at each operation.

Integers are cut on a store, a typed read or a cast. No text relies on an overflow in between.
"""

import math
import operator
from dataclasses import dataclass
from fractions import Fraction

from tests.engine.emulator.semantics.narrow.formats import OCP, Small
from tests.engine.emulator.semantics.numbers import transcendentals
from tests.engine.emulator.semantics.numbers.exact import (
    BF16,
    F16,
    F32,
    F64,
    INF,
    Format,
    convert,
    floor_log2,
)

FORMATS = {("f", 16): F16, ("f", 32): F32, ("f", 64): F64, ("bf", 16): BF16}
FARTHEST = 9000  # a power of two: any number beyond it is zero or infinite


@dataclass(frozen=True, slots=True, eq=False)
class Float:
    f: Format
    bits: int
    __hash__ = None  # two zeros are equal, a NaN equals nothing

    @property
    def value(self):
        return self.f.value(self.bits)

    @property
    def nan(self):
        return self.f.is_nan(self.bits)

    def __add__(self, other):
        return Float(self.f, self.f.add(self.bits, same(self, other)))

    def __sub__(self, other):
        return Float(self.f, self.f.sub(self.bits, same(self, other)))

    def __mul__(self, other):
        if isinstance(other, Power):
            return other * self
        return Float(self.f, self.f.mul(self.bits, same(self, other)))

    def __truediv__(self, other):
        return Float(self.f, divide(self.f, self.bits, same(self, other)))

    def __pow__(self, exponent):
        if self.value != 2:
            msg = "only powers of two have a meaning here"
            raise TypeError(msg)
        return Power(exponent)

    def __neg__(self):
        return Float(self.f, self.f.neg(self.bits))

    def __pos__(self):
        return self

    def __abs__(self):
        return Float(self.f, self.f.abs(self.bits))

    def __lt__(self, other):
        return self.value < other.value

    def __le__(self, other):
        return self.value <= other.value

    def __gt__(self, other):
        return self.value > other.value

    def __ge__(self, other):
        return self.value >= other.value

    def __eq__(self, other):
        return self.value == other.value

    def __ne__(self, other):
        return self.value != other.value


class SignedZero(Float):
    """+0.0 and -0.0 in the text: equal only to the zero of that sign."""

    __slots__ = ()
    __hash__ = None

    def __eq__(self, other):
        return other.value == 0 and other.f.negative(other.bits) == self.f.negative(self.bits)


@dataclass(frozen=True)
class Power:
    """2 ** exponent, unrounded: a product with it is rounded once, as in the instructions."""

    exponent: int

    def __mul__(self, other):
        if other.nan or other.value in (INF, -INF, 0):
            return other
        n = max(-FARTHEST, min(FARTHEST, self.exponent))
        return Float(other.f, other.f.round(other.value * Fraction(2) ** n))


@dataclass(frozen=True, slots=True)
class Code:
    """A float of 8 bits, "fp8" or "bf8". Its meaning depends on the arch."""

    name: str
    bits: int


def same(x, y):
    """The bits of the second operand. Its format has to be the first one's."""
    if not isinstance(y, Float) or y.f is not x.f:
        msg = "operands of different formats"
        raise TypeError(msg)
    return y.bits


def divide(f, a, b):
    x, y, sign = f.value(a), f.value(b), (a ^ b) & f.sign
    if x != x or y != y or (x == 0 and y == 0) or (abs(x) == INF and abs(y) == INF):
        return f.nan
    if abs(x) == INF or y == 0:
        return f.inf | sign
    return sign if abs(y) == INF else f.round(x / y, negative_zero=bool(sign)) | sign


# ---- reading and writing bits
def raw(x):
    return x.bits if isinstance(x, Float | Code) else int(x)


def typed(x, kind, width):
    """``x.f32`` and the like: the low bits, with a meaning."""
    if (kind, width) in (("fp", 8), ("bf", 8)):
        return Code(f"{kind}8", raw(x) & 255)
    if kind in ("f", "bf"):
        f = FORMATS[kind, width]
        return cast(x, kind, width) if isinstance(x, Float) else Float(f, x & (1 << width) - 1)
    x = raw(x) & (1 << width) - 1
    return x - (1 << width) if kind == "i" and x >> (width - 1) else x


def cast(x, kind, width):
    """``32'F(x)`` and similar: a number converted to another type."""
    if isinstance(x, Power):
        return x
    if isinstance(x, Code):  # only RDNA 4's text
        return widened(OCP[x.name], FORMATS[kind, width])(x)
    if kind not in ("f", "bf") or not isinstance(x, Float):
        return typed(x, kind, width)
    f = FORMATS[kind, width]
    if f is x.f:
        return x
    if x.nan:  # the text asks a wider copy whether the NaN signals
        return Float(f, f.inf | 1 if x.f.is_signalling(x.bits) else f.nan)
    return Float(f, convert(x.bits, x.f, f))


def part(x, high, low):
    if high < low:
        return int(f"{part(x, low, high):0{low - high + 1}b}"[::-1], 2)
    return raw(x) >> low & (1 << high - low + 1) - 1


def bit(x, i):
    return x[raw(i)] if isinstance(x, list) else raw(x) >> i & 1


def put(x, high, low, value):
    """``x`` with ``value`` in bits ``low`` to ``high``."""
    mask = (1 << high - low + 1) - 1
    return raw(x) & ~(mask << low) | (raw(value) & mask) << low


def join(*pieces):
    """Widths and values, the highest first."""
    total = 0
    for width, x in pieces:
        total = total << width | raw(x) & (1 << width) - 1
    return total


def literal(width, text):
    f = FORMATS["f", width]
    return Float(f, f.round(Fraction(text)))


def signed_zero(width, sign):
    f = FORMATS["f", width]
    return SignedZero(f, f.sign if sign == "-" else 0)


def ordered_unequal(x, y):
    """``x <> y``: false with a NaN, unlike ``!=``."""
    return x < y or x > y


# ---- functions
def exactly(function):
    """A function of a number's value, rounded to its format. The sign of a zero operand stays."""

    def call(x):
        if x.nan:
            return x
        y = function(x.value)
        y = Fraction(y) if y == y and abs(y) != INF else y
        return Float(x.f, x.f.round(y, negative_zero=x.f.negative(x.bits)))

    return call


def whole(function):
    return exactly(lambda x: x if abs(x) == INF else function(x))


def from_integer(f):
    return lambda x: Float(f, f.round(Fraction(x)))


def to_integer(low, high):
    return lambda x: x.f.to_integer(x.bits, low, high)


def saturate(low, high):
    return lambda x: max(low, min(high, x))


def to_format(f):
    return lambda x, *, toward_zero=False: Float(f, convert(x.bits, x.f, f, toward_zero=toward_zero))


def exponent(x):
    """The exponent field as stored."""
    return x.bits >> x.f.mantissa_bits & ((1 << x.f.exponent_bits) - 1)


def mantissa(x):
    """In [0.5, 1)."""
    if x.value == 0:
        return x
    return Float(x.f, x.f.round(x.value / Fraction(2) ** (floor_log2(abs(x.value)) + 1)))


def extend(x, width):
    """The low ``width`` bits with their sign, 0 of none."""
    x = raw(x) & (1 << width) - 1
    return x - (1 << width) if width and x >> (width - 1) else x


def root(x):
    return Float(x.f, x.bits) if x.value == 0 else exactly(transcendentals.root)(x)


def power(_, x):
    return abs(exactly(transcendentals.power_of_two)(x))


def widened(small: Small, f: Format):
    """A code as a float, times a power of two given as its biased exponent."""

    def call(x, scale=127):
        value = small.values[x.bits]
        if scale == 255:
            return Float(f, f.nan)
        value = value if value != value or abs(value) == INF else value * Fraction(2) ** (raw(scale) - 127)
        return Float(f, f.round(value, negative_zero=x.bits > 127))

    return call


def narrowed(name, small: Small):
    return lambda x: Code(name, small.rounded(x.value, negative=x.f.negative(x.bits)))


def small_functions(family):
    """Conversions of floats of 8 bits, in an arch's formats."""
    found = {}
    for name, small in family.items():
        found[f"f32_to_{name}"] = narrowed(name, small)
        for target, f in (("f32", F32), ("f16", F16), ("bf16", BF16)):
            found[f"{name}_to_{target}"] = found[f"{name}_to_{target}_scale"] = widened(small, f)
    return found


FUNCTIONS = {
    "fma": lambda a, b, c: Float(a.f, a.f.fma(a.bits, same(a, b), same(a, c))),
    "abs": abs,
    "sign": lambda x: x.f.negative(x.bits),
    "exponent": exponent,
    "mantissa": mantissa,
    "ldexp": lambda x, n: Power(n) * x,
    "isNAN": operator.attrgetter("nan"),
    "isSignalNAN": lambda x: x.f.is_signalling(x.bits),
    "isQuietNAN": lambda x: x.nan and not x.f.is_signalling(x.bits),
    "cvtToQuietNAN": lambda x: Float(x.f, x.f.quiet(x.bits)),
    "isEven": lambda x: abs(x.value) != INF and not x.nan and int(x.value) % 2 == 0,
    "trunc": whole(math.trunc),
    "floor": whole(math.floor),
    "fract": exactly(lambda x: math.nan if abs(x) == INF else x - math.floor(x)),
    "sqrt": root,
    "log2": exactly(transcendentals.logarithm),
    "pow": power,
    "signext": lambda x: x,  # a signed type already has its sign
    "signext_from_bit": extend,
    "f32_to_f16": to_format(F16),
    "f32_to_bf16": to_format(BF16),
    "f64_to_f32": to_format(F32),
    "f16_to_f32": to_format(F32),
    "bf16_to_f32": to_format(F32),
    "f32_to_f64": to_format(F64),
    "i16_to_f16": from_integer(F16),
    "u16_to_f16": from_integer(F16),
    "i32_to_f32": from_integer(F32),
    "u32_to_f32": from_integer(F32),
    "i32_to_f64": from_integer(F64),
    "u32_to_f64": from_integer(F64),
    "i8_to_i32": lambda x: x,
    "u8_to_u32": lambda x: x,
    # Numbers outside of the range become its ends, as the ISA documents say under each instruction.
    "f16_to_i16": to_integer(-(2**15), 2**15 - 1),
    "f16_to_u16": to_integer(0, 2**16 - 1),
    "f32_to_i32": to_integer(-(2**31), 2**31 - 1),
    "f32_to_u32": to_integer(0, 2**32 - 1),
    "f64_to_i32": to_integer(-(2**31), 2**31 - 1),
    "f64_to_u32": to_integer(0, 2**32 - 1),
    "i32_to_i16": saturate(-(2**15), 2**15 - 1),
    "u32_to_u16": saturate(0, 2**16 - 1),
}
