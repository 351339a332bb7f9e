"""Loads and stores of global memory.  Stores are read back with plain loads, also tested here."""

from tests.engine.emulator.semantics import memory_frame as frame
from tests.engine.emulator.semantics.memory_frame import (
    AFTER,
    ALL,
    ALL_ON,
    AS_BEFORE,
    BACKGROUND,
    CDNA,
    CELLS,
    MEMORY,
    RDNA,
    SIZE,
    WAIT,
    fill,
    names,
    registers,
    script,
)  # fmt: skip
from tests.engine.emulator.semantics.snippets import Code, merged

# name before RDNA 3, name from it on, bytes, how a short element fills the register
LOADS = [
    ("dword", "b32", 4, ""),
    ("dwordx2", "b64", 8, ""),
    ("dwordx3", "b96", 12, ""),
    ("dwordx4", "b128", 16, ""),
    ("ubyte", "u8", 1, "zero"),
    ("sbyte", "i8", 1, "sign"),
    ("ushort", "u16", 2, "zero"),
    ("sshort", "i16", 2, "sign"),
    ("ubyte_d16", "d16_u8", 1, "low zero"),
    ("sbyte_d16", "d16_i8", 1, "low sign"),
    ("short_d16", "d16_b16", 2, "low zero"),
    ("ubyte_d16_hi", "d16_hi_u8", 1, "high zero"),
    ("sbyte_d16_hi", "d16_hi_i8", 1, "high sign"),
    ("short_d16_hi", "d16_hi_b16", 2, "high zero"),
]
# names, bytes, first bit of the register
STORES = [
    ("byte", "b8", 1, 0),
    ("short", "b16", 2, 0),
    ("dword", "b32", 4, 0),
    ("dwordx2", "b64", 8, 0),
    ("dwordx3", "b96", 12, 0),
    ("dwordx4", "b128", 16, 0),
    ("byte_d16_hi", "d16_hi_b8", 1, 16),
    ("short_d16_hi", "d16_hi_b16", 2, 16),
]


def places():
    """Each family's addressing: archs, prefix, preceding text, operands, and their addend to v4."""
    for where in (CDNA, RDNA):
        setup = frame.address64(where)
        yield where, "global", [], "v4, DATA s[8:9] offset:4", 4
        yield where, "global", setup, "v[6:7], DATA off offset:-4", -4
        yield where, "flat", setup, "v[6:7] ,DATA", 0
        yield where, "buffer", frame.resource(SIZE), "DATA v4, s[12:15], s20 offen offset:4", 12


def operands(template, data, *, load):
    """A load names its destination first. A store names its data after the address (buffers: before it)."""
    if load:
        return f"{data}, " + template.replace("DATA ", "").replace(" ,DATA", "")
    return template.replace("DATA ", f"{data}, ").replace(" ,DATA", f", {data}")


def address(size):
    """Values for v4: anywhere in memory, aligned to the element. Other registers are arbitrary."""

    def value(rng, register):
        return rng.randrange(32, SIZE - 64, min(size, 4)) if register == "v4" else rng.getrandbits(32)

    return value


def load(place, row):
    where, family, setup, template, offset = place
    old, new, size, how = row

    def reference(wave):
        return frame.loaded(wave, MEMORY, [at + offset for at in wave["v4"]], size, how)

    words = max(1, size // 4)
    access = "{x} " + operands(template, registers(16, words), load=True)
    inputs = ("v4", *names(16, words))
    text = script(setup, access, WAIT)
    called = fill(where, f"{family}_load_{old}", f"{family}_load_{new}")
    return Code(called, text, reference, inputs, values=address(size), memory=MEMORY, groups=8)


def store(place, row):
    where, family, setup, template, offset = place
    old, new, size, shift = row
    add = "v_add_u32" if where == CDNA else "v_add_nc_u32"
    text = script(
        ALL_ON,
        CELLS,
        [f"global_store_dword v4, {name}, s[8:9] offset:{4 * k}" for k, name in enumerate(BACKGROUND)],
        WAIT,
        "v_mov_b32 v5, v4",
        f"{add} v4, {4 - offset}, v4",  # hits the second word, whatever the operands add
        AS_BEFORE,
        setup,
        "{x} " + operands(template, registers(8, max(1, size // 4)), load=False),
        WAIT,
        ALL_ON,
        [f"global_load_dword {name}, v5, s[8:9] offset:{4 * k}" for k, name in enumerate(AFTER)],
        WAIT,
    )
    called = fill(where, f"{family}_store_{old}", f"{family}_store_{new}")
    inputs = (*BACKGROUND, *names(8, 4))
    return Code(called, text, frame.stored(size, shift), inputs, memory=MEMORY, groups=4)


# ---- scalar loads: the address is s[8:9] + s16 + 32
def scalar_load(called, words, setup, operands_):

    def reference(wave):
        at = wave["s16"] % 512 // 4 * 4 + 32
        return {f"s{40 + k}": frame.word(MEMORY, at + 4 * k) for k in range(words)}

    target = "s40" if words == 1 else f"s[40:{39 + words}]"
    text = script("s_and_b32 s16, s16, 0x1fc", setup, f"{{x}} {target}, {operands_}", WAIT)
    return Code(called, text, reference, (), ("s16",), memory=MEMORY, groups=6)


def scalar_loads():
    moved = ["s_add_u32 s10, s8, s16", "s_addc_u32 s11, s9, 0"]
    more = ["s_add_u32 s16, s16, 32"]
    for size in (1, 2, 3, 4, 8, 16):
        old, new = "dword" if size == 1 else f"dwordx{size}", f"b{32 * size}"
        names = fill(ALL, "{}" + old, "{}" + new) if size != 3 else "rdna4:{}" + new
        plain, buffer = (names.replace("{}", stem) for stem in ("s_load_", "s_buffer_load_"))
        yield scalar_load(plain, size, moved, "s[10:11], 0x20")
        yield scalar_load(plain, size, more, "s[8:9], s16")
        yield scalar_load(buffer, size, [*frame.resource(SIZE), *more], "s[12:15], s16")


# ---- a buffer's own range check: loads outside give zero, dword by dword
def out_of_range():
    def reference(wave):
        out = {}
        for k, name in enumerate(names(16, 4)):
            ends = [8 + at + 4 * k for at in wave["v4"]]
            new = [frame.word(MEMORY, end) if end + 4 <= 256 else 0 for end in ends]
            out[name] = merged(wave, wave[name], new)
        return out

    access = ["s_mov_b32 s20, 0", "{x} v[16:19], v4, s[12:15], s20 offen offset:8"]
    called = fill(ALL, "buffer_load_dwordx4", "buffer_load_b128")
    text = script(frame.resource(256), access, WAIT)
    return Code(called, text, reference, ("v4", *names(16, 4)), values=around(248), memory=MEMORY)


def around(end):
    """Values for v4: many within a load of the end of a buffer."""

    def value(rng, register):
        near = (0, 4, end - 48, *range(end - 16, end + 12, 4), 1 << 20, 0x80000000)
        return rng.choice(near) if register == "v4" else rng.getrandbits(32)

    return value


# ---- past the registers: lane by lane into LDS, from M0 and the offset on
def load_to_lds(called, count, access, setup=(), limit=SIZE):
    """v4 gives the memory address of each lane's ``count`` dwords. Those from ``limit`` on are zeros."""

    def loaded(end):
        return frame.word(MEMORY, end) if end + 4 <= limit else 0

    def reference(wave):
        return {
            f"v{30 + k}": [loaded(at + 16 + 4 * k) if wave.active(i) else wave[f"v{20 + k}"][i]
                           for i, at in enumerate(wave["v4"])]
            for k in range(count)
        }  # fmt: skip

    background = [f"ds_write_b32 v5, v{20 + k} offset:{1040 + 4 * k}" for k in range(count)]
    after = [f"ds_read_b32 v{30 + k}, v5 offset:{1040 + 4 * k}" for k in range(count)]
    text = script(
        ALL_ON,
        f"v_mul_u32_u24 v5, {count}, v0",
        background,
        WAIT,
        AS_BEFORE,
        setup,
        "s_movk_i32 m0, 0x400",
        "s_nop 0",
        access,
        WAIT,
        ALL_ON,
        after,
        WAIT,
    )
    inputs = ("v4", *(f"v{20 + k}" for k in range(count)))
    values = address(16) if limit == SIZE else around(limit - 16)
    return Code(called, text, reference, inputs, values=values, lds=16384, memory=MEMORY, groups=6)


def loads_to_lds():
    for count, size in ((1, ""), (4, "x4")):
        yield load_to_lds(f"cdna4:global_load_lds_dword{size}", count, "{x} v4, s[8:9] offset:16")
        archs = "cdna:{} rdna1:{} rdna3:-" if count == 1 else "cdna4:{}"
        called = archs.replace("{}", f"buffer_load_dword{size}")
        setup = [*frame.resource(256), "s_mov_b32 s20, 0"]
        access = "{x} v4, s[12:15], s20 offen offset:16 lds"
        yield load_to_lds(called, count, access, setup, limit=256)


OPS = [
    *(load(place, row) for place in places() for row in LOADS),
    *(store(place, row) for place in places() for row in STORES),
    *scalar_loads(),
    out_of_range(),
    *loads_to_lds(),
]
