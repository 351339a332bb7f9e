"""Shared by the tables of loads, stores, LDS and atomics.

s[8:9] points to the bytes of ``MEMORY``.  Every lane writes to a separate cell of 64 bytes.
"""

import random

from tests.engine.emulator.semantics.numbers.operands import signed
from tests.engine.emulator.semantics.snippets import merged
from wheel_builder.tables.archs import arch_named

SIZE, CELL = 4096, 64
MEMORY = random.Random(3).randbytes(SIZE)
M32 = 0xFFFFFFFF
WAIT = "s_waitcnt vmcnt(0) lgkmcnt(0)"
ALL_ON = [
    "s_mov_b32 s50, exec_lo",
    "s_mov_b32 s51, exec_hi",
    "s_mov_b32 exec_lo, -1",
    "s_mov_b32 exec_hi, -1",
]
AS_BEFORE = ["s_mov_b32 exec_lo, s50", "s_mov_b32 exec_hi, s51"]
CELLS = ["v_lshlrev_b32 v4, 4, v0", "v_or_b32 v4, 16, v4"]  # v4 = the lane's cell + 16. v0 is lane * 4
BACKGROUND = ("v20", "v21", "v22", "v23", "v24")
AFTER = ("v30", "v31", "v32", "v33", "v34")
CDNA, RDNA, ALL = "cdna:", "rdna:", ""  # where a name holds


def script(*parts):
    """Lines and lists of lines, as a text."""
    return "\n".join(line for part in parts for line in ([part] if isinstance(part, str) else part))


def fill(where, old, new):
    """Each arch's own name: RDNA 3 has the new one."""
    return f"{where}{old}" if where == CDNA else f"{where}{old} rdna3:{new}"


def registers(base, words):
    return f"v{base}" if words == 1 else f"v[{base}:{base + words - 1}]"


def names(base, words):
    return tuple(f"v{base + k}" for k in range(words))


def word(data, at):
    return int.from_bytes(data[at : at + 4], "little")


def resource(size):
    """A raw buffer resource of ``size`` bytes in s[12:15], and 8 in s20."""
    return [
        "s_mov_b32 s12, s8",
        "s_mov_b32 s13, s9",
        f"s_mov_b32 s14, {size}",
        "s_mov_b32 s15, <buffer_word3>",
        "s_mov_b32 s20, 8",
    ]


def address64(where):
    """v[6:7] = s[8:9] + v4."""
    addc = "v_addc_co_u32" if where == CDNA else "v_add_co_ci_u32"
    return [
        "v_mov_b32 v7, s9",
        "v_add_co_u32 v6, <vcc>, s8, v4",
        f"{addc} v7, <vcc>, 0, v7, <vcc>",
    ]


def element(arch, raw, how, old):
    """A loaded short element in its register.

    The other half after a d16 load is kept, but cleared on GPUs with SRAM ECC.
    """
    x = int.from_bytes(raw, "little")
    x = signed(x, 8 * len(raw)) if "sign" in how else x
    if "low" not in how and "high" not in how:
        return x & M32
    keep = old if arch_named(arch).isa.counters.keeps_half else 0
    return (x & 0xFFFF) << 16 | keep & 0xFFFF if "high" in how else x & 0xFFFF | keep & 0xFFFF0000


def loaded(wave, data, addresses, size, how):
    """The registers from v16 on, after a load of ``size`` bytes of ``data`` at each lane's address."""
    out = {}
    for k, name in enumerate(names(16, max(1, size // 4))):
        new = []
        for at, old in zip(addresses, wave[name], strict=True):
            new.append(element(wave.arch, data[at : at + size], how, old) if how else word(data, at + 4 * k))
        out[name] = merged(wave, wave[name], new)
    return out


def stored(size, shift):
    """The words of a lane's cell after a store of v8.. from the second word on. The first is ``BACKGROUND``.

    ``shift``: the first stored bit of v8.
    """

    def cell(wave, lane):
        raw = bytearray(b"".join(wave[name][lane].to_bytes(4, "little") for name in BACKGROUND))
        if wave.active(lane):
            data = b"".join(wave[name][lane].to_bytes(4, "little") for name in names(8, 4))
            raw[4 : 4 + size] = data[shift // 8 : shift // 8 + size]
        return raw

    def reference(wave):
        cells = [cell(wave, lane) for lane in range(wave.lanes)]
        return {name: [word(raw, 4 * k) for raw in cells] for k, name in enumerate(AFTER)}

    return reference
