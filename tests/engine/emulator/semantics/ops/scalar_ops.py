"""Scalar arithmetic instructions: result and SCC."""

from fractions import Fraction

from tests.engine.emulator.semantics.numbers.exact import F32
from tests.engine.emulator.semantics.numbers.operands import SHIFT, U32, U64, F, signed
from tests.engine.emulator.semantics.numbers.transcendentals import (
    inverse_root,
    logarithm,
    power_of_two,
    root,
    signed_zero_rcp,
    transcendental,
)
from tests.engine.emulator.semantics.ops.compare_ops import FLOAT_ONLY, ORDERED
from tests.engine.emulator.semantics.ops.integer_ops import M32, leading, trailing
from tests.engine.emulator.semantics.table import ScalarOp

ONE, TWO = (U32,), (U32, U32)
WIDE = (U64, U64)
M64 = (1 << 64) - 1
LOGIC = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}
NOT1 = {"andn2/and_not1": lambda a, b: a & ~b, "orn2/or_not1": lambda a, b: a | ~b}
COMPARE = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


def nonzero(function, mask=M32):
    """SCC is set for a nonzero result."""

    def reference(a, b):
        result = function(a, b) & mask
        return result, result != 0

    return reference


def unary(function, mask=M32):
    def reference(a):
        result = function(a) & mask
        return result, result != 0

    return reference


def signed_sum(a, b):
    total = signed(a) + signed(b)
    return total, not -(2**31) <= total < 2**31


def signed_difference(a, b):
    return a - b, not -(2**31) <= signed(a) - signed(b) < 2**31


def sum_with_carry(a, b, scc):
    return a + b + scc, a + b + scc > M32


def chosen(function):
    """Minimum or maximum: SCC tells whether the first operand was taken."""

    def reference(a, b):
        take = function(a, b)
        return (a if take else b), take

    return reference


def shifted_add(n):
    return lambda a, b: ((a << n) + b, (a << n) + b > M32)


def field(x, b, width, sign):
    """A bit field: offset in the low bits of b, length in bits 22:16."""
    offset, length = b % width, b >> 16 & 0x7F
    value = (signed(x, width) if sign else x) >> offset
    if length == 0:
        return 0, False
    if length < width:
        value &= (1 << length) - 1
        value = signed(value, length) if sign else value
    value &= (1 << width) - 1
    return value, value != 0


def simm(x):
    return signed(x, 16)


CONSTANTS = (0x1234, 0x8001, 0xFFFF, 3)


def literal(x, is_signed):
    """A 16-bit constant as the assembler expects it."""
    return f"{simm(x) if is_signed else x:#x}"


ARITHMETIC = [
    ScalarOp("s_add_u32 rdna4:s_add_co_u32", U32, TWO, lambda a, b: (a + b, a + b > M32)),
    ScalarOp("s_sub_u32 rdna4:s_sub_co_u32", U32, TWO, lambda a, b: (a - b, a < b)),
    ScalarOp(
        "s_addc_u32 rdna4:s_add_co_ci_u32", U32, TWO, lambda a, b, scc: (a + b + scc, a + b + scc > M32)
    ),
    ScalarOp("s_subb_u32 rdna4:s_sub_co_ci_u32", U32, TWO, lambda a, b, scc: (a - b - scc, a < b + scc)),
    ScalarOp("s_add_i32 rdna4:s_add_co_i32", U32, TWO, signed_sum),
    ScalarOp(
        "s_sub_i32 rdna4:s_sub_co_i32",
        U32,
        TWO,
        lambda a, b: (a - b, not -(2**31) <= signed(a) - signed(b) < 2**31),
    ),
    ScalarOp("s_min_i32", U32, TWO, chosen(lambda a, b: signed(a) < signed(b))),
    ScalarOp("s_min_u32", U32, TWO, chosen(lambda a, b: a < b)),
    ScalarOp("s_max_i32", U32, TWO, chosen(lambda a, b: signed(a) >= signed(b))),
    ScalarOp("s_max_u32", U32, TWO, chosen(lambda a, b: a >= b)),
    ScalarOp("rdna4:s_add_nc_u64", U64, WIDE, lambda a, b: a + b),
    ScalarOp("rdna4:s_sub_nc_u64", U64, WIDE, lambda a, b: a - b),
    ScalarOp("rdna4:s_mul_u64", U64, WIDE, lambda a, b: a * b),
    ScalarOp("s_mul_i32", U32, TWO, lambda a, b: a * b),
    ScalarOp("s_mul_hi_u32", U32, TWO, lambda a, b: a * b >> 32),
    ScalarOp("s_mul_hi_i32", U32, TWO, lambda a, b: signed(a) * signed(b) >> 32),
    ScalarOp("s_absdiff_i32", U32, TWO, lambda a, b: (abs(signed(a - b)), a != b)),
    ScalarOp("s_abs_i32", U32, ONE, lambda a: (abs(signed(a)), a != 0)),
    *(ScalarOp(f"s_lshl{n}_add_u32", U32, TWO, shifted_add(n)) for n in (1, 2, 3, 4)),
    *(ScalarOp("s_movk_i32", U32, (), lambda k=k: simm(k), f"{{d}}, {literal(k, True)}") for k in CONSTANTS),
    *(
        ScalarOp(
            "s_cmovk_i32", U32, (), lambda d, scc, k=k: simm(k) if scc else d, f"{{d}}, {literal(k, True)}"
        )
        for k in CONSTANTS
    ),
    *(
        ScalarOp(
            "s_addk_i32 rdna4:s_addk_co_i32",
            U32,
            (),
            lambda d, k=k: signed_sum(d, simm(k)),
            f"{{d}}, {literal(k, True)}",
        )
        for k in CONSTANTS
    ),
    *(
        ScalarOp("s_mulk_i32", U32, (), lambda d, k=k: d * simm(k), f"{{d}}, {literal(k, True)}")
        for k in CONSTANTS
    ),
]

BITS = [
    *(ScalarOp(f"s_{n}_b32", U32, TWO, nonzero(f)) for n, f in LOGIC.items()),
    *(ScalarOp(f"s_{n}_b64", U64, WIDE, nonzero(f, M64)) for n, f in LOGIC.items()),
    *(
        ScalarOp("s_{}_b32 rdna3:s_{}_b32".format(*n.split("/")), U32, TWO, nonzero(f))
        for n, f in NOT1.items()
    ),
    *(
        ScalarOp(
            "s_{}_b64 rdna3:s_{}_b64".format(*n.split("/")),
            U64,
            WIDE,
            nonzero(f, M64),
        )
        for n, f in NOT1.items()
    ),
    ScalarOp("s_not_b32", U32, ONE, unary(lambda a: ~a)),
    ScalarOp("s_not_b64", U64, (U64,), unary(lambda a: ~a, M64)),
    ScalarOp("s_lshl_b32", U32, (U32, SHIFT), nonzero(lambda a, b: a << b % 32)),
    ScalarOp("s_lshr_b32", U32, (U32, SHIFT), nonzero(lambda a, b: a >> b % 32)),
    ScalarOp("s_ashr_i32", U32, (U32, SHIFT), nonzero(lambda a, b: signed(a) >> b % 32)),
    ScalarOp("s_lshl_b64", U64, (U64, SHIFT), nonzero(lambda a, b: a << b % 64, M64)),
    ScalarOp("s_lshr_b64", U64, (U64, SHIFT), nonzero(lambda a, b: a >> b % 64, M64)),
    ScalarOp("s_ashr_i64", U64, (U64, SHIFT), nonzero(lambda a, b: signed(a, 64) >> b % 64, M64)),
    ScalarOp("s_bfm_b32", U32, (SHIFT, SHIFT), lambda a, b: (2 ** (a % 32) - 1) << b % 32),
    ScalarOp("s_bfm_b64", U64, (SHIFT, SHIFT), lambda a, b: (2 ** (a % 64) - 1) << b % 64),
    ScalarOp("s_bfe_u32", U32, TWO, lambda a, b: field(a, b, 32, sign=False)),
    ScalarOp("s_bfe_i32", U32, TWO, lambda a, b: field(a, b, 32, sign=True)),
    ScalarOp("s_bfe_u64", U64, (U64, U32), lambda a, b: field(a, b, 64, sign=False)),
    ScalarOp("s_bfe_i64", U64, (U64, U32), lambda a, b: field(a, b, 64, sign=True)),
    *(
        ScalarOp("s_bfe_i32", U32, ONE, lambda a, k=k: field(a, k, 32, sign=True), f"{{d}}, {{a}}, {k:#x}")
        for k in (0x80008, 0x50003, 0x200000, 0x10001F)
    ),
    ScalarOp("s_pack_ll_b32_b16", U32, TWO, lambda a, b: a & 0xFFFF | b << 16),
    ScalarOp("s_pack_lh_b32_b16", U32, TWO, lambda a, b: a & 0xFFFF | b >> 16 << 16),
    ScalarOp("s_pack_hh_b32_b16", U32, TWO, lambda a, b: a >> 16 | b >> 16 << 16),
    ScalarOp("rdna3:s_pack_hl_b32_b16", U32, TWO, lambda a, b: a >> 16 | b << 16),
    ScalarOp("s_brev_b32", U32, ONE, lambda a: int(f"{a:032b}"[::-1], 2)),
    ScalarOp("s_bcnt0_i32_b32", U32, ONE, unary(lambda a: 32 - a.bit_count())),
    ScalarOp("s_bcnt1_i32_b32", U32, ONE, unary(lambda a: a.bit_count())),
    ScalarOp("s_bcnt0_i32_b64", U32, (U64,), unary(lambda a: 64 - a.bit_count())),
    ScalarOp("s_bcnt1_i32_b64", U32, (U64,), unary(lambda a: a.bit_count())),
    ScalarOp("s_ff1_i32_b32 rdna3:s_ctz_i32_b32", U32, ONE, trailing),
    ScalarOp("s_flbit_i32_b32 rdna3:s_clz_i32_u32", U32, ONE, lambda a: leading(a, "1")),
    ScalarOp("s_flbit_i32 rdna3:s_cls_i32", U32, ONE, lambda a: leading(a, "0" if a >> 31 else "1")),
    ScalarOp("s_ff1_i32_b64 rdna3:s_ctz_i32_b64", U32, (U64,), lambda a: (a & -a).bit_length() - 1),
    ScalarOp(
        "s_flbit_i32_b64 rdna3:s_clz_i32_u64",
        U32,
        (U64,),
        lambda a: 64 - a.bit_length() if a else -1,
    ),
    ScalarOp("s_sext_i32_i8", U32, ONE, lambda a: signed(a, 8)),
    ScalarOp("s_sext_i32_i16", U32, ONE, simm),
    ScalarOp("s_bitset0_b32", U32, (SHIFT,), lambda a, d: d & ~(1 << a % 32)),
    ScalarOp("s_bitset1_b32", U32, (SHIFT,), lambda a, d: d | 1 << a % 32),
    ScalarOp("s_bitset0_b64", U64, (SHIFT,), lambda a, d: d & ~(1 << a % 64)),
    ScalarOp("s_bitset1_b64", U64, (SHIFT,), lambda a, d: d | 1 << a % 64),
    ScalarOp("s_wqm_b32", U32, ONE, unary(lambda a: sum(15 << q for q in range(0, 32, 4) if a >> q & 15))),
]

MOVES = [
    ScalarOp("s_mov_b32", U32, ONE, lambda a: a),
    ScalarOp("s_mov_b64", U64, (U64,), lambda a: a),
    ScalarOp("s_cmov_b32", U32, ONE, lambda a, d, scc: a if scc else d),
    ScalarOp("s_cmov_b64", U64, (U64,), lambda a, d, scc: a if scc else d),
    ScalarOp("s_cselect_b32", U32, TWO, lambda a, b, scc: a if scc else b),
    ScalarOp("s_cselect_b64", U64, WIDE, lambda a, b, scc: a if scc else b),
    # Widening of constants.
    ScalarOp("s_mov_b64", U64, (), lambda: -16, "{d}, -16"),
    ScalarOp("s_mov_b64", U64, (), lambda: 0x3FF0000000000000, "{d}, 1.0"),
    ScalarOp("s_mov_b64", U64, (), lambda: 0x12345678, "{d}, 0x12345678"),
    ScalarOp("s_mov_b32", U32, (), lambda: 0xBF000000, "{d}, -0.5"),
    ScalarOp("s_mov_b32", U32, (), lambda: 0x3E22F983, "{d}, 0.15915494"),
    ScalarOp("s_mov_b32", U32, (), lambda: 0xDEADBEEF, "{d}, 0xdeadbeef"),
]

COMPARES = [
    *(ScalarOp(f"s_cmp_{n}_u32", None, TWO, f) for n, f in COMPARE.items()),
    *(
        ScalarOp(f"s_cmp_{n}_i32", None, TWO, lambda a, b, f=f: f(signed(a), signed(b)))
        for n, f in COMPARE.items()
    ),
    *(
        ScalarOp(f"s_cmpk_{n}_u32 rdna4:-", None, ONE, lambda a, f=f, k=k: f(a, k), f"{{a}}, {k:#x}")
        for n, f in COMPARE.items()
        for k in CONSTANTS
    ),
    *(
        ScalarOp(
            f"s_cmpk_{n}_i32 rdna4:-",
            None,
            ONE,
            lambda a, f=f, k=k: f(signed(a), simm(k)),
            f"{{a}}, {literal(k, True)}",
        )
        for n, f in COMPARE.items()
        for k in CONSTANTS
    ),
    ScalarOp("s_cmp_eq_u64", None, WIDE, lambda a, b: a == b),
    ScalarOp("s_cmp_lg_u64", None, WIDE, lambda a, b: a != b),
    ScalarOp("s_bitcmp0_b32", None, (U32, SHIFT), lambda a, b: not a >> b % 32 & 1),
    ScalarOp("s_bitcmp1_b32", None, (U32, SHIFT), lambda a, b: a >> b % 32 & 1),
    ScalarOp("s_bitcmp0_b64", None, (U64, SHIFT), lambda a, b: not a >> b % 64 & 1),
    ScalarOp("s_bitcmp1_b64", None, (U64, SHIFT), lambda a, b: a >> b % 64 & 1),
]

I32_RANGE, U32_RANGE = (-(2**31), 2**31 - 1), (0, 2**32 - 1)
COMPARES_F32 = (ORDERED | FLOAT_ONLY).items()

FLOATS = [
    ScalarOp("rdna3_5:s_add_f32", F, (F, F), F32.add),
    ScalarOp("rdna3_5:s_sub_f32", F, (F, F), F32.sub),
    ScalarOp("rdna3_5:s_mul_f32", F, (F, F), F32.mul),
    ScalarOp("rdna3_5:s_mul_f32", F, (F,), lambda a: F32.mul(a, F32.round(-4)), "{d}, {a}, -4.0"),
    ScalarOp("rdna3_5:s_mul_f32", F, (F,), lambda a: F32.mul(0x3FB8AA3B, a), "{d}, 0x3fb8aa3b, {a}"),
    ScalarOp("rdna4:s_max_num_f32", F, (F, F), F32.max_num),
    ScalarOp("rdna4:s_min_num_f32", F, (F, F), F32.min_num),
    ScalarOp("rdna3_5:s_cvt_i32_f32", U32, (F,), lambda a: F32.to_integer(a, *I32_RANGE)),
    ScalarOp("rdna3_5:s_cvt_u32_f32", U32, (F,), lambda a: F32.to_integer(a, *U32_RANGE)),
    ScalarOp("rdna3_5:s_cvt_f32_i32", F, ONE, lambda a: F32.round(Fraction(signed(a)))),
    ScalarOp("rdna3_5:s_cvt_f32_u32", F, ONE, lambda a: F32.round(Fraction(a))),
    *(
        ScalarOp(f"rdna3_5:s_cmp_{name}_f32", None, (F, F), lambda a, b, f=f: f(F32.value(a), F32.value(b)))
        for name, f in COMPARES_F32
        if name not in ("f", "tru")  # the scalar unit lacks constant comparisons of floats
    ),
]
# The vector unit's, on scalar registers.
NEGATED = "{d}, -|{a}|"
TRANSCENDENTAL = [
    ScalarOp("rdna4:v_s_exp_f32", F, (F,), transcendental(power_of_two), ulp=1),
    ScalarOp("rdna4:v_s_log_f32", F, (F,), transcendental(logarithm), ulp=1),
    ScalarOp("rdna4:v_s_rcp_f32", F, (F,), signed_zero_rcp(F32), ulp=1),
    ScalarOp("rdna4:v_s_rcp_f32", F, (F,), lambda a: signed_zero_rcp(F32)(a | F32.sign), NEGATED, ulp=1),
    ScalarOp("rdna4:v_s_rsq_f32", F, (F,), inverse_root(F32), ulp=1),
    ScalarOp("rdna4:v_s_sqrt_f32", F, (F,), transcendental(root), ulp=1),
]

OPS = [*ARITHMETIC, *BITS, *MOVES, *COMPARES, *FLOATS, *TRANSCENDENTAL]
