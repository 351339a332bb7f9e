"""Instructions for moving data between lanes."""

from tests.engine.emulator.semantics.snippets import Code, merged

RDNA = "rdna:{}"
M32 = 0xFFFFFFFF


def first(wave):
    """The lowest active lane, or lane 0 if none is active."""
    return (wave.exec & -wave.exec).bit_length() - 1 if wave.exec else 0


def moved(source):
    """Every active lane gets ``source(wave, lane)`` of v4. It keeps v16 where the source is None."""

    def reference(wave):
        picks = [source(wave, i) for i in range(wave.lanes)]
        new = [
            wave["v16"][i] if p is None else 0 if p == "zero" else wave["v4"][p] for i, p in enumerate(picks)
        ]
        return {"v16": merged(wave, wave["v16"], new)}

    return reference


def when_active(wave, lane):
    return lane if wave.active(lane) else "zero"


def bpermute(wave):
    to = [wave["v8"][i] // 4 % wave.lanes for i in range(wave.lanes)]
    new = [wave["v4"][j] if wave.active(j) else 0 for j in to]
    return {"v16": merged(wave, wave["v16"], new)}


def permute(wave):
    new = [0] * wave.lanes
    for i in range(wave.lanes):
        if wave.active(i):
            new[wave["v8"][i] // 4 % wave.lanes] = wave["v4"][i]
    return {"v16": merged(wave, wave["v16"], new)}


def swizzle(function):
    return moved(lambda wave, i: when_active(wave, i // 32 * 32 + function(i % 32)))


def bitmask(and_mask, or_mask, xor_mask):
    return swizzle(lambda i: ((i & and_mask) | or_mask) ^ xor_mask)


def permlane(other_row, fetch_inactive, bound_zero):
    def source(wave, i):
        selects = wave["s16"] | wave["s17"] << 32
        j = (i // 16 * 16 ^ other_row) + (selects >> 4 * (i % 16) & 15)
        return j if fetch_inactive or wave.active(j) else "zero" if bound_zero else None

    return moved(source)


def mbcnt(high):
    def reference(wave):
        new = []
        for i in range(wave.lanes):
            below = (1 << i) - 1
            below = below >> 32 if high else below & M32
            new.append((wave["v4"][i] & below).bit_count() + wave["v8"][i])
        return {"v16": merged(wave, wave["v16"], new)}

    return reference


def readlane(wave):
    return {"s40": wave["v4"][wave["s16"] % wave.lanes]}


def writelane(wave):
    out = list(wave["v16"])
    out[wave["s17"] % wave.lanes] = wave["s16"]
    return {"v16": out}


def swapped(wave):
    return {"v4": merged(wave, wave["v4"], wave["v16"]), "v16": merged(wave, wave["v16"], wave["v4"])}


def swapped_halves(half):
    """The upper lanes of each two halves of v4 and the lower ones of v16 change places."""

    def reference(wave):
        upper = [i for i in range(wave.lanes) if i // half % 2]
        first, second = list(wave["v4"]), list(wave["v16"])
        for i in upper:
            first[i], second[i - half] = second[i - half], first[i]
        return {"v4": first, "v16": second}

    return reference


V = ("v4", "v16")
CROSS = [
    Code("v_readfirstlane_b32", "{x} s40, v4", lambda w: {"s40": w["v4"][first(w)]}, ("v4",)),
    Code("v_readlane_b32", "{x} s40, v4, s16", readlane, ("v4",), ("s16",)),
    Code("v_writelane_b32", "s_mov_b32 m0, s17\n{x} v16, s16, m0", writelane, ("v16",), ("s16", "s17")),
    Code("v_swap_b32", "{x} v4, v16", swapped, V),
    Code("cdna4:v_permlane16_swap_b32", "{x} v4, v16", swapped_halves(16), V, full_exec=True),
    Code("cdna4:v_permlane32_swap_b32", "{x} v4, v16", swapped_halves(32), V, full_exec=True),
    Code("v_mbcnt_lo_u32_b32", "{x} v16, v4, v8", mbcnt(high=False), (*V, "v8")),
    Code("v_mbcnt_hi_u32_b32", "{x} v16, v4, v8", mbcnt(high=True), (*V, "v8")),
    Code("cdna1:v_accvgpr_write_b32", "{x} a3, v4\nv_accvgpr_read_b32 v16, a3", moved(lambda w, i: i), V),
    Code("cdna1:v_accvgpr_read_b32", "v_accvgpr_write_b32 a3, v4\n{x} v16, a3", moved(lambda w, i: i), V),
    Code(
        "cdna1:v_accvgpr_write_b32",
        "{x} a3, 7\nv_accvgpr_read_b32 v16, a3",
        lambda w: {"v16": merged(w, w["v16"], [7] * w.lanes)},
        V,
    ),
    Code(
        "cdna2:v_accvgpr_mov_b32",
        "v_accvgpr_write_b32 a3, v4\n{x} a5, a3\nv_accvgpr_read_b32 v16, a5",
        moved(lambda w, i: i),
        V,
    ),
    Code("ds_bpermute_b32", "{x} v16, v8, v4\ns_waitcnt lgkmcnt(0)", bpermute, (*V, "v8")),
    Code(
        "ds_permute_b32",
        "{x} v16, v8, v4\ns_waitcnt lgkmcnt(0)",
        permute,
        (*V, "v8"),
        values=lambda rng, r: 4 * next(LANE[r]) if r == "v8" else rng.getrandbits(32),
        full_exec=True,
    ),
    *(
        Code("ds_swizzle_b32", f"{{x}} v16, v4 offset:{text}\ns_waitcnt lgkmcnt(0)", reference, V)
        for text, reference in (
            ("swizzle(SWAP,16)", bitmask(31, 0, 16)),
            ("swizzle(SWAP,1)", bitmask(31, 0, 1)),
            ("swizzle(REVERSE,8)", bitmask(31, 0, 7)),
            ("swizzle(BROADCAST,8,3)", bitmask(24, 3, 0)),
            ('swizzle(BITMASK_PERM,"0p1i0")', bitmask(0b01010, 0b00100, 0b00010)),
            ("swizzle(QUAD_PERM,3,0,2,1)", swizzle(lambda i: i // 4 * 4 + (3, 0, 2, 1)[i % 4])),
        )
    ),
    *(
        Code(RDNA.format(name), f"{{x}} v16, v4, s16, s17{text}", permlane(row, fi, bound), V, ("s16", "s17"))
        for name, row in (("v_permlane16_b32", 0), ("v_permlanex16_b32", 16))
        for text, fi, bound in (
            ("", False, False),
            (" op_sel:[1,0]", True, False),
            (" op_sel:[0,1]", False, True),
        )
    ),
]


ROW_OF_FOUR = ("v4", "v5", "v6", "v7")


def picked(wave):
    """v16 is the register picked by s16 from the four."""
    return {"v16": merged(wave, wave["v16"], wave[ROW_OF_FOUR[wave["s16"] & 3]])}


def placed(wave):
    """v16 goes to the register picked by s16 from the four."""
    to = ROW_OF_FOUR[wave["s16"] & 3]
    return {r: merged(wave, wave[r], wave["v16"]) if r == to else wave[r] for r in ROW_OF_FOUR}


def picked_and_placed(wave):
    """The register picked by s16 from the four goes to the register with that number from v8 on."""
    to = f"v{8 + (wave['s16'] & 3)}"
    source = wave[ROW_OF_FOUR[wave["s16"] & 3]]
    return {r: merged(wave, wave[r], source) if r == to else wave[r] for r in ("v8", "v9", "v10", "v11")}


INDEX = "s_and_b32 s40, s16, 3\n"
ON = "s_set_gpr_idx_on s40, gpr_idx"
OFF = "\ns_set_gpr_idx_off"
V16 = (*ROW_OF_FOUR, "v16")
EIGHT = (*ROW_OF_FOUR, "v8", "v9", "v10", "v11")
INDEXED = [
    Code(f"cdna:{name}", INDEX + text + OFF, reference, V16, ("s16",))
    for name, text, reference in (
        ("s_set_gpr_idx_on", "{x} s40, gpr_idx(SRC0)\nv_mov_b32 v16, v4", picked),
        ("s_set_gpr_idx_on", "{x} s40, gpr_idx(DST)\nv_mov_b32 v4, v16", placed),
        (
            "s_set_gpr_idx_idx",
            f"s_mov_b32 s41, 9\n{ON.replace('s40', 's41')}(SRC0)\n{{x}} s40\nv_mov_b32 v16, v4",
            picked,
        ),
        ("s_set_gpr_idx_mode", f"{ON}(SRC0)\n{{x}} gpr_idx(DST)\nv_mov_b32 v4, v16", placed),
        ("s_set_gpr_idx_off", f"{ON}(SRC0)\nv_mov_b32 v16, v4\n{{x}}\nv_mov_b32 v20, v7", picked),
    )
] + [
    Code("rdna:v_movrels_b32", f"{INDEX}s_mov_b32 m0, s40\n{{x}} v16, v4", picked, V16, ("s16",)),
    Code("rdna:v_movreld_b32", f"{INDEX}s_mov_b32 m0, s40\n{{x}} v4, v16", placed, V16, ("s16",)),
    Code(
        "rdna:v_movrelsd_b32", f"{INDEX}s_mov_b32 m0, s40\n{{x}} v8, v4", picked_and_placed, EIGHT, ("s16",)
    ),
]


class LaneOrder:
    """Always a permutation of the lanes: ds_permute's order for equal targets is unpublished."""

    def __init__(self):
        self.i = 0

    def __next__(self):
        self.i += 1
        return self.i * 37


LANE = {"v8": LaneOrder()}

OPS = CROSS + INDEXED
