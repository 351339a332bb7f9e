"""References for instructions whose results are within some ulp of the nearest number."""

import math
from fractions import Fraction

from tests.engine.emulator.semantics.numbers.exact import F32 as E32
from tests.engine.emulator.semantics.numbers.exact import INF


def rounded(f, function):
    """A reference: rounds ``function`` of the value. The function is exact or good to 2^-50."""

    def reference(a):
        x = f.value(a)
        if x != x:
            return f.nan
        y = function(x)
        return f.round(Fraction(y) if abs(y) != INF and y == y else y, negative_zero=x == 0 and f.negative(a))

    return reference


def transcendental(function):
    """f32: denormals in and out are zero, as on the hardware. The value is good to 2^-50."""

    def reference(a):
        a = E32.flush(a)
        x = E32.value(a)
        if x != x:
            return E32.nan
        y = function(x)
        y = Fraction(y) if y == y and abs(y) != INF else y
        return E32.flush(E32.round(y, negative_zero=x == 0 and E32.negative(a)))

    return reference


def power_of_two(x):
    if abs(x) == INF or abs(x) >= 4000:
        return INF if x > 0 else 0.0
    whole = math.floor(x)
    return Fraction(2.0 ** float(x - whole)) * Fraction(2) ** whole


def logarithm(x):
    if x < 0:
        return math.nan
    return -INF if x == 0 else INF if x == INF else math.log2(x)


def signed_zero_rcp(f):
    def reference(a):
        if f is E32:
            a = f.flush(a)
        x = f.value(a)
        if x != x:
            return f.nan
        sign = f.sign if f.negative(a) else 0
        if x == 0:
            return f.inf | sign
        y = f.round(1 / x if abs(x) != INF else Fraction(0)) | sign
        return f.flush(y) if f is E32 else y

    return reference


def root(x):
    """The square root of a fraction, good to 2^-60 of it."""
    if x < 0:
        return math.nan
    if x == INF:
        return INF
    shift = 2 * max(0, 80 + x.denominator.bit_length() - x.numerator.bit_length() // 2)
    return Fraction(math.isqrt((x.numerator << shift) // x.denominator)) / 2 ** (shift // 2)


def inverse_root(f):
    def reference(a):
        if f is E32:
            a = f.flush(a)
        x = f.value(a)
        if x != x or x < 0:
            return f.nan
        if x == 0:
            return f.inf | (a & f.sign)
        return f.round(Fraction(0) if x == INF else 1 / root(x))

    return reference


def wave(function):
    """sin or cos of revolutions, reduced exactly before the float function."""

    def at(x):
        if abs(x) == INF:
            return math.nan
        x -= round(x)
        quarters = x * 4
        if quarters.denominator == 1:  # multiples of a quarter turn are exact
            return (0.0, 1.0, 0.0, -1.0)[(int(quarters) + (function is math.cos)) % 4]
        return function(2 * math.pi * float(x))

    return at
