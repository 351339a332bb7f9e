"""Atomics on global memory, flat addresses, buffers and LDS: the memory after, and the old value returned."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.engine.emulator.semantics import memory_frame as frame
from tests.engine.emulator.semantics.memory_frame import (
    ALL,
    ALL_ON,
    AS_BEFORE,
    CDNA,
    CELLS,
    M32,
    MEMORY,
    RDNA,
    SIZE,
    WAIT,
    fill,
    names,
    registers,
    script,
)  # fmt: skip
from tests.engine.emulator.semantics.numbers.exact import BF16, F16, F32, F64
from tests.engine.emulator.semantics.numbers.operands import D, F, signed
from tests.engine.emulator.semantics.ops.lds_ops import LDS
from tests.engine.emulator.semantics.snippets import Code, merged

# Each arch's modifier for returning the old value.
RETURNS = {"cdna:{0} cdna3:-": "glc", "cdna3:{0}": "sc0", "rdna:{0} rdna3:{1} rdna4:-": "glc"}
RETURNS |= {"rdna4:{1}": "th:TH_ATOMIC_RETURN"}
GLOBAL = ("global_store_dword v4, {}, s[8:9] offset:{}", "global_load_dword {}, v4, s[8:9] offset:{}")
ZERO = {CDNA: "0", RDNA: "null"}  # a buffer's offset common to all lanes
SHARED = ("ds_write_b32 v4, {} offset:{}", "ds_read_b32 {}, v4 offset:{}")


def smaller(width):
    return lambda x, a: min(x, a, key=lambda v: signed(v, width))


def larger(width):
    return lambda x, a: max(x, a, key=lambda v: signed(v, width))


@dataclass(frozen=True)
class Row:
    """Names for global memory (before RDNA 3, from RDNA 3 on) and for LDS. x is in memory, a is the data."""

    old: str
    new: str
    shared: str
    width: int
    function: Callable[[int, int], int]


ROWS = [
    Row("add", "add_u32", "add_u32", 32, lambda x, a: x + a),
    Row("sub", "sub_u32", "sub_u32", 32, lambda x, a: x - a),
    Row("", "", "rsub_u32", 32, lambda x, a: a - x),
    Row("smin", "min_i32", "min_i32", 32, smaller(32)),
    Row("umin", "min_u32", "min_u32", 32, min),
    Row("smax", "max_i32", "max_i32", 32, larger(32)),
    Row("umax", "max_u32", "max_u32", 32, max),
    Row("and", "and_b32", "and_b32", 32, lambda x, a: x & a),
    Row("or", "or_b32", "or_b32", 32, lambda x, a: x | a),
    Row("xor", "xor_b32", "xor_b32", 32, lambda x, a: x ^ a),
    Row("inc", "inc_u32", "inc_u32", 32, lambda x, a: 0 if x >= a else x + 1),
    Row("dec", "dec_u32", "dec_u32", 32, lambda x, a: a if x == 0 or x > a else x - 1),
    Row("swap", "swap_b32", "", 32, lambda x, a: a),
    Row("add_x2", "add_u64", "add_u64", 64, lambda x, a: x + a),
    Row("sub_x2", "sub_u64", "", 64, lambda x, a: x - a),
    Row("smin_x2", "min_i64", "", 64, smaller(64)),
    Row("umin_x2", "min_u64", "", 64, min),
    Row("smax_x2", "max_i64", "", 64, larger(64)),
    Row("umax_x2", "max_u64", "", 64, max),
    Row("and_x2", "and_b64", "and_b64", 64, lambda x, a: x & a),
    Row("or_x2", "or_b64", "or_b64", 64, lambda x, a: x | a),
    Row("xor_x2", "xor_b64", "", 64, lambda x, a: x ^ a),
    Row("swap_x2", "swap_b64", "", 64, lambda x, a: a),
]


def near(rng, register):
    """Values, many of them equal or adjacent."""
    few = (0, 1, 5, 6, 7, M32, 0x80000000, 0x7FFFFFFF, rng.getrandbits(32))
    return rng.choice(few) if register[0] == "v" else rng.getrandbits(32)


def code(called, access, width, function, *, returns=False, values=near, frame_=GLOBAL):
    """v20.. is in memory before, v8.. is the data. v30.. is read back, v16.. is the returned value."""
    words = width // 32
    put, get = frame_

    def number(wave, base, lane):
        return sum(wave[name][lane] << 32 * k for k, name in enumerate(names(base, words)))

    def reference(wave):
        lanes = range(wave.lanes)
        before = [number(wave, 20, lane) for lane in lanes]
        new = [function(x, number(wave, 8, lane)) for lane, x in zip(lanes, before, strict=True)]
        after = merged(wave, before, new)
        out = {f"v{30 + k}": [x >> 32 * k & M32 for x in after] for k in range(words)}
        for k in range(words if returns else 0):
            out[f"v{16 + k}"] = merged(wave, wave[f"v{16 + k}"], [x >> 32 * k & M32 for x in before])
        return out

    text = script(
        ALL_ON,
        CELLS,
        [put.format(f"v{20 + k}", 4 * k) for k in range(words)],
        WAIT,
        AS_BEFORE,
        access,
        WAIT,
        ALL_ON,
        [get.format(f"v{30 + k}", 4 * k) for k in range(words)],
        WAIT,
    )
    inputs = tuple(name for base in ((20, 8, 16) if returns else (20, 8)) for name in names(base, words))
    lds = LDS if frame_ is SHARED else 0
    return Code(called, text, reference, inputs, values=values, memory=MEMORY, groups=5, lds=lds)


def global_codes(row):
    data, back = registers(8, row.width // 32), registers(16, row.width // 32)
    old, new, width, function = row.old, row.new, row.width, row.function
    for where in (CDNA, RDNA):
        called = fill(where, f"global_atomic_{old}", f"global_atomic_{new}")
        yield code(called, f"{{x}} v4, {data}, s[8:9]", width, function)
        called = fill(where, f"flat_atomic_{old}", f"flat_atomic_{new}")
        yield code(called, script(frame.address64(where), f"{{x}} v[6:7], {data}"), width, function)
        called = fill(where, f"buffer_atomic_{old}", f"buffer_atomic_{new}")
        access = script(frame.resource(SIZE), f"{{x}} {data}, v4, s[12:15], {ZERO[where]} offen")
        yield code(called, access, width, function)
    for where, flag in RETURNS.items():
        called = where.format(f"global_atomic_{old}", f"global_atomic_{new}")
        yield code(called, f"{{x}} {back}, v4, {data}, s[8:9] {flag}", width, function, returns=True)


def shared_codes(row):
    data, back = registers(8, row.width // 32), registers(16, row.width // 32)
    stem, suffix = row.shared.rsplit("_", 1)
    yield code(f"ds_{row.shared}", f"{{x}} v4, {data}", row.width, row.function, frame_=SHARED)
    access = f"{{x}} {back}, v4, {data}"
    returning = f"ds_{stem}_rtn_{suffix}"
    yield code(returning, access, row.width, row.function, returns=True, frame_=SHARED)


# ---- floating point: numbers only. The behaviour of memory's adders on denormals and NaNs is unpublished
def halves(f):
    return lambda x, a: f.add(x & 0xFFFF, a & 0xFFFF) | f.add(x >> 16, a >> 16) << 16


def ordinary(kind):
    f = kind.format
    finite = [x for x in kind.edges if not f.is_nan(x) and f.abs(x) != f.inf]
    return [x for x in finite if f.value(x) == 0 or abs(f.value(x)) > f.min_normal * 2**30]


PAIRS_F16 = (0x3C003C00, 0xBC003C01, 0x4248C248, 0x64007BFE, 0x2E663555)
PAIRS_BF16 = (0x3F803F80, 0xBF803F81, 0x4049C049, 0x47804000, 0x3DCD3E99)
MINMAX = "rdna1:global_atomic_f{0} rdna3:global_atomic_{0}_f32 rdna4:global_atomic_{0}_num_f32"
FLOATS = [
    ("cdna1:global_atomic_add_f32 rdna3:global_atomic_add_f32", 32, F32.add, ordinary(F)),
    (
        "rdna1:global_atomic_fmin rdna3:global_atomic_min_f32 rdna4:global_atomic_min_num_f32",
        32,
        F32.min,
        ordinary(F),
    ),
    (
        "rdna1:global_atomic_fmax rdna3:global_atomic_max_f32 rdna4:global_atomic_max_num_f32",
        32,
        F32.max,
        ordinary(F),
    ),
    ("cdna1:global_atomic_pk_add_f16", 32, halves(F16), PAIRS_F16),
    ("cdna3:global_atomic_pk_add_bf16", 32, halves(BF16), PAIRS_BF16),
    ("cdna3:global_atomic_add_f64", 64, F64.add, ordinary(D)),
    ("cdna3:global_atomic_min_f64", 64, F64.min, ordinary(D)),
    ("cdna3:global_atomic_max_f64", 64, F64.max, ordinary(D)),
]


def among(width, edges):
    """Values for registers. A double's high word is chosen, and its low word is arbitrary."""

    def value(rng, register):
        high_word = width == 64 and int(register[1:]) % 2 if register[0] == "v" else 0
        if register[0] != "v" or (width == 64 and not high_word):
            return rng.getrandbits(32)
        return rng.choice(edges) >> 32 if high_word else rng.choice(edges)

    return value


def float_codes():
    for called, width, function, edges in FLOATS:
        data = registers(8, width // 32)
        yield code(called, f"{{x}} v4, {data}, s[8:9]", width, function, values=among(width, edges))
    for name, function in (("add", F32.add), ("min", F32.min), ("max", F32.max)):
        values = among(32, ordinary(F))
        later = name if name == "add" else f"{name}_num"
        names = f"ds_{name}_f32 rdna4:ds_{later}_f32"
        yield code(names, "{x} v4, v8", 32, function, values=values, frame_=SHARED)
        names, access = f"ds_{name}_rtn_f32 rdna4:ds_{later}_rtn_f32", "{x} v16, v4, v8"
        yield code(names, access, 32, function, returns=True, values=values, frame_=SHARED)


# ---- exchanges: the new value is 9 where memory holds 5
def five_to_nine(x, _):
    return 9 if x == 5 else x


NINE_FIVE = ["v_mov_b32 v12, 9", "v_mov_b32 v13, 5"]
NINE_FIVE_WIDE = ["v_mov_b32 v12, 9", "v_mov_b32 v13, 0", "v_mov_b32 v14, 5", "v_mov_b32 v15, 0"]


def wide_fives(rng, register):
    """Memory's doublewords (v20, v21) are 5 in half of the lanes."""
    if register[0] != "v":
        return rng.getrandbits(32)
    return {"v20": 5, "v21": rng.choice((0, 0, 0, 1))}.get(register, rng.getrandbits(32))


def exchanges():
    """Data of global cmpswap: new, compared. Of ds_cmpst: compared, new. Of ds_cmpstore: new, compared."""
    for bits in (32, 64):
        kinds = f"ds_wrxchg_rtn_b{bits} rdna3:ds_storexchg_rtn_b{bits}"
        access = f"{{x}} {registers(16, bits // 32)}, v4, {registers(8, bits // 32)}"
        yield code(kinds, access, bits, lambda x, a: a, returns=True, frame_=SHARED)
    swap, wide = {"function": five_to_nine, "width": 32}, {"function": five_to_nine, "width": 64}
    kinds = fill(ALL, "global_atomic_cmpswap", "global_atomic_cmpswap_b32")
    yield code(kinds, script(NINE_FIVE, "{x} v4, v[12:13], s[8:9]"), **swap)
    kinds = fill(ALL, "global_atomic_cmpswap_x2", "global_atomic_cmpswap_b64")
    yield code(kinds, script(NINE_FIVE_WIDE, "{x} v4, v[12:15], s[8:9]"), **wide, values=wide_fives)
    for kinds, two in (("ds_cmpst{} rdna3:-", "v13, v12"), ("rdna3:ds_cmpstore{}", "v12, v13")):
        name = kinds.replace("{}", "_b32")
        yield code(name, script(NINE_FIVE, f"{{x}} v4, {two}"), **swap, frame_=SHARED)
        name, access = kinds.replace("{}", "_rtn_b32"), f"{{x}} v16, v4, {two}"
        yield code(name, script(NINE_FIVE, access), **swap, returns=True, frame_=SHARED)
    for name, two in (
        ("ds_cmpst_rtn_b64 rdna3:-", "v[14:15], v[12:13]"),
        ("rdna3:ds_cmpstore_rtn_b64", "v[12:13], v[14:15]"),
    ):
        access = script(NINE_FIVE_WIDE, f"{{x}} v[16:17], v4, {two}")
        yield code(name, access, **wide, returns=True, values=wide_fives, frame_=SHARED)


OPS = [
    *(one for row in ROWS if row.old for one in global_codes(row)),
    *(one for row in ROWS if row.shared for one in shared_codes(row)),
    *float_codes(),
    *exchanges(),
]
