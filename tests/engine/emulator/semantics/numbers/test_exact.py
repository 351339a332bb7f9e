"""The exact arithmetic against this machine's floating point."""

import operator
import random
import struct
from fractions import Fraction

import pytest

from tests.engine.emulator.semantics.numbers.exact import F16, F32, F64, INF, convert
from tests.engine.emulator.semantics.numbers.operands import D, F, H

CODES = {F16: "<He", F32: "<If", F64: "<Qd"}
OVERFLOWS = {F16: F16.inf, F32: F32.inf}


def number(f, bits):
    order, whole, real = CODES[f]
    return struct.unpack(order + real, struct.pack(order + whole, bits))[0]


def bits_of(f, x):
    order, whole, real = CODES[f]
    try:
        return struct.unpack(order + whole, struct.pack(order + real, x))[0]
    except OverflowError:  # Python's error for a finite number that becomes an infinity
        return OVERFLOWS[f] | (f.sign if x < 0 else 0)


def operands(kind, count=3000):
    rng = random.Random(kind.name)
    finite = [x for x in kind.edges if not kind.format.is_nan(x)]
    return [(rng.choice(finite), rng.choice(finite)) for _ in range(count)] + [
        tuple(kind.value(rng) for _ in range(2)) for _ in range(count)
    ]


@pytest.mark.parametrize(("name", "function"), [("add", operator.add), ("mul", operator.mul)])
def test_double_arithmetic_is_this_machines(name, function):
    for a, b in operands(D):
        got, want = getattr(F64, name)(a, b), function(number(F64, a), number(F64, b))
        assert F64.is_nan(got) if want != want else got == bits_of(F64, want), (hex(a), hex(b))


@pytest.mark.parametrize(("kind", "wide"), [(H, F32), (H, F64), (F, F64)])
def test_conversions_to_a_narrower_format_are_this_machines(kind, wide):
    rng = random.Random(kind.name)
    source = {F32: F, F64: D}[wide]
    for x in (*source.edges, *(source.value(rng) for _ in range(3000))):
        want = number(wide, x)
        got = convert(x, wide, kind.format)
        assert kind.format.is_nan(got) if want != want else got == bits_of(kind.format, want), hex(x)


@pytest.mark.parametrize("kind", [H, F, D])
def test_a_value_rounds_to_itself_and_a_third_to_the_nearest(kind):
    f = kind.format
    for x in kind.edges:
        if not f.is_nan(x):
            assert f.round(f.value(x), negative_zero=f.negative(x)) == x
        if f.value(x) not in {INF, -INF} and not f.is_nan(x):
            third = f.value(x) / 3
            at = f.round(third)
            around = [f.value(y) for y in (at - 1, at + 1) if 0 < at & ~f.sign < f.inf - 1]
            assert all(abs(f.value(at) - third) <= abs(y - third) for y in around if y == y)


def test_fused_operations_round_once():
    """(1 + 2^-12)^2 - (1 + 2^-11) is 2^-24. A rounded product loses it."""
    a, c = F32.round(1 + Fraction(1, 1 << 12)), F32.round(-1 - Fraction(1, 1 << 11))
    assert F32.value(F32.fma(a, a, c)) == Fraction(1, 1 << 24)
    assert F32.value(F32.add(F32.mul(a, a), c)) == 0
    assert F32.fma(0x80000000, 0x3F800000, 0x80000000) == 0x80000000
    assert F32.fma(0x80000000, 0x3F800000, 0) == 0
