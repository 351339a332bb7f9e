"""Vector instructions on pairs: packed and mixed-precision arithmetic, dot products.

op_sel and op_sel_hi pick the halves that make the low and the high result.
"""

from tests.engine.emulator.semantics.numbers import exact
from tests.engine.emulator.semantics.numbers.exact import convert
from tests.engine.emulator.semantics.numbers.operands import (
    NUMBERS,
    PAIR_B16,
    PAIR_F16,
    PAIR_F32,
    U32,
    U64,
    F,
    Kind,
    halves,
    signed,
)
from tests.engine.emulator.semantics.numbers.pairs import PF, P, each, nans_alike, pair
from tests.engine.emulator.semantics.ops.float_ops import on_top
from tests.engine.emulator.semantics.snippets import Code, merged
from tests.engine.emulator.semantics.table import Op

E16, E32, EB = exact.F16, exact.F32, exact.BF16


class PairOfFloats(Kind):
    def canonical(self, x):
        low, high = (E32.nan if E32.is_nan(w) else w for w in (x & 0xFFFFFFFF, x >> 32 & 0xFFFFFFFF))
        return low | high << 32


P32 = PairOfFloats("2xf32", 64, PAIR_F32.edges)


def each32(function, *words):
    low = function(*(w & 0xFFFFFFFF for w in words))
    return low | function(*(w >> 32 for w in words)) << 32


def s16(x):
    return signed(x, 16)


def sat(low, high):
    return lambda x: max(low, min(high, x))


SAT_U, SAT_I = sat(0, 65535), sat(-32768, 32767)
PI = (PAIR_B16, PAIR_B16)


def packed(name, function, more=()):
    return Op(f"v_pk_{name}", U32, (*PI, *more), lambda a, b: each(function, a, b))


PACKED = [
    Op("v_pk_add_f16", PF, (P, P), lambda a, b: each(E16.add, a, b)),
    Op("v_pk_mul_f16", PF, (P, P), lambda a, b: each(E16.mul, a, b)),
    Op("v_pk_fma_f16", PF, (P, P, P), lambda a, b, c: each(E16.fma, a, b, c)),
    Op("v_pk_max_f16 rdna4:-", PF, (P, P), lambda a, b: each(E16.max, a, b)),
    Op("v_pk_min_f16 rdna4:-", PF, (P, P), lambda a, b: each(E16.min, a, b)),
    Op("rdna4:v_pk_max_num_f16", PF, (P, P), lambda a, b: each(E16.max_num, a, b)),
    Op("rdna4:v_pk_min_num_f16", PF, (P, P), lambda a, b: each(E16.min_num, a, b)),
    Op(
        "v_pk_add_f16",
        PF,
        (P, P),
        lambda a, b: pair(E16.sub(a >> 16, b & 0xFFFF), E16.add(E16.neg(a & 0xFFFF), b & 0xFFFF)),
        "{d}, {a}, {b} op_sel:[1,0] op_sel_hi:[0,0] neg_lo:[0,1] neg_hi:[1,0]",
    ),
    packed("add_u16", lambda a, b: a + b),
    packed("sub_u16", lambda a, b: a - b),
    packed("add_i16", lambda a, b: a + b),
    packed("sub_i16", lambda a, b: a - b),
    Op("v_pk_add_u16", U32, PI, lambda a, b: each(lambda x, y: SAT_U(x + y), a, b), "{d}, {a}, {b} clamp"),
    Op("v_pk_sub_u16", U32, PI, lambda a, b: each(lambda x, y: SAT_U(x - y), a, b), "{d}, {a}, {b} clamp"),
    Op(
        "v_pk_add_i16",
        U32,
        PI,
        lambda a, b: each(lambda x, y: SAT_I(s16(x) + s16(y)), a, b),
        "{d}, {a}, {b} clamp",
    ),
    packed("mul_lo_u16", lambda a, b: a * b),
    Op("v_pk_mad_u16", U32, (*PI, PAIR_B16), lambda a, b, c: each(lambda x, y, z: x * y + z, a, b, c)),
    Op("v_pk_mad_i16", U32, (*PI, PAIR_B16), lambda a, b, c: each(lambda x, y, z: x * y + z, a, b, c)),
    packed("lshlrev_b16", lambda a, b: b << a % 16),
    packed("lshrrev_b16", lambda a, b: b >> a % 16),
    packed("ashrrev_i16", lambda a, b: s16(b) >> a % 16),
    packed("min_u16", min),
    packed("max_u16", max),
    packed("min_i16", lambda a, b: min(s16(a), s16(b))),
    packed("max_i16", lambda a, b: max(s16(a), s16(b))),
    Op("cdna2:v_pk_add_f32", P32, (P32, P32), lambda a, b: each32(E32.add, a, b)),
    Op("cdna2:v_pk_mul_f32", P32, (P32, P32), lambda a, b: each32(E32.mul, a, b)),
    Op(
        "cdna2:v_pk_mul_f32",
        P32,
        (P32, P32),
        lambda a, b: E32.mul(a & 0xFFFFFFFF, b & 0xFFFFFFFF) | E32.mul(a >> 32, b & 0xFFFFFFFF) << 32,
        "{d}, {a}, {b} op_sel_hi:[1,0]",
    ),
    Op("cdna2:v_pk_fma_f32", P32, (P32, P32, P32), lambda a, b, c: each32(E32.fma, a, b, c)),
    Op(
        "cdna2:v_pk_mov_b32",
        U64,
        (U64, U64),
        lambda a, b: a & 0xFFFFFFFF | b >> 32 << 32,
        "{d}, {a}, {b} op_sel:[0,1]",
    ),
]


def mixed(a, b, c, target, select=(False, False, False), high=(False, False, False)):
    """v_fma_mix*: sources are f32 or halves. The FMA is f32's. A half is rounded from its result."""

    def source(x, half, upper):
        return convert(x >> 16 if upper else x & 0xFFFF, E16, E32) if half else x

    words = [source(x, s, h) for x, s, h in zip((a, b, c), select, high, strict=True)]
    return convert(E32.fma(*words), E32, target)


class MixedHalf(Kind):
    """A written half next to one that must stay: only the written one's NaNs are interchangeable."""

    def canonical(self, x):
        return nans_alike(x)


MH = MixedHalf("f16 in place", 32, PAIR_F16.edges)
FFF, PPP = (F, F, F), (P, P, P)
LITERAL = 0x3C00BE00  # halves 1.0 and -1.5
NO_NAN = 0xBBFFBBFF  # finite as f32 and as halves
ALL_HALF = {"select": (True, True, True), "high": (False, True, False)}


def half_constant(half):
    return lambda a, b: mixed(a, b, half, E32, select=(False, True, True))


def literal(select, high):
    """The literal's RDNA encoding: the assembler rejects 32-bit literals here, the hardware accepts them."""
    first = 0xCC200000 | 20 | sum(h << 11 + k for k, h in enumerate(high)) | select[2] << 14
    second = 256 + 16 | 256 + 17 << 9 | 255 << 18 | select[0] << 27 | select[1] << 28

    def reference(w):
        lanes = zip(w["v16"], w["v17"], strict=True)
        result = [mixed(a, b, LITERAL, E32, select, high) for a, b in lanes]
        return {"v20": merged(w, w["v20"], result)}

    return Code(
        "rdna:v_fma_mix_f32",
        f".long {first:#x}, {second:#x}, {LITERAL:#x} ; {{x}} v20, v16, v17, {LITERAL:#x}",
        reference,
        ("v16", "v17", "v20"),
        values=lambda rng, r: NO_NAN & (rng.choice(NUMBERS) if rng.random() < 0.3 else rng.getrandbits(32)),
    )


MIX = [
    Op("v_fma_mix_f32", F, FFF, lambda a, b, c: mixed(a, b, c, E32)),
    Op(
        "v_fma_mix_f32",
        F,
        PPP,
        lambda a, b, c: mixed(a, b, c, E32, **ALL_HALF),
        "{d}, {a}, {b}, {c} op_sel:[0,1,0] op_sel_hi:[1,1,1]",
    ),
    Op(
        "v_fma_mix_f32",
        F,
        (F, P, F),
        lambda a, b, c: mixed(E32.neg(a), b, E32.abs(c), E32, select=(False, True, False)),
        "{d}, -{a}, {b}, |{c}| op_sel_hi:[0,1,0]",
    ),
    # an inline constant: its float, or the equal number as a half. An integer's low bits
    *(
        Op("v_fma_mix_f32", F, (F, P), half_constant(half), f"{{d}}, {{a}}, {{b}}, {text} op_sel_hi:[0,1,1]")
        for text, half in (("1.0", 0x3C00), ("-4.0", 0xC400), ("0.15915494", 0x3118), ("3", 3), ("0", 0))
    ),
    Op("v_fma_mix_f32", F, (F, F), lambda a, b: mixed(a, b, 0x40800000, E32), "{d}, {a}, {b}, 4.0"),
    # a literal: whole as f32, or a half of it
    literal((False, False, False), (False, False, False)),
    literal((False, True, True), (False, False, False)),
    literal((False, True, True), (False, False, True)),
    literal((True, False, True), (True, False, True)),
    Op("v_fma_mixlo_f16", MH, FFF, lambda a, b, c, d: mixed(a, b, c, E16) | d & 0xFFFF0000),
    Op("v_fma_mixhi_f16", MH, FFF, lambda a, b, c, d: mixed(a, b, c, E16) << 16 | d & 0xFFFF),
    Op(
        "v_fma_mixlo_f16",
        MH,
        (F, F),
        lambda a, b, d: mixed(a, b, 0, E16) | d & 0xFFFF0000,
        "{d}, {a}, {b}, 0",
    ),
    Op(
        "v_fma_mixhi_f16",
        MH,
        (F, F),
        lambda a, b, d: mixed(a, b, 0, E16) << 16 | d & 0xFFFF,
        "{d}, {a}, {b}, 0",
    ),
    Op(
        "v_fma_mixhi_f16",
        MH,
        (P, P, P),
        lambda a, b, c, d: mixed(a, b, c, E16, **ALL_HALF) << 16 | d & 0xFFFF,
        "{d}, {a}, {b}, {c} op_sel:[0,1,0] op_sel_hi:[1,1,1]",
    ),
]


def dot2(a, b, c, f=E16):
    """Two fused steps, element 0 first: the emulator's choice (the hardware's order is unpublished)."""
    (a0, a1), (b0, b1) = ([convert(h, f, E32) for h in halves(x)] for x in (a, b))
    return E32.fma(a1, b1, E32.fma(a0, b0, c))


def dot2_flushed_sums(a, b, c):
    """Vega 20's: denormal sums are zeros."""
    return E32.flushed(dot2(a, b, E32.flushed(c)))


def dot2_flushed(a, b, c):
    """CDNA 2's: denormals are zeros."""
    a, b = (E16.flushed(x & 0xFFFF) | E16.flushed(x >> 16) << 16 for x in (a, b))
    return dot2_flushed_sums(a, b, c)


DOT2C = (
    "v_dot2c_f32_f16 cdna0:- cdna1:v_dot2c_f32_f16 cdna2:- cdna3:v_dot2c_f32_f16 "
    "rdna3:v_dot2acc_f32_f16 rdna4:-"
)
DOT = [
    Op("v_dot2_f32_f16 cdna0:- cdna1:v_dot2_f32_f16 cdna2:- cdna3:v_dot2_f32_f16", F, (P, P, F), dot2),
    Op("cdna0:v_dot2_f32_f16 cdna1:-", F, (P, P, F), dot2_flushed_sums),
    Op("cdna2:v_dot2_f32_f16 cdna3:-", F, (P, P, F), dot2_flushed),
    Op(DOT2C, F, (P, P), on_top(dot2)),
    Op("cdna2:v_dot2c_f32_f16 cdna3:-", F, (P, P), on_top(dot2_flushed)),
    Op("rdna3:v_dot2_f32_bf16", F, (PAIR_B16, PAIR_B16, F), lambda a, b, c: dot2(a, b, c, EB)),
]


OPS = [*PACKED, *MIX, *DOT]
