"""The grammar of the ISA documents' pseudocode, as far as arithmetic uses it: text in, tuples out.

Expressions: ("number", n, width or None), ("float", width, text), ("name", n), ("as", x, kind, width) for
``x.u32``, ("bit", x, i), ("slice", x, high, low), ("part", x, low, width) for ``x[low +: width]``,
("cast", kind, width, x), ("join", xs), ("call", name, xs), ("unary", op, x), ("binary", op, x, y) and
("choose", condition, x, y).

Statements: ("set", targets, x), ("array", name, count), ("declare", name), ("if", [(condition, body)], else),
("for", name, first, last, body), ("break",), ("return", x) and ("lambda", name, parameters, body).
"""

import re

TOKEN = re.compile(
    r"\s*(?:(?P<cast>\d+'[UIFB]\b)|(?P<sized>\d+'-?(?:0x[0-9a-fA-F]+|\d+\.\d+|\d+U?))"
    r"|(?P<hex>0x[0-9a-fA-F]+)U?L*|(?P<real>\d+\.\d+)(?P<short>F?)|(?P<whole>\d+)U?L*"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<op>\+:|\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||\+=|-=|[-+*/%&|^~!<>=?:;,.()\[\]{}]))"
)
COMMENT = re.compile(r"//[^\n]*")
BINARY = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!=", "<>"), ("<", "<=", ">", ">="),
    ("<<", ">>"), ("+", "-"), ("*", "/", "%"), ("**",),
)  # fmt: skip
TYPE = re.compile(r"([uifb]|bf|fp)(\d+)")
ENDS = {"endif", "endfor", "else", "elsif", ")", ""}


class PseudocodeError(ValueError):
    """The text is outside of the grammar."""


def tokens(text):
    text, at, found = COMMENT.sub("", text).rstrip(), 0, []
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            msg = f"no token at {text[at : at + 30]!r}"
            raise PseudocodeError(msg)
        found.append((match.lastgroup if match.lastgroup != "short" else "real", match))
        at = match.end()
    return found


def parse(text):
    """The statements of an instruction."""
    reader = Reader(tokens(text))
    body = reader.statements()
    if reader.word:
        msg = f"{reader.word!r} does not belong here"
        raise PseudocodeError(msg)
    return body


class Reader:
    def __init__(self, found):
        self.found, self.at = found, 0

    @property
    def kind(self):
        return self.found[self.at][0] if self.at < len(self.found) else ""

    @property
    def word(self):
        """The token's text, suffixes included."""
        return self.found[self.at][1][0].strip() if self.at < len(self.found) else ""

    def next(self):
        self.at += 1
        return self.found[self.at - 1]

    def take(self, word):
        if self.word != word:
            msg = f"{self.word!r} where {word!r} is expected"
            raise PseudocodeError(msg)
        self.at += 1

    def skip(self, *words):
        if self.word not in words:
            return False
        self.at += 1
        return True

    # ---- statements
    def statements(self):
        body = []
        while self.word not in ENDS:
            if not self.skip(";"):
                body.append(self.statement())
        return body

    def statement(self):
        known = {
            "if": self.choice,
            "for": self.loop,
            "declare": self.declaration,
            "break": lambda: ("break",),
            "return": lambda: ("return", self.expression()),
        }
        if self.word in known:
            return known[self.next()[1]["word"]]()
        return self.assignment()

    def choice(self):
        cases, otherwise = [], []
        while True:
            condition = self.expression()
            self.take("then")
            cases.append((condition, self.statements()))
            if not self.skip("elsif"):
                break
        if self.skip("else"):
            otherwise = self.statements()
        self.take("endif")
        return "if", cases, otherwise

    def loop(self):
        name = self.next()[1]["word"]
        self.take("in")
        first = self.expression()
        self.take(":")
        last = self.expression()
        self.take("do")
        body = self.statements()
        self.take("endfor")
        return "for", name, first, last, body

    def declaration(self):
        name = self.next()[1]["word"]
        self.take(":")
        self.next()  # the type, repeated in an assignment
        if not self.skip("["):
            return "declare", name
        count = int(self.next()[1]["whole"])
        self.take("]")
        return "array", name, count

    def assignment(self):
        targets, operator = [self.postfix()], self.word
        if operator in ("+=", "-="):
            self.next()
            return "set", targets, ("binary", operator[0], targets[0], self.expression())
        self.take("=")
        if self.word == "lambda":
            return self.function(targets[0][1])
        value = self.expression()
        while self.skip("="):
            targets.append(value)
            value = self.expression()
        return "set", targets, value

    def function(self, name):
        self.take("lambda")
        self.take("(")
        parameters = []
        while not self.skip(")"):
            parameters.append(self.next()[1]["word"])
            self.skip(",")
        self.take("(")
        keyword = self.word in ("declare", "if", "for", "return")
        body = self.statements() if keyword else [("return", self.expression())]
        self.take(")")
        return "lambda", name, parameters, body

    # ---- expressions
    def expression(self):
        condition = self.binary(0)
        if not self.skip("?"):
            return condition
        yes = self.expression()
        self.take(":")
        return "choose", condition, yes, self.expression()

    def binary(self, level):
        if level == len(BINARY):
            return self.unary()
        left = self.binary(level + 1)
        while self.kind == "op" and self.word in BINARY[level]:
            operator = self.next()[1]["op"]
            left = "binary", operator, left, self.binary(level + 1)
        return left

    def unary(self):
        if self.kind == "op" and self.word in ("-", "+", "~", "!"):
            return "unary", self.next()[1]["op"], self.unary()
        return self.postfix()

    def postfix(self):
        value = self.primary()
        while True:
            if self.skip("."):
                value = self.typed(value)
            elif self.skip("["):
                value = self.part(value)
            else:
                return value

    def typed(self, value):
        name = self.next()[1]["word"]
        match = TYPE.fullmatch(name)
        return ("as", value, match[1], int(match[2])) if match else ("name", f"{value[1]}.{name}")

    def part(self, value):
        first = self.expression()
        if self.skip(":"):
            found = "slice", value, first, self.expression()
        elif self.skip("+:"):
            found = "part", value, first, self.expression()
        else:
            found = "bit", value, first
        self.take("]")
        return found

    def primary(self):
        kind, match = self.next() if self.kind else ("", None)
        if kind == "cast":
            return self.cast(match["cast"])
        if kind == "sized":
            return sized(match["sized"])
        if kind in ("hex", "whole"):
            return "number", int(match[kind], 0), None
        if kind == "real":
            return "float", 32 if match["short"] else 64, match["real"]
        if kind == "word":
            return self.named(match["word"])
        if kind == "op" and match["op"] == "(":
            value = self.expression()
            self.take(")")
            return value
        if kind == "op" and match["op"] == "{":
            return "join", self.listed("}")
        msg = f"{match[0].strip() if match else ''!r} where a value is expected"
        raise PseudocodeError(msg)

    def cast(self, text):
        width, _, kind = text.partition("'")
        self.take("(")
        value = self.expression()
        self.take(")")
        return "cast", kind.lower(), int(width), value

    def named(self, name):
        return ("call", name, self.listed(")")) if self.skip("(") else ("name", name)

    def listed(self, end):
        values = []
        while not self.skip(end):
            values.append(self.expression())
            if not self.skip(","):
                self.take(end)
                break
        return values


def sized(text):
    width, _, digits = text.partition("'")
    if "." in digits:
        return "float", int(width), digits
    return "number", int(digits.rstrip("U"), 0), int(width)
