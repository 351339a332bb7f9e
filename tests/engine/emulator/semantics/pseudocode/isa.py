"""The instruction tables, with the ISA documents' pseudocode in place of our own references.

The text is AMD's. tinygrad's package has it as strings, without an emulator.  Operands, machine code and
comparison are those of the tables.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from tests.engine.emulator.semantics import cases
from tests.engine.emulator.semantics.narrow.formats import family_of
from tests.engine.emulator.semantics.numbers.exact import Format
from tests.engine.emulator.semantics.pseudocode.syntax import PseudocodeError
from tests.engine.emulator.semantics.pseudocode.translate import instruction
from tests.engine.emulator.semantics.pseudocode.values import small_functions
from tests.engine.emulator.semantics.table import Op, ScalarOp, arguments
from wheel_builder.tables.archs import arch_named

# tinygrad's cdna was made from CDNA 4's document, a superset of CDNA 3 for these instructions. Its rdna3 is
# from RDNA 3.5's, a superset of RDNA 3.
DOCUMENTS = {
    "gfx942": "cdna",
    "gfx950": "cdna",
    "gfx1100": "rdna3",
    "gfx1151": "rdna3",
    "gfx1201": "rdna4",
    "gfx1010": "rdna3",
}
# Archs without a document in the package: the instructions that their manual has in words with the meaning of
# another's text. RDNA 1's manual, 12.10: OPSEL_HI and OPSEL choose all, the low or the high half of each
# source, of one fused multiply-add.
ONLY = {"gfx1010": re.compile(r"v_fma_mix(lo|hi)?_f(16|32)")}
SOURCE = re.compile(r"(?P<minus>-?)(?P<bar>\|?)\{s?(?P<key>[abc])h?\}\|?")
WRITTEN = re.compile(r"\{[dmn]h?\}|<\w+>|null")  # a mask operand is VCC in the text
LITERAL = re.compile(r"-?(?:0x[0-9a-f]+|\d+)")
MODIFIER = re.compile(r" (clamp|mul:|div:|op_sel|neg_lo|neg_hi|dst_sel|src0_sel|byte_sel)|sext\(|\n")
# Texts of floats of 8 bits name registers by number, and read the modifiers.
NUMBERED = (("VGPR[laneId][VDST.u32]", "D0"), ("VGPR[laneId][SRC0.u32]", "S0"))
BITS = re.compile(r" (?P<name>op_sel|neg_lo):\[(?P<bits>[01,]+)\]$")
# Mixed precision: which sources are halves, and which of these are upper ones.
HALVES = re.compile(r"( op_sel:\[(?P<upper>[01,]+)\])? op_sel_hi:\[(?P<half>[01,]+)\]$")
READ_BY_THE_TEXT = re.compile(r"fp8|bf8|iu8|fma_mix")
PLACE = re.compile(r" (src0_sel:(BYTE|WORD)_(?P<part>\d)|byte_sel:(?P<byte>\d))$")
# The truth table of v_bitop3 is in fields named by its text, and in an assembler modifier. Its result is
# called D, elsewhere D0.
RESULT = re.compile(r"\bD\.")
TABLE, TABLE_FIELDS = re.compile(r" bitop3:(0x[0-9a-f]+)$"), re.compile(r"TTBL = \{[^}]*\}")
ALWAYS_TRUE = re.compile(r"v_cmpx?_t_f")
M64 = (1 << 64) - 1


# ---- inexact places of the text
@dataclass(frozen=True)
class Excuse:
    """Rows of an instruction that keep the table's reference. ``applies(f, a, n, result)`` selects them.

    ``f`` is the operands' float format, ``a`` the first operand, ``n`` the mask's bit, ``result`` the text's
    result.
    """

    names: str
    reason: str
    applies: Callable[[Format, int, int, int], bool]


def denormal(f, x):
    return bool(f.abs(x)) and not x & f.inf


def inexact_half(f, a):
    """Whether a + 1/2 is rounded."""
    half = f.round(0.5)
    return f.value(f.add(a, half)) != f.value(a) + f.value(half)


EXCUSES = (
    Excuse(
        r"v_(s_)?(exp|log|rcp|rcp_iflag|rsq|sqrt)_f32",
        "the text says nothing of denormals, which the instruction takes and gives as zeros",
        lambda f, a, _, result: denormal(f, a) or denormal(f, result),
    ),
    Excuse(
        r"v_rndne_f(16|32|64)",
        "the text adds 1/2: it loses the sign of a zero result, and the sum is rounded",
        lambda f, a, _, result: f.value(result) == 0 or inexact_half(f, a),
    ),
    Excuse(
        r"v_fract_f(16|32|64)",
        "the text's sum rounds to 1, the instruction stays below",
        lambda f, a, _, result: f.value(result) == 1,
    ),
    Excuse(
        r"v_frexp_exp_i\d+_f(16|32|64)",
        "exponent() is not defined for zeros and denormals, which have no exponent of their own",
        lambda f, a, *_: not a & f.inf,
    ),
    Excuse(
        r"v_div_fmas_f(32|64)",
        "2^32 does not undo v_div_scale's 2^64; the whole division is tested against exact quotients",
        lambda _f, _a, n, _result: bool(n),
    ),
    Excuse(
        r"v_dot2_f32_bf16",
        "the text rounds a product that f32 cannot hold to infinity, the emulator adds before it rounds",
        lambda f, _a, _n, result: result & f.inf == f.inf,
    ),
)


def excuse_of(name):
    return next((excuse for excuse in EXCUSES if re.fullmatch(excuse.names, name)), None)


# ---- documents
@functools.cache
def texts(arch):
    """Pseudocode by LLVM's mnemonic. Encodings are merged: they share the text."""
    module = import_module(f"tinygrad.runtime.autogen.amd.{DOCUMENTS[arch]}.str_pcode")
    found = {cases.ENCODING.sub("", opcode.name.lower()): text for opcode, text in module.PCODE.items()}
    found |= {name.replace("_t_", "_tru_"): text for name, text in found.items() if ALWAYS_TRUE.match(name)}
    return {name: text for name, text in found.items() if arch not in ONLY or ONLY[arch].fullmatch(name)}


class Document:
    """One document's instructions as functions. ``changed`` replaces texts."""

    def __init__(self, arch, changed=()):
        self.arch, self.texts, self.made = arch, texts(arch) | dict(changed), {}
        family = arch_named(arch).isa.fp8
        self.functions = small_functions(family_of(arch)) if family != "none" else {}

    def instruction(self, name):
        if name not in self.made:
            text = self.texts[name]
            for numbered, register in NUMBERED:
                text = text.replace(numbered, register)
            self.made[name] = instruction(text, self.instruction, self.functions)
        return self.made[name]

    def _of(self, op, name):
        if table := TABLE.search(op.operands):
            text = TABLE_FIELDS.sub(f"TTBL = {table[1]}", self.texts[name])
            return instruction(RESULT.sub("D0.", text), self.instruction)
        return self.instruction(name)

    def line(self, op, excused: Callable[[Any], None] = lambda _: None):
        """``op`` with the text as its reference, or ``PseudocodeError``.

        ``excused`` is called at each row with an excuse: whether table and text differ there.
        """
        name = cases.plain(op, self.arch)
        if name not in self.texts:
            msg = "not in the document"
            raise PseudocodeError(msg)
        if isinstance(op, Op) and op.before:
            msg = "a mode, which the text leaves out"
            raise PseudocodeError(msg)
        modifiers, operands = {}, op.operands
        if READ_BY_THE_TEXT.search(name):
            modifiers, operands = read_by_the_text(self.texts[name], operands)
        text, read = self._of(op, name), sources(op, name, operands) | modifiers
        return replace(op, reference=reference(op, text, read, excuse_of(name), excused))


def reference(op, text, read, excuse, excused):
    """A reference as in the tables, with the parameters of the replaced one."""
    names = arguments(op.reference, len(op.sources))
    f = next((kind.format for kind in (*op.sources, op.result) if kind and kind.format), None)

    @functools.wraps(op.reference)
    def call(*operands):
        values = dict(zip(names, operands, strict=True))
        given = {"SCC": values.get("scc", 0), "VCC": values.get("n", 0), "D0": values.get("d", 0)}
        out = text.run(given | {register: get(values) & M64 for register, get in read.items()})
        if excuse and excuse.applies(f, values["a"], values.get("n", 0), out["D0"]):
            own = op.reference(*operands)
            excused(op.result.canonical(own) != op.result.canonical(out["D0"]))
            return own
        return (out["D0"] if op.result else None), bit_of(op, text, out)

    return call


def bit_of(op, text, out):
    """The bit written along with, or instead of, a result, or None."""
    if isinstance(op, ScalarOp):
        return out["SCC"] & 1 if "SCC" in text.stored else None
    if not op.result:
        return (out["D0"] | out["EXEC"]) & 1
    if not op.has("m"):
        return None
    return out["D1" if "D1" in text.stored else "VCC"] & 1


# ---- operands
def read_by_the_text(text, operands):
    """Modifiers as names of the text, and the operands without them."""
    found = {}
    if (match := BITS.search(operands)) and {"op_sel": "OPSEL", "neg_lo": "NEG"}[match["name"]] in text:
        number = bits_of(match["bits"])
        # op_sel's last bit is the destination's, which the text counts as the fourth.
        if match["name"] == "op_sel" and len(match["bits"]) == 5 and number & 4:
            number = number & 3 | 8
            if "OPSEL[3] controls" in text:  # in a comment
                return {}, operands
        found, operands = {match["name"]: number}, operands[: match.start()]
    elif (match := HALVES.search(operands)) and "OPSEL_HI" in text:
        found = {"op_sel": bits_of(match["upper"] or "0"), "op_sel_hi": bits_of(match["half"])}
        operands = operands[: match.start()]
    elif (match := PLACE.search(operands)) and match["part"] and "SDWA_SRC0_SEL" in text:
        found, operands = {"sdwa": int(match["part"])}, operands[: match.start()]
    elif match and match["byte"] and "bits are reversed" in text:
        byte = int(match["byte"])
        found, operands = {"op_sel": (byte & 1) * 2 + byte // 2}, operands[: match.start()]
    names = {"op_sel": "OPSEL", "op_sel_hi": "OPSEL_HI", "neg_lo": "NEG", "sdwa": "SDWA_SRC0_SEL"}
    return {names[name]: lambda _, x=x: x for name, x in found.items()}, operands


def bits_of(listed):
    """A modifier's list as a number, the first bit lowest."""
    return sum(int(bit) << i for i, bit in enumerate(listed.split(",")))


def sources(op, name, operands):
    """The source of each register of the text among a line's operand values."""
    if MODIFIER.search(operands):
        msg = "a modifier, which the text leaves out"
        raise PseudocodeError(msg)
    found, positions = {}, iter(("S0", "S1", "S2"))
    for operand in TABLE.sub("", operands).split(", "):
        if match := SOURCE.fullmatch(operand):
            found[next(positions)] = operand_value(op, **match.groupdict())
        elif LITERAL.fullmatch(operand):
            found |= literal(op, name, int(operand, 0), positions)
        elif not WRITTEN.fullmatch(operand):
            msg = "a constant that is no integer"
            raise PseudocodeError(msg)
    return found


def operand_value(op, minus, bar, key):
    f = op.kinds[key].format

    def get(values):
        x = values[key]
        x = f.abs(x) if bar else x
        return f.neg(x) if minus else x

    return get


def literal(op, name, number, positions):
    """A literal is a source, or a named immediate of the text."""
    if re.match(r"v_(fma|mad)(ak|mk)_", name):
        return {"SIMM32": lambda _: number}
    if isinstance(op, ScalarOp):
        return {"SIMM16": lambda _: number, next(positions): lambda _: number}
    return {next(positions): lambda _: number}
