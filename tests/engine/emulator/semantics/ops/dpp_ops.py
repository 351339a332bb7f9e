"""DPP: source 0 comes from another lane, row by row."""

from tests.engine.emulator.semantics.numbers.exact import F32
from tests.engine.emulator.semantics.numbers.operands import NUMBERS
from tests.engine.emulator.semantics.ops.lane_ops import RDNA, V, moved
from tests.engine.emulator.semantics.snippets import Code, merged

CDNA = "cdna:{}"
ROW = 16


def row_shift(n):
    return lambda i: i + n if 0 <= i % ROW + n < ROW else None


DPP_ANY = {
    "quad_perm:[3,1,0,2]": lambda i: i // 4 * 4 + (3, 1, 0, 2)[i % 4],
    "row_shl:3": row_shift(3),
    "row_shr:1": row_shift(-1),
    "row_ror:5": lambda i: i // ROW * ROW + (i - 5) % ROW,
    "row_mirror": lambda i: i // ROW * ROW + 15 - i % ROW,
    "row_half_mirror": lambda i: i // 8 * 8 + 7 - i % 8,
}
DPP_GFX9 = {
    "wave_shl:1": lambda i: i + 1 if i < 63 else None,
    "wave_shr:1": lambda i: i - 1 if i else None,
    "wave_rol:1": lambda i: (i + 1) % 64,
    "wave_ror:1": lambda i: (i - 1) % 64,
}
DPP_RDNA = {
    "row_share:5": lambda i: i // ROW * ROW + 5,
    "row_xmask:6": lambda i: i ^ 6,
    "dpp8:[7,6,5,4,3,2,1,0]": lambda i: i // 8 * 8 + 7 - i % 8,
}


# Broadcasts, limited by row_mask: lane 15 of each row to the next row, lane 31 to the upper two rows.
def row_before(i):
    return i // ROW * ROW - 1 if i >= ROW else None


def lower_half(i):
    return 31 if i >= 32 else None


def in_rows(source, mask):
    return lambda i: source(i) if mask >> i // ROW & 1 else None


BROADCAST = {
    f"{control} row_mask:{mask:#x}": in_rows(source, mask)
    for control, source in (("row_bcast:15", row_before), ("row_bcast:31", lower_half))
    for mask in (0xA, 0xC, 0xE, 0x6, 0xF)
}


def dpp(source, *, bound_zero=False, fetch_inactive=False):
    def pick(wave, i):
        j = source(i)
        if j is not None and (fetch_inactive or wave.active(j)):
            return j
        return "zero" if bound_zero else None

    return moved(pick)


def dpp_sum(source):
    def reference(wave):
        new = []
        for i in range(wave.lanes):
            j = source(i)
            gone = j is None or not wave.active(j)
            new.append(wave["v16"][i] if gone else F32.add(wave["v4"][j], wave["v8"][i]))
        return {"v16": merged(wave, wave["v16"], new)}

    return reference


def dpp_codes(names, controls):
    for text, source in controls.items():
        masks = "" if "mask" in text or "dpp8" in text else " row_mask:0xf bank_mask:0xf"
        yield Code(names.format("v_mov_b32_dpp"), f"{{x}} v16, v4 {text}{masks}", dpp(source), V)
        if "mask:" not in text and "dpp8" not in text:
            yield Code(
                names.format("v_mov_b32_dpp"),
                f"{{x}} v16, v4 {text}{masks} bound_ctrl:1",
                dpp(source, bound_zero=True),
                V,
            )
            yield Code(
                names.format("v_add_f32_dpp"),
                f"{{x}} v16, v4, v8 {text}{masks}",
                dpp_sum(source),
                (*V, "v8"),
                values=lambda rng, r: rng.getrandbits(32) if r.startswith("s") else rng.choice(NUMBERS),
            )


def masked(wave):
    """row_mask and bank_mask name the written rows, and the written quads of each row."""
    allowed = [bool(0b0101 >> i // 16 & 1) and bool(0b0110 >> i // 4 % 4 & 1) for i in range(wave.lanes)]
    ok = [a and wave.active(i) and wave.active(i ^ 1) for i, a in enumerate(allowed)]
    return {"v16": [wave["v4"][i ^ 1] if ok[i] else wave["v16"][i] for i in range(wave.lanes)]}


DPP = [
    *dpp_codes("{}", DPP_ANY),
    *dpp_codes(CDNA, DPP_GFX9 | BROADCAST),
    *dpp_codes(RDNA, DPP_RDNA),
    *dpp_codes("cdna3:{}", {"row_newbcast:5": lambda i: i // ROW * ROW + 5}),
    Code("v_mov_b32_dpp", "{x} v16, v4 quad_perm:[1,0,3,2] row_mask:0x5 bank_mask:0x6", masked, V),
    Code(
        "rdna:v_mov_b32_dpp",
        "{x} v16, v4 row_xmask:6 row_mask:0xf bank_mask:0xf fi:1",
        dpp(lambda i: i ^ 6, fetch_inactive=True),
        V,
    ),
]


OPS = DPP
