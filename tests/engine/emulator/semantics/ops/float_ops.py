"""Vector instructions on floating-point numbers, and conversions."""

import math
from fractions import Fraction

from tests.engine.emulator.semantics.numbers import exact
from tests.engine.emulator.semantics.numbers.exact import INF, convert
from tests.engine.emulator.semantics.numbers.operands import (
    U16,
    U32,
    D,
    F,
    H,
    signed,
)
from tests.engine.emulator.semantics.numbers.pairs import PB, PF, pair
from tests.engine.emulator.semantics.numbers.transcendentals import (
    inverse_root,
    logarithm,
    power_of_two,
    root,
    rounded,
    signed_zero_rcp,
    transcendental,
    wave,
)
from tests.engine.emulator.semantics.table import Op

E16, E32, E64, EB = exact.F16, exact.F32, exact.F64, exact.BF16
TINY = Fraction(2) ** -126


def integral(f, function):
    """Rounding to an integral value: infinities stay, zeros keep the operand's sign."""
    nearest = rounded(f, lambda x: x if abs(x) == INF else function(x))
    return lambda a: nearest(a) | (0 if f.is_nan(a) else a & f.sign)


def fract(f):
    def reference(a):
        x = f.value(a)
        if x != x or abs(x) == INF:
            return f.nan
        return min(f.round(x - math.floor(x)), f.round(1) - 1)

    return reference


def scale(f):
    """x * 2^n, rounded once."""

    def reference(a, b):
        x, n = f.value(a), signed(b, 32 if f.width > 16 else 16)
        if x != x or x == 0 or abs(x) == INF:
            return a
        n = max(-9000, min(9000, n))
        return f.round(x * Fraction(2) ** n, negative_zero=f.negative(a))

    return reference


def mantissa(f):
    def reference(a):
        x = f.value(a)
        if x != x or x == 0 or abs(x) == INF:
            return a
        return f.round(x / Fraction(2) ** (exact.floor_log2(abs(x)) + 1))

    return reference


def exponent(f):
    def reference(a):
        x = f.value(a)
        return 0 if x != x or x == 0 or abs(x) == INF else exact.floor_log2(abs(x)) + 1

    return reference


def median(f, smaller):
    def reference(a, b, c):
        if any(f.is_nan(x) for x in (a, b, c)):
            return smaller(smaller(a, b), c)
        return sorted((a, b, c), key=lambda x: (f.value(x), not f.negative(x)))[1]

    return reference


def legacy_mul(a, b):
    """0 times anything is +0."""
    return 0 if 0 in (E32.value(a), E32.value(b)) else E32.mul(a, b)


def mad(a, b, c):
    """gfx9's v_mad: two roundings, denormals flushed at each step."""
    f = E32
    return f.flush(f.add(f.flush(f.mul(f.flush(a), f.flush(b))), f.flush(c)))


def on_top(function):
    """A reference whose third operand is the old destination."""
    return lambda a, b, d: function(a, b, d)  # noqa: PLW0108  (the names say which operands)


def fused(f):
    return on_top(f.fma)


def to_int(f, low, high, function=int):
    def reference(a):
        x = f.value(a)
        if x != x or abs(x) == INF:
            return f.to_integer(a, low, high)
        return max(low, min(high, function(x)))

    return reference


I32_RANGE, U32_RANGE = (-(2**31), 2**31 - 1), (0, 2**32 - 1)


def from_int(f, sign=False, width=32):
    return lambda a: f.round(Fraction(signed(a, width) if sign else a))


def divide_fixup(f):
    """The special cases of a / b after an iteration gave the quotient's magnitude."""

    def reference(a, b, c):
        den, num = f.value(b), f.value(c)
        sign = (b ^ c) & f.sign
        if num != num or den != den:
            return f.nan
        if (num == 0 and den == 0) or (abs(num) == INF and abs(den) == INF):
            return f.nan
        if den == 0 or abs(num) == INF:
            return f.inf | sign
        if num == 0 or abs(den) == INF:
            return sign
        gap = (c & f.inf) >> f.mantissa_bits, (b & f.inf) >> f.mantissa_bits
        smallest = {16: -(10**6), 32: -150, 64: -1075}[f.width]
        return sign if gap[0] - gap[1] < smallest else f.abs(a) | sign

    return reference


def clamped(f, x):
    """To 0..1. NaN is 0 (DX10_CLAMP is on), -0 stays, as LLVM folds it."""
    v = f.value(x)
    return 0 if v != v or v < 0 else f.round(1) if v > 1 else x


def picks(prefix, kind, f):
    """Minimum and maximum of two operands, and of three where a format has those."""
    two, three = (kind, kind), (kind, kind, kind)
    keep = {"keeps_high_on_gfx9": f is E16}
    for num, names, low, high in (
        ("", "v_{}_{} rdna4:-", f.min, f.max),
        ("_num", "rdna4:v_{}_{}", f.min_num, f.max_num),
    ):

        def name(which, names=names, num=num):
            return names.format(which + num, prefix)

        yield Op(name("max"), kind, two, high)
        yield Op(name("min"), kind, two, low)
        if f is E64:
            continue
        yield Op(name("max3"), kind, three, lambda a, b, c, f=high: f(f(a, b), c), **keep)
        yield Op(name("min3"), kind, three, lambda a, b, c, f=low: f(f(a, b), c), **keep)
        yield Op(name("med3"), kind, three, median(f, low), **keep)
        later = "" if num else "rdna3:"
        yield Op(later + name("maxmin"), kind, three, lambda a, b, c, f=low, g=high: f(g(a, b), c))
        yield Op(later + name("minmax"), kind, three, lambda a, b, c, f=low, g=high: g(f(a, b), c))


def binary(prefix, kind, f):
    """The arithmetic of every format, with source and output modifiers."""
    two, three = (kind, kind), (kind, kind, kind)
    keep = {"keeps_high_on_gfx9": f is E16}
    v = f"v_{{}}_{prefix}".format
    out = [
        Op(v("add"), kind, two, f.add),
        Op(v("mul"), kind, two, f.mul),
        Op(v("fma"), kind, three, f.fma, **keep),
    ]
    out += picks(prefix, kind, f)
    out += [
        Op(v("trunc"), kind, (kind,), integral(f, math.trunc)),
        Op(v("ceil"), kind, (kind,), integral(f, math.ceil)),
    ]
    out += [
        Op(v("floor"), kind, (kind,), integral(f, math.floor)),
        Op(v("rndne"), kind, (kind,), integral(f, round)),
    ]
    out += [Op(v("fract"), kind, (kind,), fract(f)), Op(v("frexp_mant"), kind, (kind,), mantissa(f))]
    out += [Op(v("div_fixup"), kind, three, divide_fixup(f), **keep)]
    out += [
        Op(v("add"), kind, two, lambda a, b: f.add(f.neg(a), f.neg(f.abs(b))), "{d}, -{a}, -|{b}|"),
        Op(v("mul"), kind, two, lambda a, b: clamped(f, f.mul(a, b)), "{d}, {a}, {b} clamp"),
        Op(
            v("fma"),
            kind,
            three,
            lambda a, b, c: f.fma(f.neg(a), f.abs(b), f.neg(c)),
            "{d}, -{a}, |{b}|, -{c}",
            **keep,
        ),
    ]
    return out


SINGLE = [
    *binary("f32", F, E32),
    Op("v_sub_f32", F, (F, F), E32.sub),
    Op("v_subrev_f32", F, (F, F), lambda a, b: E32.sub(b, a)),
    Op("v_mul_f32_e64", F, (F, F), lambda a, b: E32.mul(E32.abs(a), b), "{d}, |{sa}|, {b}"),
    Op("rdna:v_mul_f32_e64", F, (F,), lambda a: E32.mul(0x3DCCCCCD, E32.abs(a)), "{d}, 0x3dcccccd, |{sa}|"),
    Op("v_mul_f32", F, (F,), lambda a: E32.mul(0x3E22F983, a), "{d}, 0.15915494, {a}"),
    Op("v_mul_f32_e64", F, (F, F), lambda a, b: E32.mul(E32.round(2), E32.mul(a, b)), "{d}, {a}, {b} mul:2"),
    Op("v_mul_f32_e64", F, (F, F), lambda a, b: E32.mul(E32.round(4), E32.mul(a, b)), "{d}, {a}, {b} mul:4"),
    Op(
        "v_mul_f32_e64",
        F,
        (F, F),
        lambda a, b: E32.mul(E32.round(Fraction(1, 2)), E32.mul(a, b)),
        "{d}, {a}, {b} div:2",
    ),
    Op("v_mul_legacy_f32 rdna3:v_mul_dx9_zero_f32", F, (F, F), legacy_mul),
    Op("v_fmac_f32", F, (F, F), fused(E32)),
    Op(
        "cdna3:v_fmamk_f32 rdna:v_fmamk_f32",
        F,
        (F, F),
        lambda a, b: E32.fma(a, 0x40490FDB, b),
        "{d}, {a}, 0x40490fdb, {b}",
    ),
    Op(
        "cdna3:v_fmaak_f32 rdna:v_fmaak_f32",
        F,
        (F, F),
        lambda a, b: E32.fma(a, b, 0x40490FDB),
        "{d}, {a}, {b}, 0x40490fdb",
    ),
    Op("cdna:v_mad_f32 cdna3:-", F, (F, F, F), mad),
    Op("cdna:v_mac_f32 cdna3:-", F, (F, F), on_top(mad)),
    Op(
        "cdna:v_madmk_f32 cdna3:-",
        F,
        (F, F),
        lambda a, b: mad(a, 0x40490FDB, b),
        "{d}, {a}, 0x40490fdb, {b}",
    ),
    Op(
        "cdna:v_madak_f32 cdna3:-",
        F,
        (F, F),
        lambda a, b: mad(a, b, 0x40490FDB),
        "{d}, {a}, {b}, 0x40490fdb",
    ),
    Op("v_ldexp_f32", F, (F, U32), scale(E32)),
    Op("v_frexp_exp_i32_f32", U32, (F,), exponent(E32)),
]

# The ISA documents give 1 ulp for these. The reference is the nearest float.
TRANSCENDENTAL = [
    Op("v_exp_f32", F, (F,), transcendental(power_of_two), ulp=1),
    Op("v_log_f32", F, (F,), transcendental(logarithm), ulp=1),
    Op("v_rcp_f32", F, (F,), signed_zero_rcp(E32), ulp=1),
    Op("v_rcp_iflag_f32", F, (F,), signed_zero_rcp(E32), ulp=1),
    Op("v_rsq_f32", F, (F,), inverse_root(E32), ulp=1),
    Op("v_sqrt_f32", F, (F,), transcendental(root), ulp=1),
    Op("v_sin_f32", F, (F,), rounded(E32, wave(math.sin)), ulp=1),
    Op("v_cos_f32", F, (F,), rounded(E32, wave(math.cos)), ulp=1),
    Op("v_sin_f16", H, (H,), rounded(E16, wave(math.sin)), ulp=1),
    Op("v_cos_f16", H, (H,), rounded(E16, wave(math.cos)), ulp=1),
    Op("v_exp_f16", H, (H,), rounded(E16, power_of_two), ulp=1),
    Op("v_log_f16", H, (H,), rounded(E16, logarithm), ulp=1),
    Op("v_rcp_f16", H, (H,), signed_zero_rcp(E16), ulp=1),
    Op("v_rsq_f16", H, (H,), inverse_root(E16), ulp=1),
    Op("v_sqrt_f16", H, (H,), rounded(E16, root), ulp=1),
    Op("v_rcp_f64", D, (D,), signed_zero_rcp(E64), ulp=1),
    Op("v_rsq_f64", D, (D,), inverse_root(E64), ulp=1),
    Op("v_sqrt_f64", D, (D,), rounded(E64, root), ulp=1),
]

CONVERSIONS = [
    Op("v_cvt_f32_i32", F, (U32,), from_int(E32, sign=True)),
    Op("v_cvt_f32_u32", F, (U32,), from_int(E32)),
    Op("v_cvt_i32_f32", U32, (F,), to_int(E32, *I32_RANGE)),
    Op("v_cvt_u32_f32", U32, (F,), to_int(E32, *U32_RANGE)),
    Op(
        "v_cvt_rpi_i32_f32 rdna3:v_cvt_nearest_i32_f32",
        U32,
        (F,),
        to_int(E32, *I32_RANGE, lambda x: math.floor(x + Fraction(1, 2))),
    ),
    Op(
        "v_cvt_flr_i32_f32 rdna3:v_cvt_floor_i32_f32",
        U32,
        (F,),
        to_int(E32, *I32_RANGE, math.floor),
    ),
    *(
        Op(f"v_cvt_f32_ubyte{i}", F, (U32,), lambda a, i=i: E32.round(Fraction(a >> 8 * i & 255)))
        for i in range(4)
    ),
    Op("v_cvt_f32_f16", F, (H,), lambda a: convert(a, E16, E32)),
    Op("v_cvt_f16_f32", H, (F,), lambda a: convert(a, E32, E16)),
    Op("rdna3:v_cvt_f16_f32 rdna4:-", H, (F,), lambda a: convert(a, E32, E16), "{dh}, {a}"),
    Op(
        "v_cvt_pkrtz_f16_f32 rdna3:v_cvt_pk_rtz_f16_f32",
        PF,
        (F, F),
        lambda a, b: pair(convert(a, E32, E16, toward_zero=True), convert(b, E32, E16, toward_zero=True)),
    ),
    Op("cdna4:v_cvt_pk_f16_f32", PF, (F, F), lambda a, b: pair(convert(a, E32, E16), convert(b, E32, E16))),
    Op("cdna4:v_cvt_pk_bf16_f32", PB, (F, F), lambda a, b: pair(convert(a, E32, EB), convert(b, E32, EB))),
    Op(
        "v_cvt_pknorm_i16_f32 rdna3:v_cvt_pk_norm_i16_f32",
        U32,
        (F, F),
        lambda a, b: pair(norm(a, 32767, -1), norm(b, 32767, -1)),
    ),
    Op(
        "v_cvt_pknorm_u16_f32 rdna3:v_cvt_pk_norm_u16_f32",
        U32,
        (F, F),
        lambda a, b: pair(norm(a, 65535, 0), norm(b, 65535, 0)),
    ),
    Op("v_cvt_pk_u16_u32", U32, (U32, U32), lambda a, b: pair(min(a, 65535), min(b, 65535))),
    Op(
        "v_cvt_pk_i16_i32",
        U32,
        (U32, U32),
        lambda a, b: pair(*(max(-32768, min(32767, signed(x))) for x in (a, b))),
    ),
    Op(
        "v_cvt_pk_u8_f32",
        U32,
        (F, U32, U32),
        lambda a, b, c: c & ~(255 << 8 * (b % 4)) | to_int(E32, 0, 255, round)(a) << 8 * (b % 4),
    ),
    Op("v_cvt_f64_f32", D, (F,), lambda a: convert(a, E32, E64)),
    Op("v_cvt_f32_f64", F, (D,), lambda a: convert(a, E64, E32)),
    Op("v_cvt_f64_i32", D, (U32,), from_int(E64, sign=True)),
    Op("v_cvt_f64_u32", D, (U32,), from_int(E64)),
    Op("v_cvt_i32_f64", U32, (D,), to_int(E64, *I32_RANGE)),
    Op("v_cvt_u32_f64", U32, (D,), to_int(E64, *U32_RANGE)),
    Op("v_cvt_f16_u16", H, (U16,), from_int(E16)),
    Op("v_cvt_f16_i16", H, (U16,), from_int(E16, sign=True, width=16)),
    Op("v_cvt_u16_f16", U16, (H,), to_int(E16, 0, 65535)),
    Op("v_cvt_i16_f16", U16, (H,), to_int(E16, -32768, 32767)),
]


def norm(a, top, low):
    """-1..1 or 0..1 to an integer of 16 bits. The product is rounded to f32 first, then to even."""
    x = E32.value(a)
    if x != x:
        return 0
    x = max(Fraction(low), min(Fraction(1), x)) if abs(x) != INF else Fraction(1 if x > 0 else low)
    return round(E32.value(E32.round(x * top)))


HALF = [
    *binary("f16", H, E16),
    Op("v_sub_f16", H, (H, H), E16.sub),
    Op("v_subrev_f16", H, (H, H), lambda a, b: E16.sub(b, a)),
    Op("rdna:v_fmac_f16", H, (H, H), lambda a, b, d: E16.fma(a, b, d & 0xFFFF)),
    Op("rdna:v_fmamk_f16", H, (H, H), lambda a, b: E16.fma(a, 0x4248, b), "{d}, {a}, 0x4248, {b}"),
    Op("rdna:v_fmaak_f16", H, (H, H), lambda a, b: E16.fma(a, b, 0x4248), "{d}, {a}, {b}, 0x4248"),
    Op(
        "cdna:v_mac_f16",
        H,
        (H, H),
        lambda a, b, d: E16.add(E16.mul(a, b), d & 0xFFFF),
        keeps_high_on_gfx9=True,
    ),
    Op("cdna:v_mad_f16", H, (H, H, H), lambda a, b, c: E16.add(E16.mul(a, b), c), keeps_high_on_gfx9=True),
    Op("v_ldexp_f16", H, (H, U16), scale(E16)),
    Op("v_frexp_exp_i16_f16", U16, (H,), exponent(E16)),
    Op("v_pack_b32_f16", U32, (H, H), lambda a, b: a | b << 16),
]

DOUBLE = [
    *binary("f64", D, E64),
    Op("cdna3:v_fmac_f64", D, (D, D), fused(E64)),
    Op("v_ldexp_f64", D, (D, U32), scale(E64)),
    Op("v_frexp_exp_i32_f64", U32, (D,), exponent(E64)),
]


OPS = [*SINGLE, *TRANSCENDENTAL, *CONVERSIONS, *HALF, *DOUBLE]
