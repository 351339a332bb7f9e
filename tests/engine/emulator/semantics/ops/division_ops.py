"""The steps of a division: scale, fused multiply-add with correction, fixup (in float_ops).

v_div_scale moves operands to prevent over- and underflow in every step. VCC says whether the quotient has to
be moved back.  The test runs the whole sequence, as the compiler emits it, and expects the correctly rounded
quotient.  Operands stay within 2^-60..2^60 (2^-500..2^500), plus zeros, infinities and NaN: the ISA text
leaves quotients near the formats' limits undefined.
"""

import random
from fractions import Fraction

from tests.engine.emulator.semantics.numbers.exact import F32, F64, INF
from tests.engine.emulator.semantics.numbers.operands import D, F, Kind
from tests.engine.emulator.semantics.table import Op

# The compiler's expansion of a / b (a = v[4..], b = v[8..]): quotient in v[16..].
SINGLE = """v20, <44>, {b}, {b}, {a}
v_div_scale_f32 v21, <vcc>, {a}, {b}, {a}
v_rcp_f32 v22, v20
v_fma_f32 v23, -v20, v22, 1.0
v_fma_f32 v22, v23, v22, v22
v_mul_f32 v23, v21, v22
v_fma_f32 v24, -v20, v23, v21
v_fma_f32 v23, v24, v22, v23
v_fma_f32 v20, -v20, v23, v21
v_div_fmas_f32 v20, v20, v22, v23
v_div_fixup_f32 {d}, v20, {b}, {a}"""
DOUBLE = """v[20:21], <44>, {b}, {b}, {a}
v_rcp_f64 v[22:23], v[20:21]
v_fma_f64 v[24:25], -v[20:21], v[22:23], 1.0
v_fma_f64 v[22:23], v[22:23], v[24:25], v[22:23]
v_fma_f64 v[24:25], -v[20:21], v[22:23], 1.0
v_fma_f64 v[22:23], v[22:23], v[24:25], v[22:23]
v_div_scale_f64 v[24:25], <vcc>, {a}, {b}, {a}
v_mul_f64 v[26:27], v[24:25], v[22:23]
v_fma_f64 v[20:21], -v[20:21], v[26:27], v[24:25]
v_div_fmas_f64 v[20:21], v[20:21], v[22:23], v[26:27]
v_div_fixup_f64 {d}, v[20:21], {b}, {a}"""


def moderate(kind, limit):
    """A kind limited to numbers from 2^-limit to 2^limit."""
    f = kind.format
    low, high = f.round(Fraction(1, 2**limit)), f.round(Fraction(2**limit))
    edges = [x for x in kind.edges if f.is_nan(x) or f.abs(x) in {0, f.inf} or low <= f.abs(x) <= high]
    rng = random.Random(limit)
    edges += [rng.randint(low, high) | rng.choice((0, f.sign)) for _ in range(60)]
    return Chosen(kind.name, kind.width, tuple(edges), f)


class Chosen(Kind):
    """Edge values only."""

    def value(self, rng):
        return rng.choice(self.edges)


def quotient(f):
    def reference(a, b):
        x, y = f.value(a), f.value(b)
        sign = (a ^ b) & f.sign
        if x != x or y != y or (x == 0 and y == 0) or (abs(x) == INF and abs(y) == INF):
            return f.nan
        if y == 0 or abs(x) == INF:
            return f.inf | sign
        return sign if abs(y) == INF else f.round(x / y, negative_zero=bool(sign))

    return reference


def corrected(f, step):
    """The fused multiply-add. If VCC is set, times 2^step if its addend is large, otherwise 2^-step."""

    def reference(a, b, c, n):
        x = f.fma(a, b, c)
        v = f.value(x)
        if not n or v != v or v == 0 or abs(v) == INF:
            return x
        large = (c & f.inf) >> f.mantissa_bits > f.bias
        return f.round(v * Fraction(2) ** (step if large else -step), negative_zero=f.negative(x))

    return reference


OPS = [
    Op("v_div_scale_f32", F, (moderate(F, 60),) * 2, quotient(F32), SINGLE),
    Op("v_div_scale_f64", D, (moderate(D, 500),) * 2, quotient(F64), DOUBLE),
    Op("v_div_fmas_f32", F, (F, F, F), corrected(F32, 64), n="<vcc>"),
    Op("v_div_fmas_f64", D, (D, D, D), corrected(F64, 128), n="<vcc>"),
]
