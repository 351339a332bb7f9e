"""Single-instruction mutants of a kernel's code: their kinds, and the mutated text."""

import itertools
import re
from dataclasses import dataclass, replace

from wheel_builder.machine_code.disassembly.counters import APART, FIELD_BITS
from wheel_builder.machine_code.disassembly.kernels import HEADER, LINE, parse_disassembly

KINDS = ("register", "immediate", "offset", "condition", "opcode", "dropped", "wait", "barrier")
DWORD = 4
NOTHING = "s_nop 0"
VECTOR = re.compile(r"(?<![\w.])([vsa])(\d+|\[(\d+):(\d+)\])(?!\w)")
IMMEDIATE = re.compile(r"(?<=[ ,])(-?\d+|0x[0-9a-f]+|-?[0-9.]+)(?=,|$)")
OFFSET = re.compile(r"(offset[01]?:)(\d+)")
WAITED = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
SKIPPED = re.compile(
    r"s_(nop|code_end|endpgm|clause|delay_alu|inst_prefetch|sendmsg|sleep|setprio|wait|barrier)"
)
CONDITION = re.compile(r"(?P<before>v_cmpx?_|s_cmpk?_)(?P<is>lt|le|gt|ge|eq|ne|lg|neq|nlt|nle|ngt|nge|nlg)_")
OPPOSITE = {
    "lt": "le",
    "le": "lt",
    "gt": "ge",
    "ge": "gt",
    "ne": "eq",
    "lg": "eq",
    "neq": "eq",
    "nlt": "nle",
    "nle": "nlt",
    "ngt": "nge",
    "nge": "ngt",
    "nlg": "eq",
}
BRANCHES = {
    "scc0": "scc1",
    "scc1": "scc0",
    "vccz": "vccnz",
    "vccnz": "vccz",
    "execz": "execnz",
    "execnz": "execz",
}
OPCODES = (
    ("_add_", "_sub_"), ("_sub_", "_add_"), ("_max_", "_min_"), ("_min_", "_max_"), ("_mul_f", "_add_f"),
    ("_and_", "_or_"), ("_or_", "_and_"), ("_xor_", "_or_"), ("_lshlrev_", "_lshrrev_"), ("_lshl_", "_lshr_"),
    ("_lshrrev_", "_lshlrev_"), ("_lshr_", "_lshl_"), ("_exp_", "_log_"), ("_log_", "_exp_"),
    ("_max3_", "_min3_"),
    ("_fma_", "_mad_"), ("_add3_", "_or3_"), ("_rcp_", "_rsq_"), ("_fmac_", "_mac_"), ("_cselect_", "_and_"),
    ("_add_co_ci_", "_sub_co_ci_"), ("_addc_", "_subb_"), ("_dot2_", "_dot2c_"), ("_cvt_f32_", "_mov_b32_"),
    ("_ashrrev_", "_lshrrev_"), ("_ashr_", "_lshr_"), ("_perm_b32", "_alignbyte_b32"), ("_bfe_u", "_bfe_i"),
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """``line`` of the listing ``file`` ("gfx942-5") reads ``before``. It becomes ``after``.

    ``words`` is the assembler's output for ``after``: dwords as in the listing, empty while unknown.
    """

    arch: str
    file: str
    kernel: str
    kind: str
    line: int
    address: int
    before: str
    after: str
    words: tuple[str, ...] = ()

    @property
    def name(self):
        return f"{self.arch} {self.kernel} {self.address:#x} {self.kind}: `{self.before}` -> `{self.after}`"


@dataclass(frozen=True)
class Place:
    """A reachable instruction: its place in the listing, and its dwords."""

    line: int
    address: int
    text: str
    dwords: int


def name_of(listing):
    """The name of a listing's first and only function, without parsing the rest."""
    return next(match[2] for line in listing.splitlines() if (match := HEADER.match(line)))


def places_of(listing):
    """The kernel's name and the places of a listing's only function."""
    (kernel,) = parse_disassembly(listing)
    reached = {kernel.instructions[number].address for number in kernel.reached}
    found = []
    for number, line in enumerate(listing.splitlines()):
        if (match := LINE.match(line)) and int(match["address"], 16) in reached:
            words = len(match["words"].split())
            found.append(Place(number, int(match["address"], 16), match["text"].rstrip(), words))
    return kernel.name, found


def changes(kind, text, rng):
    """The changes of that kind to ``text``, in an order chosen by ``rng``."""
    mnemonic, _, rest = text.partition(" ")
    found = list(CHANGES[kind](mnemonic, rest, rng))
    rng.shuffle(found)
    return [each for each in found if each != text]


def mutated_listing(listing, mutant):
    """The listing with the mutant's instruction. A dropped one becomes as many ``s_nop`` as it had dwords."""
    lines = listing.splitlines(keepends=True)
    texts = [mutant.after] * (len(mutant.words) if mutant.after == NOTHING else 1)
    each = len(mutant.words) // len(texts)
    lines[mutant.line] = ""
    for n, text in enumerate(texts):
        words = " ".join(mutant.words[n * each : (n + 1) * each])
        lines[mutant.line] += f"\t{text} // {mutant.address + DWORD * n * each:012X}: {words}\n"
    return "".join(lines)


def drawn(arch, file, name, places, kind, count, rng):
    """At most ``count`` unassembled mutants of a kind, at different ``places`` of the kernel."""
    shuffled = rng.sample(places, len(places))
    found = ((place, changes(kind, place.text, rng)) for place in shuffled)
    made = (
        Mutant(arch, file, name, kind, place.line, place.address, place.text, after[0])
        for place, after in found
        if after
    )
    return list(itertools.islice(made, count))


def assembled(mutant, place_dwords, words):
    """The mutant with its dwords, or None if its length differs from the original's."""
    if mutant.after == NOTHING:
        return replace(mutant, words=("BF800000",) * place_dwords)
    return replace(mutant, words=words) if words and len(words) == place_dwords else None


def _register(mnemonic, rest, rng):
    if SKIPPED.match(mnemonic) or mnemonic.startswith("s_cbranch"):
        return
    for match in VECTOR.finditer(rest):
        bank, width = match[1], int(match[4] or 0) - int(match[3] or 0) + 1
        first = int(match[3] or match[2])
        step = 1 if width == 1 or (bank == "v" and rng.random() < 0.5) else 2 if width == 2 else 4
        for other in (first + step, first - step):
            if other >= 0:
                new = f"{bank}{other}" if match[4] is None else f"{bank}[{other}:{other + width - 1}]"
                yield f"{mnemonic} {rest[: match.start()]}{new}{rest[match.end() :]}"


def _immediate(mnemonic, rest, rng):
    if SKIPPED.match(mnemonic) or "_branch" in mnemonic or "cbranch" in mnemonic or "_load" in mnemonic:
        return
    operands = rest.split(" offset")[0]
    for match in IMMEDIATE.finditer(" " + operands):
        old, begin, end = match[1], match.start() - 1, match.end() - 1
        if "." in old:
            new = {"1.0": "2.0", "0.5": "1.0", "2.0": "4.0", "4.0": "2.0", "-1.0": "1.0"}.get(old, "1.0")
        elif old.startswith("0x"):
            new = hex(int(old, 16) ^ 1 << rng.choice((0, 8, 20, 23)))
        else:
            new = str(int(old) + rng.choice((1, -1, 2)))
        yield f"{mnemonic} {rest[:begin]}{new}{rest[end:]}"


def _offset(mnemonic, rest, _):
    for match in OFFSET.finditer(rest):
        for other in (int(match[2]) + 4, int(match[2]) - 4, int(match[2]) + 16):
            if other > 0:
                yield f"{mnemonic} {rest[: match.start()]}{match[1]}{other}{rest[match.end() :]}"
    if mnemonic.startswith("s_load") and (match := re.search(r"0x[0-9a-f]+$", rest)):
        yield f"{mnemonic} {rest[: match.start()]}{int(match[0], 16) + 4:#x}"


def _condition(mnemonic, rest, _):
    if match := CONDITION.match(mnemonic):
        unequal = "lg" if mnemonic.startswith("s_") else "neq" if re.search(r"_f\d", mnemonic) else "ne"
        other = unequal if match["is"] == "eq" else OPPOSITE[match["is"]]
        yield f"{mnemonic[: match.start('is')]}{other}{mnemonic[match.end('is') :]} {rest}"
    _, _, what = mnemonic.partition("s_cbranch_")
    if what in BRANCHES:
        yield f"s_cbranch_{BRANCHES[what]} {rest}"


def _opcode(mnemonic, rest, _):
    for old, new in OPCODES:
        if old in mnemonic and not mnemonic.startswith(("global", "buffer", "s_cbranch")):
            yield f"{mnemonic.replace(old, new, 1)} {rest}"


def _dropped(mnemonic, rest, _):
    if not SKIPPED.match(mnemonic) and "branch" not in mnemonic:
        yield NOTHING


def _wait(mnemonic, rest, _):
    if mnemonic.startswith("s_wait") and mnemonic != "s_waitcnt_depctr":
        yield NOTHING
    if mnemonic in APART:
        count = int(rest, 0)
        steps = (1, 1 << FIELD_BITS) if len(APART[mnemonic]) > 1 else (1,)
        yield from (f"{mnemonic} {count + step:#x}" for step in steps)
    if mnemonic == "s_waitcnt":
        for match in WAITED.finditer(rest):
            yield f"{mnemonic} {rest[: match.start()]}{match[1]}({int(match[2]) + 1}){rest[match.end() :]}"


def _barrier(mnemonic, rest, _):
    if mnemonic.startswith("s_barrier"):
        yield NOTHING


CHANGES = {
    "register": _register, "immediate": _immediate, "offset": _offset, "condition": _condition,
    "opcode": _opcode, "dropped": _dropped, "wait": _wait, "barrier": _barrier,
}  # fmt: skip
