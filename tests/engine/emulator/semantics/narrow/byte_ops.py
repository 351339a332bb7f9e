"""Dot products of four bytes, conversions of bf16, and halves saturated under MODE.FP16_OVFL."""

from fractions import Fraction

from tests.engine.emulator.semantics.narrow.conversion_ops import CODES, SATURATE
from tests.engine.emulator.semantics.narrow.formats import OCP
from tests.engine.emulator.semantics.numbers.exact import BF16, F16, F32, INF, convert
from tests.engine.emulator.semantics.numbers.operands import U16, U32, B, F, H, signed
from tests.engine.emulator.semantics.numbers.pairs import PF, P, each, pair
from tests.engine.emulator.semantics.ops.packed_ops import MH, mixed
from tests.engine.emulator.semantics.table import Op

THREE = (U32, U32, U32)
I32, UNSIGNED = (-(2**31), 2**31 - 1), (0, 2**32 - 1)


def bytes_of(x, *, is_signed):
    return [signed(b, 8) if is_signed else b for b in x.to_bytes(4, "little")]


def products(a, b, *, signs=(True, True)):
    pairs = zip(bytes_of(a, is_signed=signs[0]), bytes_of(b, is_signed=signs[1]), strict=True)
    return sum(x * y for x, y in pairs)


def saturated(x, ends):
    return max(ends[0], min(ends[1], x))


def mixed_signs(name):
    """v_dot4_i32_iu8: neg_lo says whose bytes are signed."""
    for signs in ((False, False), (True, False), (False, True), (True, True)):
        text = f"{{d}}, {{a}}, {{b}}, {{c}} neg_lo:[{signs[0]:d},{signs[1]:d},0]"

        def wraps(a, b, c, signs=signs):
            return signed(c) + products(a, b, signs=signs)

        def stops(a, b, c, wraps=wraps):
            return saturated(wraps(a, b, c), I32)

        yield Op(name, U32, THREE, wraps, text)
        yield Op(name, U32, THREE, stops, text + " clamp")


def floats(first, second):
    """Sums in f32, byte 0 first."""

    def reference(a, b, c):
        total = c
        for x, y in zip(a.to_bytes(4, "little"), b.to_bytes(4, "little"), strict=True):
            values = OCP[first].values[x], OCP[second].values[y]
            negative = (x ^ y) > 0x7F
            total = F32.add(total, exact_product(*values, negative=negative))
        return total

    return reference


def exact_product(x, y, *, negative):
    """In f32, which has all products."""
    if x != x or y != y or (INF in (abs(x), abs(y)) and 0 in (x, y)):
        return F32.nan
    if INF in (abs(x), abs(y)):
        return F32.inf | (F32.sign if negative else 0)
    return F32.round(Fraction(x) * y, negative_zero=negative)


DOTS = [
    Op("v_dot4_i32_i8 rdna3:-", U32, THREE, lambda a, b, c: signed(c) + products(a, b)),
    Op(
        "v_dot4_i32_i8 rdna3:-",
        U32,
        THREE,
        lambda a, b, c: saturated(signed(c) + products(a, b), I32),
        "{d}, {a}, {b}, {c} clamp",
    ),
    Op(
        "v_dot4c_i32_i8 cdna0:- cdna1:v_dot4c_i32_i8 rdna3:-",
        U32,
        (U32, U32),
        lambda a, b, d: signed(d) + products(a, b),
    ),
    Op("v_dot4_u32_u8", U32, THREE, lambda a, b, c: c + products(a, b, signs=(False, False))),
    Op(
        "v_dot4_u32_u8",
        U32,
        THREE,
        lambda a, b, c: saturated(c + products(a, b, signs=(False, False)), UNSIGNED),
        "{d}, {a}, {b}, {c} clamp",
    ),
    *mixed_signs("rdna3:v_dot4_i32_iu8"),
    *(
        Op(f"rdna4:v_dot4_f32_{x}_{y}", F, (CODES, CODES, F), floats(x, y))
        for x in ("fp8", "bf8")
        for y in ("fp8", "bf8")
    ),
]


def saturated_bytes(a):
    return sum(saturated(signed(a >> 16 * i & 0xFFFF, 16), (0, 255)) << 8 * i for i in range(2))


# ---- halves that saturate
def most(bits, *operands):
    """The largest half in place of an infinity, unless an operand is infinite."""
    infinite = any(abs(x) == INF for x in operands)
    return bits - 1 if F16.abs(bits) == F16.inf and not infinite else bits


def of_halves(function):
    return lambda *xs: most(function(*xs), *map(F16.value, xs))


def of_floats(x, *operands):
    return most(convert(x, F32, F16), *map(F32.value, operands or (x,)))


def fma_of_floats(a, b, c):
    """An FMA beyond f32 is beyond fp16, too."""
    values = [F32.value(x) for x in (a, b, c)]
    if any(x != x or abs(x) == INF for x in values):
        return convert(mixed(a, b, c, F32), F32, F16)
    x, y, z = values
    total = F32.fma(a, b, c)
    if abs(F32.value(total)) == INF:
        return F16.inf - 1 | (F16.sign if x * y + z < 0 else 0)
    return of_floats(total)


LIMITS = ((0x477FE000,), (0x477FEFFF,), (0x477FF000,), (0xC77FF000,), (0x7F7FFFFF,), (F32.inf,))
SATURATED = [
    Op("v_cvt_f16_f32", H, (F,), of_floats, before=SATURATE, extra=LIMITS),
    Op("v_cvt_f16_u16", H, (U16,), lambda a: most(F16.round(Fraction(a))), before=SATURATE),
    Op("v_add_f16", H, (H, H), of_halves(F16.add), before=SATURATE),
    Op("v_mul_f16", H, (H, H), of_halves(F16.mul), before=SATURATE),
    Op("v_fma_f16", H, (H, H, H), of_halves(F16.fma), keeps_high_on_gfx9=True, before=SATURATE),
    Op("v_pk_add_f16", PF, (P, P), lambda a, b: each(of_halves(F16.add), a, b), before=SATURATE),
    Op("v_pk_mul_f16", PF, (P, P), lambda a, b: each(of_halves(F16.mul), a, b), before=SATURATE),
    Op("v_pk_fma_f16", PF, (P, P, P), lambda a, b, c: each(of_halves(F16.fma), a, b, c), before=SATURATE),
    Op("cdna4:v_cvt_pk_f16_f32", PF, (F, F), lambda a, b: pair(of_floats(a), of_floats(b)), before=SATURATE),
    Op(
        "v_fma_mixlo_f16",
        MH,
        (F, F, F),
        lambda a, b, c, d: fma_of_floats(a, b, c) | d & 0xFFFF0000,
        before=SATURATE,
    ),
    # rounded toward zero, it never overflows
    Op(
        "v_cvt_pkrtz_f16_f32 rdna3:v_cvt_pk_rtz_f16_f32",
        PF,
        (F, F),
        lambda a, b: pair(convert(a, F32, F16, toward_zero=True), convert(b, F32, F16, toward_zero=True)),
        before=SATURATE,
    ),
]

OPS = [
    *DOTS,
    *SATURATED,
    Op("cdna4:v_cvt_f32_bf16", F, (B,), lambda a: convert(a, BF16, F32)),
    Op("v_sat_pk_u8_i16", U16, (U32,), saturated_bytes),
]
