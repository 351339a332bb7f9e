"""An instruction's pseudocode as a Python function.

The function takes registers by name (S0, S1, S2, D0, VCC, SCC, ...) as integers. It returns a dictionary of
all names set by it.  One lane is computed, with ``laneId`` 0: only bit 0 of masks has a meaning.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tests.engine.emulator.semantics.numbers.exact import F32, F64
from tests.engine.emulator.semantics.pseudocode import values
from tests.engine.emulator.semantics.pseudocode.syntax import PseudocodeError, parse

GIVEN = (
    *("S0", "S1", "S2", "D0", "D1", "VCC", "SCC", "EXEC", "SIMM16", "SIMM32"),
    *("OPSEL", "OPSEL_HI", "SDWA_SRC0_SEL", "NEG"),
)
# The state of a wave as HIP kernels run, and the constants of the text.
CONSTANTS = {
    "laneId": 0,
    "ROUND_MODE": 0,
    "ROUND_TOWARD_ZERO": 1,
    "WAVE_MODE.IEEE": 1,
    "BYTE1": 1,
    "BYTE2": 2,
    "BYTE3": 3,
    "WORD1": 5,
    "INF": values.Float(F64, F64.inf),
    "NAN": values.Float(F64, F64.nan),
    "OVERFLOW_F32": values.Float(F32, F32.inf),
    "OVERFLOW_F64": values.Float(F64, F64.inf),
    "UNDERFLOW_F32": values.Float(F32, 0),
    "UNDERFLOW_F64": values.Float(F64, 0),
}
ROUNDED = "f32_to_f16"  # the one conversion affected by ROUND_MODE
ANOTHER = re.compile(r"v_\w+_([uif])(\d+)")
RENAMED = {"&&": "and", "||": "or"}


@dataclass(frozen=True)
class Instruction:
    """``run(given)`` and the names of the destination registers."""

    run: Callable[[Mapping[str, int]], dict[str, int]]
    stored: frozenset[str]


def instruction(text, other, more=MappingProxyType({})):
    """``other(name)``: an instruction called by the text as a function, such as ``v_max_f32``.

    ``more``: functions of one arch.
    """
    functions = {**values.FUNCTIONS, **more}
    writer = Writer(other, functions)
    source = "\n".join(writer.definition(parse(text)))
    scope = {"values": values, "F": functions, "C": CONSTANTS, "other": other}
    exec(compile(source, "<pseudocode>", "exec"), scope)
    return Instruction(scope["run"], frozenset(writer.stored))


class Writer:
    """Python lines of statements, Python text of expressions."""

    def __init__(self, other, functions):
        self.other, self.functions = other, functions
        self.names, self.lambdas, self.stored = set(GIVEN), set(), set()

    def definition(self, body):
        lines = list(self.block(body, 1))
        names = sorted(self.names - set(GIVEN))
        start = [f"    {local(name)} = {self.start(name)}" for name in names]
        given = [f"    {local(name)} = given.get('{name}', 0)" for name in GIVEN]
        results = ", ".join(f"'{name}': values.raw({local(name)})" for name in GIVEN)
        return ["def run(given):", *given, *start, *lines, f"    return {{{results}}}"]

    def start(self, name):
        return f"C['{name}']" if name in CONSTANTS else "0"

    # ---- statements
    def block(self, body, depth):
        for statement in body:
            yield from ("    " * depth + line for line in self.statement(statement))
        if not body:
            yield "    " * depth + "pass"

    def statement(self, statement):
        kind, *rest = statement
        return getattr(self, f"do_{kind}")(*rest)

    def do_set(self, targets, value):
        text = self.text(value)
        for target in reversed(targets):
            yield from self.store(target, text)

    def do_break(self):
        yield "break"

    def do_return(self, value):
        yield f"return {self.text(value)}"

    def do_declare(self, name):
        yield f"{self.name(name)} = 0"

    def do_array(self, name, count):
        sources = "[x_S0, x_S1, x_S2]" if name == "S" else f"[0] * {count}"
        yield f"{self.name(name)} = {sources}"

    def do_if(self, cases, otherwise):
        for number, (condition, body) in enumerate(cases):
            yield f"{'elif' if number else 'if'} {self.text(condition)}:"
            yield from self.block(body, 1)
        if otherwise:
            yield "else:"
            yield from self.block(otherwise, 1)

    def do_for(self, name, first, last, body):
        yield f"for {self.name(name)} in range({self.text(first)}, {self.text(last)} + 1):"
        yield from self.block(body, 1)

    def do_lambda(self, name, parameters, body):
        self.lambdas.add(name)
        yield f"def {local(name)}({', '.join(map(local, parameters))}):"
        yield from self.block(body, 1)
        self.names -= {*parameters}

    def store(self, target, value):
        """A value into a register, into some of its bits, or into several registers."""
        match target:
            case ("name", name):
                self.stored.add(name)
                yield f"{self.name(name)} = {value}"
            case ("bit", ("name", name), i) if name not in GIVEN and name != "tmp":
                yield f"{self.name(name)}[{self.text(i)}] = {value}"
            case ("join", parts):
                low = 0
                for part in reversed(parts):
                    yield from self.store(part, f"values.part({value}, {low + part[3] - 1}, {low})")
                    low += part[3]
            case _:
                register, high, low = self.place(target)
                yield f"{register} = values.put({register}, {high}, {low}, {self.converted(target, value)})"

    def converted(self, target, value):
        return f"values.typed({value}, '{target[2]}', {target[3]})" if is_float(target) else value

    def place(self, target):
        """(register, high, low) of the destination."""
        match target:
            case ("as", ("name", _) as inner, _, width):
                return self.base(inner), width - 1, 0
            case ("as", ("slice", _, _, _) as inner, _, _):
                return self.place(inner)
            case ("slice", inner, high, low):
                return self.base(inner), self.text(high), self.text(low)
            case ("bit", inner, i):
                return self.base(inner), self.text(i), self.text(i)
        msg = f"a store to {target}"
        raise PseudocodeError(msg)

    def base(self, target):
        inner = target[1] if target[0] == "as" else target
        if inner[0] != "name":
            msg = f"a store to a part of {target}"
            raise PseudocodeError(msg)
        self.stored.add(inner[1])
        return self.name(inner[1])

    # ---- expressions
    def name(self, name):
        if name not in self.lambdas:
            self.names.add(name)
        return local(name)

    def text(self, x):
        kind, *rest = x
        return getattr(self, f"of_{kind}")(*rest)

    def of_number(self, number, _):
        return str(number)

    def of_float(self, width, text):
        return f"values.literal({width}, '{text}')"

    def of_name(self, name):
        return self.name(name)

    def of_as(self, x, kind, width):
        return f"values.typed({self.text(x)}, '{kind}', {width})"

    def of_cast(self, kind, width, x):
        return f"values.cast({self.text(x)}, '{kind}', {width})"

    def of_bit(self, x, i):
        return f"values.bit({self.text(x)}, {self.text(i)})"

    def of_slice(self, x, high, low):
        return f"values.part({self.text(x)}, {self.text(high)}, {self.text(low)})"

    def of_part(self, x, low, width):
        start = self.text(low)
        return f"values.part({self.text(x)}, ({start}) + {self.text(width)} - 1, {start})"

    def of_join(self, pieces):
        return f"values.join({', '.join(f'({width_of(piece)}, {self.text(piece)})' for piece in pieces)})"

    def of_unary(self, operator, x):
        if x[0] == "float" and float(x[2]) == 0:
            return f"values.signed_zero({x[1]}, '{operator}')"
        return f"({'not ' if operator == '!' else operator}{self.text(x)})"

    def of_binary(self, operator, x, y):
        if operator == "<>":
            return f"values.ordered_unequal({self.text(x)}, {self.text(y)})"
        return f"({self.text(x)} {RENAMED.get(operator, operator)} {self.text(y)})"

    def of_choose(self, condition, yes, no):
        return f"({self.text(yes)} if {self.text(condition)} else {self.text(no)})"

    def of_call(self, name, arguments):
        given = [self.text(x) for x in arguments]
        if name in self.lambdas:
            return f"{local(name)}({', '.join(given)})"
        if another := ANOTHER.fullmatch(name):
            registers = ", ".join(f"'S{i}': values.raw({x})" for i, x in enumerate(given))
            return f"values.typed(other('{name}').run({{{registers}}})['D0'], '{another[1]}', {another[2]})"
        if name not in self.functions:
            msg = f"{name}() is not defined"
            raise PseudocodeError(msg)
        mode = [f"toward_zero={self.name('ROUND_MODE')}"] if name == ROUNDED else []
        return f"F['{name}']({', '.join([*given, *mode])})"


def local(name):
    return "x_" + name.replace(".", "_")


def is_float(target):
    return target[0] == "as" and target[2] in ("f", "bf")


def width_of(x):
    """Bits of a piece of a concatenation."""
    match x:
        case ("call", str(name), _) if name.endswith(("_fp8", "_bf8")):
            return 8
        case ("number", _, int(width)) | ("as", _, _, width) | ("cast", _, width, _):
            return width
        case ("slice", _, ("number", high, _), ("number", low, _)):
            return high - low + 1
    msg = f"the width of {x} is not known"
    raise PseudocodeError(msg)
