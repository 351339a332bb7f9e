"""How many bytes each memory instruction moves, executed on one lane and compared with its name.

The names are LLVM's: ``dwordx3`` and ``b96`` are 12 bytes, ``x2`` and ``u64`` are 8, ``read2`` and ``2addr``
are two elements, an atomic without a type is 4.  ``forms`` writes a mnemonic in every way. The assembler
tells which of them an arch has.

LDS and each lane's scratch start as copies of memory, and are copied back behind it: dword k of lane i is at
4 * (i + lanes * k).  ``LANE`` alone executes the instruction.
"""

import random
import re
from dataclasses import dataclass

from tests.engine.emulator.semantics import memory_frame as frame
from tests.engine.emulator.semantics.machine import LANES, Data, Snippet, expand
from tests.engine.emulator.semantics.memory_frame import CDNA, RDNA, WAIT, script
from wheel_builder.tables.archs import arch_named

MEMORY_CLASSES = ("vmem", "scratch", "smem", "lds")
# Their data crosses lanes, so one lane shows nothing. Their own lines in the tables check the width.
ACROSS_LANES = {
    "ds_permute_b32", "ds_bpermute_b32", "ds_swizzle_b32", "ds_read_b64_tr_b16", "ds_read_b64_tr_b8"
}  # fmt: skip
PARTS = {"byte": 1, "ubyte": 1, "sbyte": 1, "short": 2, "ushort": 2, "sshort": 2, "dword": 4, "x2": 8}
LANE, AT, STRIDE, M0, WORDS = 5, 16, 16, 1024, 16
RUNS = {"load": 4, "store": 4, "to lds": 4, "update": 6}
RESULT = tuple(f"v{16 + k}" for k in range(5))
SCALARS = tuple(f"s{40 + k}" for k in range(17))
DATA = tuple(f"v{8 + k}" for k in range(6))
RETURNS = ("glc", "sc0", "th:TH_ATOMIC_RETURN")


def width(mnemonic):
    """Bytes of a lane (of the wave for scalar loads) that a name promises."""
    parts = mnemonic.split("_")
    elements = 2 if any(part.startswith(("pk", "read2", "write2", "2addr")) for part in parts) else 1
    for part in reversed(parts):
        if part in PARTS:
            return PARTS[part]
        if found := re.fullmatch(r"dwordx(\d+)", part):
            return 4 * int(found[1])
        if found := re.fullmatch(r"(?:bf|[buif])(\d+)", part):
            return elements * int(found[1]) // 8
    if "atomic" in parts:
        return 4
    message = f"{mnemonic}: no width in this name"
    raise ValueError(message)


@dataclass(frozen=True)
class Form:
    """One way to write a mnemonic. ``place``: memory, lds or scratch.

    ``kind``: load, store, update (an atomic), or to lds. ``result``: the registers written, if any.
    """

    mnemonic: str
    operands: str
    kind: str
    place: str
    result: tuple[str, ...] = ()

    @property
    def text(self):
        return f"{self.mnemonic} {self.operands}"

    @property
    def places(self):
        """The addresses of the moved bytes, in order."""
        size, step = width(self.mnemonic), 1
        if self.kind == "to lds":
            return [M0 + LANE * size + k for k in range(size)]
        if "addtid" in self.mnemonic:
            return [M0 + LANE * size + k for k in range(size)]
        if not two(self.mnemonic):
            return [AT + k for k in range(size)]
        step = size // 2 * (64 if re.search("st64|stride64", self.mnemonic) else 1)
        return [AT + element * step + k for element in range(2) for k in range(size // 2)]


def two(mnemonic):
    return bool(re.search(r"_(read2|write2|load_2addr|store_2addr)", mnemonic))


def kind_of(mnemonic):
    for kind in ("load", "store"):
        if re.search({"load": r"_(load|read)", "store": r"_(store|write)(?!xchg)"}[kind], mnemonic):
            return kind
    return "update"


# ---- the forms of each family. DATA stands where a store has its data
TEMPLATES = {
    "global": ("v4, DATA s[8:9]", "v[6:7], DATA off"),
    "flat": ("v[6:7] ,DATA",),
    "scratch": ("v4, DATA off", "off, DATA s21", "v4, DATA s20"),
    "buffer": (
        "DATA v4, s[12:15], s20 offen",
        "DATA v5, s[12:15], s23 idxen",
        "DATA off, s[12:15], s21",
    ),
}


def registers(names):
    first, last = names[0][1:], names[-1][1:]
    return names[0] if len(names) == 1 else f"{names[0][0]}[{first}:{last}]"


def with_data(template, data=""):
    before, behind = (f"{data}, ", f", {data}") if data else ("", "")
    return template.replace("DATA ", before).replace(" ,DATA", behind)


def vector_forms(mnemonic, family):
    words, kind = max(1, width(mnemonic) // 4), kind_of(mnemonic)
    data = registers(DATA[: words * (2 if "cmpswap" in mnemonic else 1)])
    place = "scratch" if family == "scratch" else "memory"
    back = registers(RESULT[:words])
    for template in TEMPLATES[family]:
        stored = with_data(template, data)
        if kind == "store":
            yield Form(mnemonic, stored, kind, place)
        elif "_load_lds_" in mnemonic:
            yield Form(mnemonic, with_data(template), "to lds", "lds")
        elif kind == "load":
            yield Form(mnemonic, f"{back}, {with_data(template)}", kind, place, RESULT)
            yield Form(mnemonic, f"{with_data(template)} lds", "to lds", "lds")
        else:
            yield Form(mnemonic, stored, kind, place)
            returned, result = (stored, DATA) if family == "buffer" else (f"{back}, {stored}", RESULT)
            yield from (Form(mnemonic, f"{returned} {flag}", kind, place, result) for flag in RETURNS)


def lds_forms(mnemonic):
    size, kind = width(mnemonic), kind_of(mnemonic)
    both = two(mnemonic) or "cmp" in mnemonic
    words = max(1, size // (8 if two(mnemonic) else 4))
    data = registers(DATA[:words]) + (f", {registers(DATA[4 : 4 + words])}" if both else "")
    back, end = registers(RESULT[: max(1, size // 4)]), " offset1:1" if two(mnemonic) else ""
    if kind == "load":
        yield Form(mnemonic, back + ("" if "addtid" in mnemonic else f", v4{end}"), kind, "lds", RESULT)
    elif "_rtn_" in mnemonic:
        yield Form(mnemonic, f"{back}, v4, {data}", kind, "lds", RESULT)
    else:
        yield Form(mnemonic, f"v4, {data}{end}", kind, "lds")


def forms(mnemonic):
    """All of a mnemonic's forms. No arch has all of them."""
    family = mnemonic.split("_", 1)[0]
    if family == "s":
        base = "s[12:15]" if "buffer" in mnemonic else "s[8:9]"
        target = registers(SCALARS[: width(mnemonic) // 4])
        return [Form(mnemonic, f"{target}, {base}, {at}", "load", "memory", SCALARS) for at in (AT, "s21")]
    return list(lds_forms(mnemonic) if family == "ds" else vector_forms(mnemonic, family))


# ---- execution
def image_size(arch):
    return 4 * WORDS * LANES[arch]


def snippet(form, arch):
    step, size = 4 * LANES[arch], image_size(arch)
    where = CDNA if arch_named(arch).isa.family == "cdna" else RDNA
    load = "global_load_dword v40, v0, s[8:9] offset:{}"
    store = "global_store_dword v0, v40, s[10:11] offset:{}"
    puts = {
        "lds": "ds_write_b32 v0, v40 offset:{}",
        "scratch": "scratch_store_dword v41, v40, off offset:{}",
    }
    gets = {
        "lds": "ds_read_b32 v40, v0 offset:{}",
        "scratch": "scratch_load_dword v40, v41, off offset:{}",
    }

    def every(*lines):
        """The lines, and a wait after each, for every dword of a lane."""
        for k in range(WORDS):
            for line in lines:
                yield from (line.format(4 * k if "scratch" in line else step * k), WAIT)

    copied = form.place != "memory"
    prepare = every(load, puts[form.place]) if copied else ()
    show = every(gets[form.place], store) if copied else ()
    strided = [f"s_or_b32 s13, s13, {STRIDE << 16}", f"s_movk_i32 s14, {frame.SIZE // STRIDE}"]
    text = script(
        "v_mov_b32 v41, 0",
        f"s_add_u32 s10, s8, {size}",
        "s_addc_u32 s11, s9, 0",
        *prepare,
        frame.resource(frame.SIZE),
        ["s_mov_b32 s20, 0", f"s_movk_i32 s21, {AT}", "s_mov_b32 s23, 0"],
        strided if "idxen" in form.operands else [],
        f"s_movk_i32 m0, {M0}",
        frame.address64(where),
        "s_mov_b32 exec_lo, s30",
        "s_mov_b32 exec_hi, s31",
        form.text,
        WAIT,
        ["s_mov_b32 exec_lo, -1", "s_mov_b32 exec_hi, -1"],
        *show,
    )
    scalars = ("s30", "s31", *(SCALARS if form.result == SCALARS else ()))
    lds, scratch = (size if form.place == "lds" else 0), (4 * WORDS if form.place == "scratch" else 0)
    vectors = ("v4", "v5", *DATA, *RESULT)
    return Snippet(form.text, expand(text, arch), vectors, scalars, form.result, lds, scratch)


@dataclass(frozen=True)
class Run:
    """Bytes before and after: of the place and of the result's registers. ``stored`` belongs in the place."""

    before: bytes
    after: bytes
    registers: bytes
    result: bytes
    stored: bytes


def little(words):
    return b"".join(word.to_bytes(4, "little") for word in words)


def contents(form, rng, number, arch):
    """Memory and registers before a run. Loads have no sign bits to extend.

    The data of every second update is the memory of the one before it, and the other way round: a minimum
    changes memory in one of both. An exchange compares with what is in memory, or exchanges for it.
    """
    image = bytearray(rng.randbytes(image_size(arch)))
    if form.kind == "load":
        image = bytearray(byte & 0x7F for byte in image)
    size, data = width(form.mnemonic), bytearray(rng.randbytes(4 * len(DATA)))
    if form.kind == "update":
        pair = random.Random(f"{form.text}{number // 2}")
        both = [pair.randbytes(size), pair.randbytes(size)]
        image[AT : AT + size], data[:size] = both if number % 2 else both[::-1]
    if "cmp" in form.mnemonic:
        second = 16 if form.mnemonic.startswith("ds_") else size
        at = second if number % 2 else 0
        data[at : at + size] = image[AT : AT + size]
    words = dict(zip(DATA, (int.from_bytes(data[k : k + 4], "little") for k in range(0, 24, 4)), strict=True))
    words |= {name: rng.getrandbits(32) for name in (*RESULT, *SCALARS)}
    return bytes(image), words | {"v4": AT, "v5": AT // STRIDE}


def stored(form, image, words):
    """The bytes that a store, or a load to LDS, puts at ``form.places``."""
    size, data = width(form.mnemonic), little(words[name] for name in DATA)
    if form.kind == "to lds":
        return image[AT : AT + size]
    if two(form.mnemonic):
        return data[: size // 2] + data[16 : 16 + size // 2]
    first = 2 if "d16_hi" in form.mnemonic else 0
    return data[first : first + size]


def seen(form, image, arch):
    """The part of an image that the instruction can reach: a lane's own bytes of scratch, or all of it."""
    step = 4 * LANES[arch]
    own = b"".join(image[step * k + 4 * LANE :][:4] for k in range(WORDS))
    return own if form.place == "scratch" else image


def execute(form, machine):
    """The runs, or the error that stops one."""
    arch, rng, runs = machine.arch, random.Random(form.text + machine.arch), []
    made, size, lane = snippet(form, arch), image_size(arch), 0 if form.result == SCALARS else LANE
    for number in range(RUNS[form.kind]):
        image, words = contents(form, rng, number, arch)
        vectors = {name: [words[name]] * machine.lanes for name in made.vectors}
        scalars = words | {"s30": 1 << LANE, "s31": 0}
        result, (out,), memory = machine.launch(made, [Data(vectors, scalars)], image + bytes(size))
        if result.error or result.findings:
            return result.error or str(result.findings[0])
        assert form.mnemonic in result.counts
        after = memory[:size] if form.place == "memory" else memory[size:]
        before, given = seen(form, image, arch), little(words[name] for name in form.result)
        back = little(out[name][lane] for name in form.result)
        runs.append(Run(before, seen(form, after, arch), given, back, stored(form, image, words)))
    return runs


# ---- what the runs show
def varying(runs):
    """Bytes of the result's registers that follow memory. Signs and zeros are the same in all runs."""
    written = [k for k in range(len(runs[0].result)) if any(r.registers[k] != r.result[k] for r in runs)]
    return [k for k in written if len({run.result[k] for run in runs}) > 1]


def changed(runs):
    return [k for k in range(len(runs[0].before)) if any(run.before[k] != run.after[k] for run in runs)]


def in_registers(form, runs):
    moved, size = varying(runs), width(form.mnemonic)
    if len(moved) != size:
        yield f"{len(moved)} bytes reach the registers, its name says {size}"
    elif any(bytes(r.result[k] for k in moved) != bytes(r.before[at] for at in form.places) for r in runs):
        yield "the registers have other bytes than those at its address"


def in_place(form, runs):
    moved, size = changed(runs), width(form.mnemonic)
    if moved != form.places:
        found = f"{len(moved)} bytes of {form.place} change, from {moved[:1]} on"
        yield f"{found}; its name says {size}, from {form.places[:1]} on"
    elif form.kind != "update" and any(bytes(r.after[k] for k in moved) != r.stored for r in runs):
        yield f"{form.place} has other bytes than those stored"


def problems(form, runs):
    """What an instruction does otherwise than its name says, in words."""
    if form.result:
        yield from in_registers(form, runs)
    if form.kind != "load":
        yield from in_place(form, runs)
    elif changed(runs):
        yield f"a load changes {form.place}"
