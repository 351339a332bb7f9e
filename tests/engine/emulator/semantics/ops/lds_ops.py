"""LDS loads and stores.  Dword accesses prepare and read back for the others, and have lines too."""

from tests.engine.emulator.semantics import memory_frame as frame
from tests.engine.emulator.semantics.memory_frame import (
    AFTER,
    ALL_ON,
    AS_BEFORE,
    BACKGROUND,
    CELL,
    CELLS,
    WAIT,
    names,
    registers,
    script,
)  # fmt: skip
from tests.engine.emulator.semantics.snippets import Code, merged

LDS = 16384
# name after read_ or load_, bytes, how a short element fills the register
LOADS = [
    ("b32", 4, ""),
    ("b64", 8, ""),
    ("b96", 12, ""),
    ("b128", 16, ""),
    ("u8", 1, "zero"),
    ("i8", 1, "sign"),
    ("u16", 2, "zero"),
    ("i16", 2, "sign"),
    ("u8_d16", 1, "low zero"),
    ("i8_d16", 1, "low sign"),
    ("u16_d16", 2, "low zero"),
    ("u8_d16_hi", 1, "high zero"),
    ("i8_d16_hi", 1, "high sign"),
    ("u16_d16_hi", 2, "high zero"),
]
# name after write_ or store_, bytes, first bit of the register
STORES = [
    ("b8", 1, 0),
    ("b16", 2, 0),
    ("b32", 4, 0),
    ("b64", 8, 0),
    ("b96", 12, 0),
    ("b128", 16, 0),
    ("b8_d16_hi", 1, 16),
    ("b16_d16_hi", 2, 16),
]
WRITE_BACKGROUND = [f"ds_write_b32 v4, {name} offset:{4 * k}" for k, name in enumerate(BACKGROUND)]
READ_AFTER = [f"ds_read_b32 {name}, v4 offset:{4 * k}" for k, name in enumerate(AFTER)]


def called(old, new):
    return f"ds_{old} rdna3:ds_{new}"


def load(row):
    """Each lane reads the cell of an arbitrary lane, named by v6."""
    name, size, how = row
    offset = 0 if size > 4 else 4 + size % 4

    def reference(wave):
        data = bytearray(CELL * wave.lanes)
        for lane in range(wave.lanes):
            for k, register in enumerate(BACKGROUND):
                at = CELL * lane + 4 * k
                data[at : at + 4] = wave[register][lane].to_bytes(4, "little")
        return frame.loaded(wave, data, [CELL * lane + offset for lane in wave["v6"]], size, how)

    def value(rng, register):
        return rng.randrange(32) if register == "v6" else rng.getrandbits(32)

    words = max(1, size // 4)
    text = script(
        ALL_ON,
        CELLS,
        WRITE_BACKGROUND,
        WAIT,
        AS_BEFORE,
        "v_lshlrev_b32 v4, 6, v6",
        "v_or_b32 v4, 16, v4",
        "{x} " + f"{registers(16, words)}, v4 offset:{offset}",
        WAIT,
    )
    inputs = (*BACKGROUND, "v6", *names(16, words))
    kinds = called(f"read_{name}", f"load_{name}")
    return Code(kinds, text, reference, inputs, values=value, lds=LDS, groups=6)


def transposed(wave):
    """In each group of 16, lane l gets halfword l % 4 of the loads of lanes l / 4, l / 4 + 4, ...

    v6 names each lane's cell. The load starts after its first four bytes.
    """
    halves = [
        [wave[f"v{21 + at // 2}"][cell] >> 16 * (at % 2) & 0xFFFF for at in range(4)] for cell in wave["v6"]
    ]
    found = [
        [halves[lane // 16 * 16 + lane // 4 % 4 + 4 * n][lane % 4] for n in range(4)] for lane in range(64)
    ]
    return {f"v{16 + d}": [each[2 * d] | each[2 * d + 1] << 16 for each in found] for d in range(2)}


def transposed_bytes(wave):
    """In each group of 16, lane l gets byte l % 8 of the loads of lanes l / 8, l / 8 + 2, ...

    By public code: Composable Kernel's Quad8 and HipKittens' loads of fp8. Not seen on hardware.
    """
    cells = [
        [wave[f"v{21 + at // 4}"][cell] >> 8 * (at % 4) & 0xFF for at in range(8)] for cell in wave["v6"]
    ]
    found = [
        bytes(cells[lane // 16 * 16 + lane // 8 % 2 + 2 * n][lane % 8] for n in range(8))
        for lane in range(64)
    ]
    return {f"v{16 + d}": [int.from_bytes(x[4 * d : 4 * d + 4], "little") for x in found] for d in range(2)}


def load_transposed(bits, reference):
    text = script(
        CELLS,
        [f"ds_write_b32 v4, {name} offset:{4 * k}" for k, name in enumerate(BACKGROUND)],
        WAIT,
        "v_lshlrev_b32 v4, 6, v6",
        "v_or_b32 v4, 16, v4",
        "{x} v[16:17], v4 offset:4",
        WAIT,
    )
    return Code(
        f"cdna4:ds_read_b64_tr_b{bits}",
        text,
        reference,
        (*BACKGROUND, "v6", "v16", "v17"),
        values=lambda rng, register: rng.randrange(64) if register == "v6" else rng.getrandbits(32),
        lds=LDS,
        groups=6,
        full_exec=True,
    )


def store(row):
    name, size, shift = row
    # Wide accesses must be aligned: the cells start four bytes before a multiple of 16.
    cells = [*CELLS, "v_or_b32 v4, 28, v4"] if size > 4 else CELLS
    access = "{x} v4, " + f"{registers(8, max(1, size // 4))} offset:4"
    text = script(ALL_ON, cells, WRITE_BACKGROUND, WAIT, AS_BEFORE, access, WAIT, ALL_ON, READ_AFTER, WAIT)
    kinds = called(f"write_{name}", f"store_{name}")
    return Code(kinds, text, frame.stored(size, shift), (*BACKGROUND, *names(8, 4)), lds=LDS, groups=4)


# ---- two elements at once: both offsets count elements, or 64 of them
class Two:
    def __init__(self, bits, *, stride64):
        self.bits, self.words = bits, bits // 16
        unit = bits // 8 * (64 if stride64 else 1)
        count = bits // 32
        # Where the words of the elements 1 and 4 are, one after the other.
        self.places = [element * unit + 4 * k for element in (1, 4) for k in range(count)]
        self.names = ("2st64", "2addr_stride64") if stride64 else ("2", "2addr")
        self.cells = f"v_lshlrev_b32 v4, {1 if stride64 else 4}, v0"
        self.halves = registers(8, count), registers(8 + count, count)

    def called(self, old, new):
        return called(f"{old}{self.names[0]}_b{self.bits}", f"{new}_{self.names[1]}_b{self.bits}")

    def write(self):
        read = [f"ds_read_b32 v{30 + k}, v4 offset:{at}" for k, at in enumerate(self.places)]
        access = "{x} v4, " + f"{self.halves[0]}, {self.halves[1]} offset0:1 offset1:4"

        def reference(wave):
            return {
                f"v{30 + k}": [x if wave.active(i) else None for i, x in enumerate(wave[f"v{8 + k}"])]
                for k in range(self.words)
            }

        text = script(self.cells, access, WAIT, read, WAIT)
        inputs = names(8, self.words)
        return Code(self.called("write", "store"), text, reference, inputs, lds=LDS, groups=4)

    def read(self):
        put = [f"ds_write_b32 v4, v{8 + k} offset:{at}" for k, at in enumerate(self.places)]
        access = "{x} " + f"{registers(16, self.words)}, v4 offset0:1 offset1:4"

        def reference(wave):
            return {
                f"v{16 + k}": merged(wave, wave[f"v{16 + k}"], wave[f"v{8 + k}"]) for k in range(self.words)
            }

        text = script(ALL_ON, self.cells, put, WAIT, AS_BEFORE, access, WAIT)
        inputs = (*names(8, self.words), *names(16, self.words))
        return Code(self.called("read", "load"), text, reference, inputs, lds=LDS, groups=4)


TWOS = [Two(bits, stride64=stride64) for bits in (32, 64) for stride64 in (False, True)]
OPS = [
    *(load(row) for row in LOADS),
    *(store(row) for row in STORES),
    load_transposed(16, transposed),
    load_transposed(8, transposed_bytes),
    *(two.write() for two in TWOS),
    *(two.read() for two in TWOS),
]
