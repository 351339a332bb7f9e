"""Vector instructions on integers and bits."""

import struct

from tests.engine.emulator.semantics.numbers.operands import SHIFT, SHIFT16, U16, U32, U64, F, H, signed
from tests.engine.emulator.semantics.table import Op

M32 = (1 << 32) - 1
ONE, TWO, THREE = (U32,), (U32, U32), (U32, U32, U32)
RDNA3 = "rdna3:"  # prefix of names new in RDNA 3


def s16(x):
    return signed(x, 16)


def u24(x):
    return x & 0xFFFFFF


def s24(x):
    return signed(x, 24)


def saturate(x, low, high):
    return max(low, min(high, x))


def leading(x, digit):
    """Position from the top of the first bit equal to ``digit``, all ones if there is none."""
    text = f"{x:032b}"
    return text.index(digit) if digit in text else M32


def trailing(x):
    text = f"{x:032b}"[::-1]
    return text.index("1") if "1" in text else M32


def field(x, offset, width, sign):
    """A bit field as the ISA extracts it: 5-bit offset and width. Beyond the register are zeros or signs."""
    offset, width = offset % 32, width % 32
    x = signed(x) if sign else x
    cut = (x >> offset) & ((1 << width) - 1)
    return signed(cut, width) if sign and width else cut


def permute_bytes(a, b, c):
    source = (b | a << 32).to_bytes(8, "little")
    out = []
    for select in c.to_bytes(4, "little"):
        if select < 8:
            out.append(source[select])
        elif select < 12:
            out.append(0xFF if source[2 * (select - 8) + 1] & 0x80 else 0)
        else:
            out.append(0 if select == 12 else 0xFF)
    return int.from_bytes(bytes(out), "little")


def by_table(table, width):
    """The three sources' bits spell the number of a table bit: the result's bit."""

    def reference(a, b, c):
        places = ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1) for i in range(width))
        return sum((table >> place & 1) << i for i, place in enumerate(places))

    return reference


def difference_of_bytes(a, b):
    return sum(abs(x - y) for x, y in zip(a.to_bytes(4, "little"), b.to_bytes(4, "little"), strict=True))


def middle(*xs):
    return sorted(xs)[1]


def carry(total):
    return total, not 0 <= total <= M32


# Three pairs of words. Between them every two of the eight bytes have different signs. Tables of one entry
# each, and some of several entries that change with every exchange of the sources.
TABLES_OF_THREE = (*(1 << entry for entry in range(8)), 0x27, 0x8E, 0xEC, 0xFE)
SIGNED_BYTES = tuple(
    struct.unpack(">II", bytes(3 * i | 0x80 * (i >> row & 1) for i in range(8))) for row in range(3)
)

BITS = [
    Op("v_mov_b32", U32, ONE, lambda a: a),
    Op("v_mov_b32", U32, ONE, lambda a: a, "{d}, {sa}"),
    Op("cdna3:v_mov_b64", U64, (U64,), lambda a: a),
    Op("v_not_b32", U32, ONE, lambda a: ~a),
    Op("v_bfrev_b32", U32, ONE, lambda a: int(f"{a:032b}"[::-1], 2)),
    Op("v_ffbh_u32 rdna3:v_clz_i32_u32", U32, ONE, lambda a: leading(a, "1")),
    Op("v_ffbl_b32 rdna3:v_ctz_i32_b32", U32, ONE, trailing),
    Op("v_ffbh_i32 rdna3:v_cls_i32", U32, ONE, lambda a: leading(a, "0" if a >> 31 else "1")),
    Op("v_and_b32", U32, TWO, lambda a, b: a & b),
    Op("v_or_b32", U32, TWO, lambda a, b: a | b),
    Op("v_xor_b32", U32, TWO, lambda a, b: a ^ b),
    Op("v_xnor_b32", U32, TWO, lambda a, b: ~(a ^ b)),
    Op("v_and_or_b32", U32, THREE, lambda a, b, c: a & b | c),
    Op("v_or3_b32", U32, THREE, lambda a, b, c: a | b | c),
    Op("rdna:v_xor3_b32", U32, THREE, lambda a, b, c: a ^ b ^ c),
    Op("v_bfi_b32", U32, THREE, lambda a, b, c: sum((b if a >> i & 1 else c) & 1 << i for i in range(32))),
    *(
        Op(
            "cdna4:v_bitop3_b32",
            U32,
            THREE,
            by_table(table, 32),
            f"{{d}}, {{a}}, {{b}}, {{c}} bitop3:{table:#x}",
        )
        for table in TABLES_OF_THREE
    ),
    Op("v_bfe_u32", U32, (U32, SHIFT, SHIFT), lambda a, b, c: field(a, b, c, sign=False)),
    Op("v_bfe_i32", U32, (U32, SHIFT, SHIFT), lambda a, b, c: field(a, b, c, sign=True)),
    Op("v_bfm_b32", U32, (SHIFT, SHIFT), lambda a, b: (2 ** (a % 32) - 1) * 2 ** (b % 32)),
    Op(
        "v_perm_b32",
        U32,
        THREE,
        permute_bytes,
        extra=tuple((a, b, s * 0x01010101) for a, b in SIGNED_BYTES for s in range(20)),
    ),
    Op("rdna:v_perm_b32", U32, TWO, lambda a, b: permute_bytes(a, b, 0x7060302), "{d}, {a}, {b}, 0x7060302"),
    Op("v_alignbit_b32", U32, (U32, U32, SHIFT), lambda a, b, c: (a << 32 | b) >> c % 32),
    Op("v_alignbyte_b32", U32, (U32, U32, SHIFT), lambda a, b, c: (a << 32 | b) >> 8 * (c % 4)),
    Op("v_lshlrev_b32", U32, (SHIFT, U32), lambda a, b: b << a % 32),
    Op("v_lshrrev_b32", U32, (SHIFT, U32), lambda a, b: b >> a % 32),
    Op("v_ashrrev_i32", U32, (SHIFT, U32), lambda a, b: signed(b) >> a % 32),
    Op("v_lshlrev_b64", U64, (SHIFT, U64), lambda a, b: b << a % 64),
    Op("v_lshrrev_b64", U64, (SHIFT, U64), lambda a, b: b >> a % 64),
    Op("v_ashrrev_i64", U64, (SHIFT, U64), lambda a, b: signed(b, 64) >> a % 64),
    Op("v_lshl_or_b32", U32, (U32, SHIFT, U32), lambda a, b, c: a << b % 32 & M32 | c),
    Op("v_bcnt_u32_b32", U32, TWO, lambda a, b: a.bit_count() + b),
    Op("v_cndmask_b32", U32, TWO, lambda a, b, n: b if n else a, "{d}, {a}, {b}, {n}", n="<vcc>"),
    Op("v_cndmask_b32_e64", U32, TWO, lambda a, b, n: b if n else a, "{d}, {a}, {b}, {n}"),
    Op(
        "v_cndmask_b32_e64",
        F,
        (F, F),
        lambda a, b, n: F.format.neg(b) if n else F.format.abs(a),
        "{d}, |{a}|, -{b}, {n}",
    ),
    Op(RDNA3 + "v_cndmask_b16 rdna4:-", U16, (H, H), lambda a, b, n: b if n else a, "{d}, {ah}, {b}, {n}"),
    # The selection of SDWA: a half or byte of a source, zero- or sign-extended.
    Op(
        "v_xor_b32_sdwa rdna3:-",
        U32,
        TWO,
        lambda a, b: a ^ b & 0xFFFF,
        "{d}, {a}, {b} dst_sel:DWORD src0_sel:DWORD src1_sel:WORD_0",
    ),
    Op(
        "v_lshlrev_b32_sdwa rdna3:-",
        U32,
        (SHIFT, U32),
        lambda a, b: (b & 0xFFFF) << a % 32,
        "{d}, {a}, {b} dst_sel:DWORD src0_sel:DWORD src1_sel:WORD_0",
    ),
    Op(
        "cdna:v_add_u32_sdwa rdna1:v_add_nc_u32_sdwa rdna3:-",
        U32,
        TWO,
        lambda a, b: (a >> 24) + signed(b >> 16, 16),
        "{d}, {a}, sext({b}) dst_sel:DWORD src0_sel:BYTE_3 src1_sel:WORD_1",
    ),
    Op(
        "v_or_b32_sdwa rdna3:-",
        U32,
        TWO,
        lambda a, b, d: (a | b) << 16 & M32 | d & 0xFFFF,
        "{d}, {a}, {b} dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:DWORD",
    ),
    Op(
        "v_or_b32_sdwa rdna3:-",
        U32,
        TWO,
        lambda a, b: (a & 255 | b & 255) << 8,
        "{d}, {a}, {b} dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:BYTE_0",
    ),
]

ARITHMETIC = [
    Op("cdna:v_add_u32 rdna:v_add_nc_u32", U32, TWO, lambda a, b: a + b),
    Op("cdna:v_sub_u32 rdna:v_sub_nc_u32", U32, TWO, lambda a, b: a - b),
    Op("cdna:v_subrev_u32 rdna:v_subrev_nc_u32", U32, TWO, lambda a, b: b - a),
    Op(
        "cdna:v_add_u32 rdna:v_add_nc_u32",
        U32,
        TWO,
        lambda a, b: saturate(a + b, 0, M32),
        "{d}, {a}, {b} clamp",
    ),
    Op(
        "cdna:v_sub_u32 rdna:v_sub_nc_u32",
        U32,
        TWO,
        lambda a, b: saturate(a - b, 0, M32),
        "{d}, {a}, {b} clamp",
    ),
    Op("cdna:v_add_i32 rdna:v_add_nc_i32", U32, TWO, lambda a, b: a + b),
    Op("cdna:v_sub_i32 rdna:v_sub_nc_i32", U32, TWO, lambda a, b: a - b),
    Op(
        "cdna:v_add_i32 rdna:v_add_nc_i32",
        U32,
        TWO,
        lambda a, b: saturate(signed(a) + signed(b), -(2**31), 2**31 - 1),
        "{d}, {a}, {b} clamp",
    ),
    Op(
        "cdna:v_sub_i32 rdna:v_sub_nc_i32",
        U32,
        TWO,
        lambda a, b: saturate(signed(a) - signed(b), -(2**31), 2**31 - 1),
        "{d}, {a}, {b} clamp",
    ),
    Op("v_add_co_u32", U32, TWO, lambda a, b: carry(a + b), "{d}, {m}, {a}, {b}"),
    Op("v_sub_co_u32", U32, TWO, lambda a, b: carry(a - b), "{d}, {m}, {a}, {b}"),
    Op("v_subrev_co_u32", U32, TWO, lambda a, b: carry(b - a), "{d}, {m}, {a}, {b}"),
    Op(
        "cdna:v_addc_co_u32 rdna:v_add_co_ci_u32",
        U32,
        TWO,
        lambda a, b, n: carry(a + b + n),
        "{d}, {m}, {a}, {b}, {n}",
    ),
    Op(
        "cdna:v_addc_co_u32 rdna:v_add_co_ci_u32",
        U32,
        TWO,
        lambda a, b, n: carry(a + b + n),
        "{d}, {m}, {a}, {b}, {n}",
        m="<vcc>",
        n="<vcc>",
    ),
    Op("rdna:v_add_co_ci_u32", U32, ONE, lambda a, n: a + n, "{d}, null, {a}, 0, {n}"),
    Op(
        "cdna:v_subb_co_u32 rdna:v_sub_co_ci_u32",
        U32,
        TWO,
        lambda a, b, n: carry(a - b - n),
        "{d}, {m}, {a}, {b}, {n}",
    ),
    Op(
        "cdna:v_subbrev_co_u32 rdna:v_subrev_co_ci_u32",
        U32,
        TWO,
        lambda a, b, n: carry(b - a - n),
        "{d}, {m}, {a}, {b}, {n}",
    ),
    Op("v_add3_u32", U32, THREE, lambda a, b, c: a + b + c),
    Op("rdna:v_add3_u32", U32, TWO, lambda a, b: a + b + 0x7FFF, "{d}, {a}, {b}, 0x7fff"),
    Op("v_lshl_add_u32", U32, (U32, SHIFT, U32), lambda a, b, c: (a << b % 32) + c),
    Op("v_lshl_add_u32", U32, (U32, U32), lambda a, b: (a << 4) + b, "{d}, {sa}, 4, {b}"),
    Op("v_add_lshl_u32", U32, (U32, U32, SHIFT), lambda a, b, c: (a + b) << c % 32),
    Op("v_xad_u32", U32, THREE, lambda a, b, c: (a ^ b) + c),
    Op("cdna3:v_lshl_add_u64", U64, (U64, U64), lambda a, b: (a << 3) + b, "{d}, {a}, 3, {b}"),
    Op("cdna3:v_lshl_add_u64", U64, (U64, U64), lambda a, b: a + b, "{d}, {a}, 0, {b}"),
    Op("v_mul_lo_u32", U32, TWO, lambda a, b: a * b),
    Op("v_mul_hi_u32", U32, TWO, lambda a, b: a * b >> 32),
    Op("v_mul_hi_i32", U32, TWO, lambda a, b: signed(a) * signed(b) >> 32),
    Op("v_mul_u32_u24", U32, TWO, lambda a, b: u24(a) * u24(b)),
    Op("v_mul_i32_i24", U32, TWO, lambda a, b: s24(a) * s24(b)),
    Op("v_mul_hi_u32_u24", U32, TWO, lambda a, b: u24(a) * u24(b) >> 32),
    Op("v_mul_hi_i32_i24", U32, TWO, lambda a, b: s24(a) * s24(b) >> 32),
    Op("v_mad_u32_u24", U32, THREE, lambda a, b, c: u24(a) * u24(b) + c),
    Op("v_mad_i32_i24", U32, THREE, lambda a, b, c: s24(a) * s24(b) + signed(c)),
    Op("v_mad_u32_u16", U32, (U16, U16, U32), lambda a, b, c: a * b + c),
    Op("v_mad_i32_i16", U32, (U16, U16, U32), lambda a, b, c: s16(a) * s16(b) + c),
    Op(
        "v_mad_u64_u32 rdna4:v_mad_co_u64_u32",
        U64,
        (U32, U32, U64),
        lambda a, b, c: (a * b + c, a * b + c >= 2**64),
        "{d}, {m}, {a}, {b}, {c}",
    ),
    Op(
        "v_mad_i64_i32 rdna4:v_mad_co_i64_i32",
        U64,
        (U32, U32, U64),
        lambda a, b, c: signed(a) * signed(b) + c,
        "{d}, <44>, {a}, {b}, {c}",
    ),
    Op("v_min_u32", U32, TWO, min),
    Op("v_max_u32", U32, TWO, max),
    Op("v_min_i32", U32, TWO, lambda a, b: min(signed(a), signed(b))),
    Op("v_max_i32", U32, TWO, lambda a, b: max(signed(a), signed(b))),
    Op("v_min3_u32", U32, THREE, min),
    Op("v_max3_u32", U32, THREE, max),
    Op("v_med3_u32", U32, THREE, middle),
    Op("v_min3_i32", U32, THREE, lambda a, b, c: min(map(signed, (a, b, c)))),
    Op("v_max3_i32", U32, THREE, lambda a, b, c: max(map(signed, (a, b, c)))),
    Op("v_med3_i32", U32, THREE, lambda a, b, c: middle(*map(signed, (a, b, c)))),
    Op("v_sad_u32", U32, THREE, lambda a, b, c: abs(a - b) + c),
    Op("v_sad_u8", U32, THREE, lambda a, b, c: difference_of_bytes(a, b) + c),
]

W16 = (U16, U16)
SHORT = [
    Op("cdna:v_add_u16 rdna:v_add_nc_u16", U16, W16, lambda a, b: a + b),
    Op("cdna:v_sub_u16 rdna:v_sub_nc_u16", U16, W16, lambda a, b: a - b),
    Op("cdna:v_subrev_u16", U16, W16, lambda a, b: b - a),
    Op(
        "cdna:v_add_u16 rdna:v_add_nc_u16",
        U16,
        W16,
        lambda a, b: saturate(a + b, 0, 0xFFFF),
        "{d}, {a}, {b} clamp",
    ),
    Op("cdna:v_add_i16 rdna:v_add_nc_i16", U16, W16, lambda a, b: a + b, keeps_high_on_gfx9=True),
    Op("cdna:v_sub_i16 rdna:v_sub_nc_i16", U16, W16, lambda a, b: a - b, keeps_high_on_gfx9=True),
    Op(
        "cdna:v_add_i16 rdna:v_add_nc_i16",
        U16,
        W16,
        lambda a, b: saturate(s16(a) + s16(b), -32768, 32767),
        "{d}, {a}, {b} clamp",
        keeps_high_on_gfx9=True,
    ),
    Op("v_mul_lo_u16", U16, W16, lambda a, b: a * b),
    Op("v_mad_u16", U16, (U16,) * 3, lambda a, b, c: a * b + c, keeps_high_on_gfx9=True),
    Op("v_mad_i16", U16, (U16,) * 3, lambda a, b, c: a * b + c, keeps_high_on_gfx9=True),
    Op("v_lshlrev_b16", U16, (SHIFT16, U16), lambda a, b: b << a % 16),
    Op("v_lshrrev_b16", U16, (SHIFT16, U16), lambda a, b: b >> a % 16),
    Op("v_ashrrev_i16", U16, (SHIFT16, U16), lambda a, b: s16(b) >> a % 16),
    Op("v_min_u16", U16, W16, min),
    Op("v_max_u16", U16, W16, max),
    Op("v_min_i16", U16, W16, lambda a, b: min(s16(a), s16(b))),
    Op("v_max_i16", U16, W16, lambda a, b: max(s16(a), s16(b))),
    *(
        Op(
            "cdna4:v_bitop3_b16",
            U16,
            (U16,) * 3,
            by_table(table, 16),
            f"{{d}}, {{a}}, {{b}}, {{c}} bitop3:{table:#x}",
            keeps_high_on_gfx9=True,
        )
        for table in TABLES_OF_THREE
    ),
    Op("v_min3_u16", U16, (U16,) * 3, min, keeps_high_on_gfx9=True),
    Op("v_max3_u16", U16, (U16,) * 3, max, keeps_high_on_gfx9=True),
    Op("v_min3_i16", U16, (U16,) * 3, lambda a, b, c: min(map(s16, (a, b, c))), keeps_high_on_gfx9=True),
    Op("v_max3_i16", U16, (U16,) * 3, lambda a, b, c: max(map(s16, (a, b, c))), keeps_high_on_gfx9=True),
    Op("v_med3_u16", U16, (U16,) * 3, middle, keeps_high_on_gfx9=True),
    Op("v_med3_i16", U16, (U16,) * 3, lambda a, b, c: middle(*map(s16, (a, b, c))), keeps_high_on_gfx9=True),
    Op(RDNA3 + "v_and_b16", U16, W16, lambda a, b: a & b),
    Op(RDNA3 + "v_or_b16", U16, W16, lambda a, b: a | b),
    Op(RDNA3 + "v_xor_b16", U16, W16, lambda a, b: a ^ b),
    Op(RDNA3 + "v_not_b16", U16, (U16,), lambda a: ~a),
    Op(RDNA3 + "v_mov_b16 rdna4:-", U16, (U16,), lambda a: a),
    Op(RDNA3 + "v_mov_b16 rdna4:-", U16, (U16,), lambda a: a, "{dh}, {a}"),
    Op(RDNA3 + "v_mov_b16 rdna4:-", U16, (U16,), lambda a: a, "{d}, {ah}"),
    Op(RDNA3 + "v_and_b16 rdna4:-", U16, (U16,), lambda a: a & 0x8000, "{dh}, 0x8000, {ah}"),
    Op(RDNA3 + "v_and_b16 rdna4:-", U16, (U16,), lambda a: a & 1, "{dh}, {a}, 1"),
    Op(RDNA3 + "v_add_nc_u16 rdna4:-", U16, (U16,), lambda a: a - 1, "{dh}, {ah}, -1"),
    Op(RDNA3 + "v_min_u16 rdna4:-", U16, W16, min, "{d}, {ah}, {bh}"),
    Op(RDNA3 + "v_lshrrev_b16 rdna4:-", U16, (U16,), lambda a: a >> 9, "{dh}, 9, {a}"),
    Op(RDNA3 + "v_or_b16 rdna4:-", U16, W16, lambda a, b: a | b, "{dh}, {ah}, {b}"),
    Op(RDNA3 + "v_xor_b16 rdna4:-", U16, W16, lambda a, b: a ^ b, "{d}, {ah}, {b}"),
    Op(RDNA3 + "v_cvt_i32_i16", U32, (U16,), s16),
    Op(RDNA3 + "v_cvt_u32_u16", U32, (U16,), lambda a: a),
]

OPS = BITS + ARITHMETIC + SHORT
