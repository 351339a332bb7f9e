"""VOPD, two instructions at once: both halves read before either writes."""

from tests.engine.emulator.semantics.numbers.exact import F32
from tests.engine.emulator.semantics.numbers.operands import NUMBERS
from tests.engine.emulator.semantics.snippets import Code, merged

RDNA3, RDNA4 = "rdna3:{}", "rdna4:{}"


def dual(first_half, second_half):
    def reference(wave):
        lanes = range(wave.lanes)
        x, y = ([half(wave, i) for i in lanes] for half in (first_half, second_half))
        return {"v4": merged(wave, wave["v4"], x), "v5": merged(wave, wave["v5"], y)}

    return reference


def get(register):
    return lambda w, i: w[register][i]


def on(function, *registers):
    return lambda w, i: function(*(w[r][i] for r in registers))


def vcc_choice(a, b):
    return lambda w, i: w[b][i] if w["vcc_lo"] >> i & 1 else w[a][i]


# text of a half: it writes {d} and reads {a} (any bank) and {b}. Its value from registers a, b and d
HALVES = {
    "v_dual_mov_b32 {d}, {a}": lambda a, b, d: get(a),
    "v_dual_add_f32 {d}, {a}, {b}": lambda a, b, d: on(F32.add, a, b),
    "v_dual_sub_f32 {d}, {a}, {b}": lambda a, b, d: on(F32.sub, a, b),
    "v_dual_subrev_f32 {d}, {a}, {b}": lambda a, b, d: on(lambda x, y: F32.sub(y, x), a, b),
    "v_dual_mul_f32 {d}, {a}, {b}": lambda a, b, d: on(F32.mul, a, b),
    "v_dual_mul_dx9_zero_f32 {d}, {a}, {b}": lambda a, b, d: on(
        lambda x, y: 0 if not F32.abs(x) or not F32.abs(y) else F32.mul(x, y), a, b
    ),
    "v_dual_max_f32 {d}, {a}, {b}": lambda a, b, d: on(F32.max, a, b),
    "v_dual_min_f32 {d}, {a}, {b}": lambda a, b, d: on(F32.min, a, b),
    "v_dual_max_num_f32 {d}, {a}, {b}": lambda a, b, d: on(F32.max_num, a, b),
    "v_dual_min_num_f32 {d}, {a}, {b}": lambda a, b, d: on(F32.min_num, a, b),
    "v_dual_fmac_f32 {d}, {a}, {b}": lambda a, b, d: on(F32.fma, a, b, d),
    "v_dual_fmaak_f32 {d}, {a}, {b}, 0x40490fdb": lambda a, b, d: on(
        lambda x, y: F32.fma(x, y, 0x40490FDB), a, b
    ),
    "v_dual_cndmask_b32 {d}, {a}, {b}": lambda a, b, d: vcc_choice(a, b),
}
ONLY_SECOND = {
    "v_dual_and_b32 {d}, {a}, {b}": lambda a, b, d: on(lambda x, y: x & y, a, b),
    "v_dual_add_nc_u32 {d}, {a}, {b}": lambda a, b, d: on(lambda x, y: x + y, a, b),
    "v_dual_lshlrev_b32 {d}, {a}, {b}": lambda a, b, d: on(lambda x, y: y << x % 32, a, b),
}
GONE = dict.fromkeys(("v_dual_max_f32", "v_dual_min_f32"), " rdna4:-")
# The first half overwrites v4, a source of the second. The second overwrites v5, a source of the first.
FIRST, SECOND = ("v5", "v10", "v4"), ("v4", "v11", "v5")


def form(text, registers):
    a, b, d = registers
    return text.format(a=a, b=b, d=d)


def dual_codes():
    mov = "v_dual_mov_b32 {d}, {a}"
    pairs = [(x, mov) for x in HALVES] + [(mov, y) for y in (HALVES | ONLY_SECOND)]
    pairs += [
        ("v_dual_mul_f32 {d}, {a}, {b}", "v_dual_fmac_f32 {d}, {a}, {b}"),
        ("v_dual_cndmask_b32 {d}, {a}, {b}", "v_dual_cndmask_b32 {d}, {a}, {b}"),
    ]
    for x, y in dict.fromkeys(pairs):
        name = (x if x != mov else y).split()[0]
        yield Code(
            (RDNA4 if "_num_" in name else RDNA3).format(name) + GONE.get(name, ""),
            form(x, FIRST) + " :: " + form(y, SECOND),
            dual(HALVES[x](*FIRST), (HALVES | ONLY_SECOND)[y](*SECOND)),
            ("v4", "v5", "v10", "v11"),
            ("vcc_lo",),
            values=lambda rng, r: rng.getrandbits(32) if r.startswith(("s", "vcc")) else rng.choice(NUMBERS),
        )


OPS = list(dual_codes())
