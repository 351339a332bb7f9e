"""Conversions from and to floats of 8 bits: all codes, and numbers around every boundary of rounding.

FNUZ formats on CDNA 3, OCP's on CDNA 4 and RDNA 4. Under MODE.FP16_OVFL results saturate. CDNA's manuals say
so of infinities, too. A gfx1201 keeps them, against its manual (ROCm's rocjitsu, conversion.h).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from tests.engine.emulator.semantics.narrow.formats import FNUZ, OCP, Small, boundaries
from tests.engine.emulator.semantics.numbers.exact import BF16, F16, F32, INF
from tests.engine.emulator.semantics.numbers.operands import PAIR_B16, U32, F, H, Kind
from tests.engine.emulator.semantics.numbers.pairs import PB, PF, pair
from tests.engine.emulator.semantics.ops.packed_ops import MH, P32
from tests.engine.emulator.semantics.table import Op

SATURATE = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1"


@dataclass(frozen=True)
class Formats:
    """Archs with one meaning of the formats. ``infinities``: saturation takes them, too."""

    names: Callable[[str], str]
    family: dict[str, Small]
    infinities: bool


CDNA3 = Formats(lambda name: f"cdna3:{name} cdna4:-", FNUZ, infinities=True)
CDNA4 = Formats(lambda name: f"cdna4:{name}", OCP, infinities=True)
RDNA4 = Formats(lambda name: f"rdna4:{name}", OCP, infinities=False)

# Four codes: each byte takes all of them.
CODES = Kind("4 codes", 32, tuple(sum((c + 85 * i) % 256 << 8 * i for i in range(4)) for c in range(256)))
# Exponents of all kinds: of numbers near 1 and far from it, of zero, denormals, infinities and NaN.
SCALE = Kind(
    "scale",
    32,
    tuple(e << 23 | m for e in (0, 1, 2, 60, *range(110, 140), 200, 253, 254, 255) for m in (0, 5)),
)


class Written(Kind):
    """Codes of a format in a register, among other bytes: one code of NaN."""

    def __init__(self, small):
        super().__init__("codes", 32, U32.edges)
        object.__setattr__(self, "small", small)

    def canonical(self, x):
        small = self.small
        codes = [x >> 8 * i & 255 for i in range(4)]
        return sum((small.nan if small.is_nan(c) else c) << 8 * i for i, c in enumerate(codes))


# ---- from 8 bits
def number(small, code, scale=None):
    """(value, sign) of a code, times the power of two in a float's exponent."""
    x, negative = small.values[code], code > 0x7F
    if scale is None or x != x or abs(x) == INF:
        return (float("nan") if scale is not None and scale >> 23 & 255 == 255 else x), negative
    exponent = scale >> 23 & 255
    return (float("nan") if exponent == 255 else x * Fraction(2) ** (exponent - 127)), negative


def widened(small, f, code, scale=None):
    x, negative = number(small, code & 255, scale)
    return f.round(x, negative_zero=negative)


def from_codes(of, s):
    small = of.family[s]

    def one(byte):
        return lambda a: widened(small, F32, a >> 8 * byte)

    def two(half):
        a_half = [8 * half * 2, 8 * half * 2 + 8]
        return lambda a: sum(widened(small, F32, a >> shift) << 32 * i for i, shift in enumerate(a_half))

    single, both = f"v_cvt_f32_{s}", f"v_cvt_pk_f32_{s}"
    yield Op(of.names(single), F, (CODES,), one(0))
    yield Op(of.names(both), P32, (CODES,), two(0))
    for byte in range(1, 4):
        if of is RDNA4:
            yield Op(of.names(single + "_e64"), F, (CODES,), one(byte), f"{{d}}, {{a}} byte_sel:{byte}")
        else:
            yield Op(of.names(single + "_sdwa"), F, (CODES,), one(byte), f"{{d}}, {{a}} src0_sel:BYTE_{byte}")
    if of is RDNA4:
        yield Op(of.names(both + "_e64"), P32, (CODES,), two(1), "{d}, {a} op_sel:[1,0]")
    else:
        yield Op(of.names(both + "_sdwa"), P32, (CODES,), two(1), "{d}, {a} src0_sel:WORD_1")


def scaled_from_codes(s):
    small, of = OCP[s], CDNA4
    for word in range(2):
        text = "{d}, {a}, {b}" + (" op_sel:[1,0,0]" if word else "")
        for name, f, kind, width in (("f32", F32, P32, 32), ("f16", F16, PF, 16), ("bf16", BF16, PB, 16)):

            def two(a, b, f=f, width=width, word=word):
                return sum(widened(small, f, a >> 16 * word + 8 * i, b) << width * i for i in range(2))

            yield Op(of.names(f"v_cvt_scalef32_pk_{name}_{s}"), kind, (CODES, SCALE), two, text)
    for byte in range(4):
        bits = f"{byte & 1},{byte >> 1}"
        single = of.names(f"v_cvt_scalef32_f32_{s}")

        def one(a, b, byte=byte):
            return widened(small, F32, a >> 8 * byte, b)

        yield Op(single, F, (CODES, SCALE), one, f"{{d}}, {{a}}, {{b}} op_sel:[{bits},0]")
    single = of.names(f"v_cvt_scalef32_f16_{s}")
    yield Op(single, H, (CODES, SCALE), lambda a, b: widened(small, F16, a, b), keeps_high_on_gfx9=True)
    yield Op(
        single,
        MH,
        (CODES, SCALE),
        lambda a, b, d: pair(d, widened(small, F16, a >> 16, b)),
        "{d}, {a}, {b} op_sel:[0,1,1]",
    )


# ---- to 8 bits
def divided(x, scale):
    """x / 2^exponent, exactly."""
    if scale is None or x != x:
        return x
    exponent = scale >> 23 & 255
    return float("nan") if exponent == 255 else x if abs(x) == INF else x / Fraction(2) ** (exponent - 127)


def narrowed(of, s, f, *, saturates):
    def code(x, scale=None):
        return of.family[s].rounded(
            divided(f.value(x), scale),
            negative=f.negative(x),
            saturates=saturates,
            infinities=of.infinities,
        )

    return code


def randomly(of, s, f, *, saturates):
    def code(x, bits, scale=None):
        return of.family[s].random(
            divided(f.value(x), scale),
            bits,
            negative=f.negative(x),
            saturates=saturates,
            infinities=of.infinities,
        )

    return code


def rows(small, more=()):
    """Every boundary, in each position."""
    rng, found = random.Random(7), boundaries(small)
    others = [rng.choice(found) for _ in found]
    return tuple(
        (a, b, *(rng.choice(more) for _ in range(bool(more)))) for a, b in zip(found, others, strict=True)
    )


def random_rows(small, more=()):
    rng = random.Random(8)
    bits = lambda: rng.choice((0, 0xFFFFFFFF, 1 << 31, rng.getrandbits(32)))  # noqa: E731
    return tuple((x, bits(), *(rng.choice(more) for _ in range(bool(more)))) for x in boundaries(small))


def to_pair(of, s, *, saturates):
    small, before = of.family[s], SATURATE if saturates else ""
    code = narrowed(of, s, F32, saturates=saturates)
    name, kind = of.names(f"v_cvt_pk_{s}_f32"), Written(small)

    def low(a, b, d):
        return d & 0xFFFF0000 | code(a) | code(b) << 8

    def high(a, b, d):
        return pair(d, code(a) | code(b) << 8)

    def modified(a, b, d):
        return low(F32.neg(a), F32.abs(b), d)

    yield Op(name, kind, (F, F), low, before=before, extra=rows(small))
    yield Op(name, kind, (F, F), high, "{d}, {a}, {b} op_sel:[0,0,1]", before=before)
    yield Op(name, kind, (F, F), modified, "{d}, -{a}, |{b}|", before=before)


def to_random(of, s, *, saturates):
    small, before = of.family[s], SATURATE if saturates else ""
    code, kind = randomly(of, s, F32, saturates=saturates), Written(small)
    name = of.names(f"v_cvt_sr_{s}_f32")
    for byte in range(4):

        def one(a, b, d, byte=byte):
            return d & ~(255 << 8 * byte) | code(a, b) << 8 * byte

        select = f"op_sel:[0,0,{byte & 1},{byte >> 1}]" if of is not RDNA4 else f"byte_sel:{byte}"
        text = "{d}, {a}, {b}" + (f" {select}" if byte else "")
        more = random_rows(small) if byte == 0 else ()
        yield Op(name, kind, (F, U32), one, text, before=before, extra=more)


def scaled_to_pair(s, *, saturates):
    of, before = CDNA4, SATURATE if saturates else ""
    small = of.family[s]
    kind, code = Written(small), narrowed(of, s, F32, saturates=saturates)
    name = f"v_cvt_scalef32_pk_{s}_"

    def floats(a, b, c, d):
        return d & 0xFFFF0000 | code(a, c) | code(b, c) << 8

    def floats_high(a, b, c, d):
        return pair(d, code(a, c) | code(b, c) << 8)

    more = rows(small, (127 << 23, 0x3FC00000, 120 << 23, 140 << 23))
    yield Op(of.names(name + "f32"), kind, (F, F, SCALE), floats, before=before, extra=more)
    high = "{d}, {a}, {b}, {c} op_sel:[0,0,0,1]"
    yield Op(of.names(name + "f32"), kind, (F, F, SCALE), floats_high, high, before=before)
    for narrow, f, source in (("f16", F16, PF), ("bf16", BF16, PAIR_B16)):
        half = narrowed(of, s, f, saturates=saturates)

        def halves(a, b, d, half=half):
            return d & 0xFFFF0000 | half(a & 0xFFFF, b) | half(a >> 16, b) << 8

        def halves_high(a, b, d, half=half):
            return pair(d, half(a & 0xFFFF, b) | half(a >> 16, b) << 8)

        yield Op(of.names(name + narrow), kind, (source, SCALE), halves, before=before)
        high = "{d}, {a}, {b} op_sel:[0,0,1]"
        yield Op(of.names(name + narrow), kind, (source, SCALE), halves_high, high, before=before)


def scaled_to_random(s, *, saturates):
    of, before = CDNA4, SATURATE if saturates else ""
    small = of.family[s]
    kind = Written(small)
    for narrow, f, source in (("f32", F32, F), ("f16", F16, H), ("bf16", BF16, PAIR_B16)):
        code = randomly(of, s, f, saturates=saturates)
        for byte in range(4):

            def one(a, b, c, d, f=f, code=code, byte=byte):
                return d & ~(255 << 8 * byte) | code(a & (1 << f.width) - 1, b, c) << 8 * byte

            text = "{d}, {a}, {b}, {c}" + (f" op_sel:[0,0,{byte & 1},{byte >> 1}]" if byte else "")
            more = random_rows(small, (127 << 23, 130 << 23)) if f is F32 and not byte else ()
            name = of.names(f"v_cvt_scalef32_sr_{s}_{narrow}")
            yield Op(name, kind, (source, U32, SCALE), one, text, before=before, extra=more)


def all_ops():
    for s in ("fp8", "bf8"):
        for of in (CDNA3, CDNA4, RDNA4):
            yield from from_codes(of, s)
            for saturates in (False, True):
                yield from to_pair(of, s, saturates=saturates)
                yield from to_random(of, s, saturates=saturates)
        yield from scaled_from_codes(s)
        for saturates in (False, True):
            yield from scaled_to_pair(s, saturates=saturates)
            yield from scaled_to_random(s, saturates=saturates)


OPS = list(all_ops())
