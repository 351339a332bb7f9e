"""Element-wise vector instructions as snippets: each lane computes one row of operand values."""

import random
from dataclasses import dataclass

from tests.engine.emulator.semantics.machine import HALVES, LANES, Data, Snippet, expand
from tests.engine.emulator.semantics.table import (
    Case,
    Op,
    call,
    combinations,
    same_number,
    shown,
    spread,
    uses,
)
from wheel_builder.tables.archs import arch_named

REGISTER = {"a": 4, "b": 8, "c": 12, "d": 16}
SCALAR = {"a": 16, "b": 20, "c": 24}
EXEC_IN = 30
M32 = 0xFFFFFFFF


def vector_text(number, kind):
    return f"v{number}" if kind.words == 1 else f"v[{number}:{number + kind.words - 1}]"


def placeholders(op, arch):
    """The spelling of the form's placeholders. 16-bit operands may be halves of a register."""
    out = {"m": op.m, "n": op.n}
    for key, kind in op.kinds.items():
        text = vector_text(REGISTER[key], kind)
        half = HALVES in arch_named(arch).isa.assembler_features and kind.width == 16
        out |= {key: text + ".l" if half else text, key + "h": text + ".h", "s" + key: f"s{SCALAR.get(key)}"}
    return out


def mask_registers(name, arch):
    """The one or two scalar registers of a mask: of <vcc>, <exec> or <40>."""
    name = name.strip("<>")
    both = (f"s{name}", f"s{int(name) + 1}") if name.isdigit() else (f"{name}_lo", f"{name}_hi")
    return both[: LANES[arch] // 32]


def words_of(key, kind):
    return [f"v{REGISTER[key] + i}" for i in range(kind.words)]


def snippet_of(op, arch):
    instruction = expand(f"{spread(op.names)[arch]} " + op.operands.format(**placeholders(op, arch)), arch)
    text = f"s_mov_b{LANES[arch]} <exec>, <{EXEC_IN}>\n{op.before}\n{instruction}"
    vectors = [
        word for key, kind in op.kinds.items() if not op.has("s" + key) for word in words_of(key, kind)
    ]
    scalars = [f"s{EXEC_IN}", f"s{EXEC_IN + 1}", *(f"s{SCALAR[key]}" for key in "abc" if op.has("s" + key))]
    if op.has("n") or uses(op, "n"):
        scalars += mask_registers(op.n, arch)
    outputs = [*(words_of("d", op.result) if op.result else ()), *(r for _, r in written_masks(op, arch))]
    name = instruction.splitlines()[0] + (f" after {op.before}" if op.before else "")
    return Snippet(name, text, tuple(vectors), tuple(scalars), tuple(outputs))


def written_masks(op, arch):
    """(shift, register) of the masks written by an instruction: 32 bits each."""
    names = [op.m] * op.has("m") + ["<exec>"] * op.writes_exec
    return [(32 * k, register) for name in names for k, register in enumerate(mask_registers(name, arch))]


# ---- input
@dataclass(frozen=True)
class Group:
    """The data of one wave: operand values by name for each lane, and EXEC."""

    values: list[dict[str, int]]
    exec: int


def old_destination(op, rng):
    if not uses(op, "d") or not op.result:
        return rng.getrandbits(128)
    junk = rng.getrandbits(16) << 16 if op.result.width == 16 else 0
    return op.result.value(rng) | junk


def groups_of(op, name, lanes, rng, every):
    """The rows spread over waves. One wave of ``every`` is kept. All lanes of the first are active.

    Scalar operands are uniform.
    """
    rows = combinations(op, name)
    uniform = any(op.has("s" + key) for key in "abc")
    chunks = [[row] * lanes for row in rows[:64]] if uniform else list(split(rows, lanes, rng))
    for number, chunk in enumerate(chunks[::every]):
        values = [{"n": rng.getrandbits(1), "d": old_destination(op, rng)} for _ in chunk]
        for lane, row in zip(values, chunk, strict=True):
            lane.update(zip("abc", row, strict=False))
        yield Group(values, rng.getrandbits(lanes) if number else (1 << lanes) - 1)


def split(rows, lanes, rng):
    for start in range(0, len(rows), lanes):
        chunk = rows[start : start + lanes]
        yield chunk + rng.choices(rows, k=lanes - len(chunk))


def is_high(op, key):
    return op.has(key + "h")


def register_column(op, key, word, values, rng):
    """One register of an operand in all lanes. The unused half of a 16-bit operand is arbitrary."""
    column = [lane[key] >> (32 * word) & M32 for lane in values]
    if op.kinds[key].width != 16 or key == "d":
        return column
    high = is_high(op, key)
    return [x << 16 | rng.getrandbits(16) if high else x | rng.getrandbits(16) << 16 for x in column]


def data_of(op, group, rng):
    vectors = {
        word: register_column(op, key, i, group.values, rng)
        for key, kind in op.kinds.items()
        for i, word in enumerate(words_of(key, kind))
    }
    mask = sum(lane["n"] << i for i, lane in enumerate(group.values))
    scalars = {f"s{EXEC_IN}": group.exec & M32, f"s{EXEC_IN + 1}": group.exec >> 32}
    scalars |= {"s28": mask & M32, "s29": mask >> 32, "vcc_lo": mask & M32, "vcc_hi": mask >> 32}
    scalars |= {f"s{SCALAR[key]}": group.values[0][key] & M32 for key in "abc" if op.has("s" + key)}
    return Data(vectors, scalars)


# ---- output
def expected(op, arch, lane):
    """(destination or None, mask bit) of an active lane."""
    result, bit = call(op, lane)
    if result is None:
        return None, bool(bit)
    result &= (1 << op.result.width) - 1
    if op.result.width == 16:
        keeps = arch_named(arch).isa.family != "cdna" or op.keeps_high_on_gfx9
        other = lane["d"] & (0xFFFF if is_high(op, "d") else 0xFFFF0000 if keeps else 0)
        result = (result << 16 if is_high(op, "d") else result) | other
    return result, bool(bit)


def same(op, got, want):
    """Whether all words of a destination are right."""
    if op.result.width == 16:
        low, high = (got ^ want) & 0xFFFF, (got ^ want) >> 16
        untouched = low if is_high(op, "d") else high
        shift = 16 if is_high(op, "d") else 0
        return not untouched and same_number(op, got >> shift, want >> shift)
    return same_number(op, got, want)


def check_lane(op, arch, lane, got, *, on):
    """The fault of a destination in words, or an empty text."""
    if not on:
        old = lane["d"] & ((1 << 32 * op.result.words) - 1)
        return f"a lane that is off changed from {old:#x} to {got:#x}" if got != old else ""
    want, _ = expected(op, arch, lane)
    return "" if same(op, got, want) else f"{shown(op, lane)}: {got:#x}, expected {want:#x}"


def check_group(op, arch, group, out):
    mask, columns = 0, [out[word] for word in words_of("d", op.result)] if op.result else []
    for i, lane in enumerate(group.values):
        on = bool(group.exec >> i & 1)
        mask |= (on and expected(op, arch, lane)[1]) << i
        if columns:
            got = columns[0][i] if len(columns) == 1 else columns[0][i] | columns[1][i] << 32
            yield check_lane(op, arch, lane, got, on=on)
    for shift, register in written_masks(op, arch):
        wrong = out[register][0] ^ mask >> shift & M32
        for i in range(32):
            yield f"{register} bit {i}: {shown(op, group.values[shift + i])}" if wrong >> i & 1 else ""


def vector_case(op: Op, arch, every=1):
    """``every``: computes one of that many waves."""

    def make():
        name = spread(op.names)[arch]
        rng = random.Random(arch + name + op.operands)
        groups = list(groups_of(op, name, LANES[arch], rng, every))

        def check(outputs):
            both = zip(groups, outputs, strict=True)
            return [
                problem for group, out in both for problem in check_group(op, arch, group, out) if problem
            ]

        return [data_of(op, group, rng) for group in groups], check

    return Case(snippet_of(op, arch), make)
