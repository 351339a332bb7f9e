"""The kernels' argument structs, as params.hpp and backward_params.hpp declare them.

These headers of kernels/include/fa/kernel are the only place that knows fields and their order.  The parser
accepts plain structs of the types in ``TYPES`` and refuses everything else, so nothing is guessed.
tests/layout compares its offsets with the compiler's.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from wheel_builder.base.errors import EmulatorError

FOLDER = Path(__file__).parents[2] / "kernels/include/fa/kernel"
HEADER = FOLDER / "params.hpp"
HEADERS = (HEADER, FOLDER / "backward_params.hpp")  # each may use the structs of those before it
DECLARED_IN = " or ".join(header.name for header in HEADERS)
POINTER = "Q"
TYPES = {"int64_t": "q", "int32_t": "i", "uint32_t": "I", "float": "f"}  # ``struct`` format characters
COMMENT = re.compile(r"//[^\n]*")
STRUCT = re.compile(r"\bstruct\s+(\w+)\s*\{(.*?)\}\s*;", re.DOTALL)
NAME = re.compile(r"(?P<name>[a-zA-Z_]\w*)(?:\[(?P<count>[1-9]\d*)\])?")
FIELD = re.compile(r"(?:const\s+)?(?P<type>\w+)\s*(?P<pointer>\*?)\s*(?P<names>\w[^*]*)")
Value = int | float


@dataclass(frozen=True)
class Scalar:
    """One number or pointer: its name, ``struct`` format character, and offset in bytes."""

    name: str
    kind: str
    offset: int


@dataclass(frozen=True)
class Layout:
    """A struct: its size in bytes and its scalars; those of inner structs are ``tensors[0].from``."""

    name: str
    size: int
    alignment: int
    scalars: tuple[Scalar, ...]

    def pack(self, values: Mapping[str, Value]) -> bytes:
        """The struct's bytes; scalars not named in ``values`` are 0.

        Raises ``EmulatorError`` with every name that is not a field.
        """
        if unknown := values.keys() - {scalar.name for scalar in self.scalars}:
            names = ", ".join(sorted(unknown))
            message = f"{self.name}, of {DECLARED_IN}, has no field {names}"
            raise EmulatorError(message, advice=f"fields: {', '.join(s.name for s in self.scalars)}")
        data = bytearray(self.size)
        for scalar in self.scalars:
            struct.pack_into(f"<{scalar.kind}", data, scalar.offset, values.get(scalar.name, 0))
        return bytes(data)

    def unpack(self, data: bytes) -> tuple[Value, ...]:
        """The scalars of a struct's bytes, in order."""
        return tuple(struct.unpack_from(f"<{each.kind}", data, each.offset)[0] for each in self.scalars)


def layout(name: str) -> Layout:
    """The struct ``fa::<name>`` of this checkout's kernels; raises ``EmulatorError`` where there is none."""
    known = _layouts()
    if name not in known:
        message = f"no struct {name} in {DECLARED_IN}"
        raise EmulatorError(message, advice=f"structs: {', '.join(known)}")
    return known[name]


@lru_cache(maxsize=1)
def _layouts() -> Mapping[str, Layout]:
    return parse("".join(header.read_text(encoding="utf-8") for header in HEADERS))


def parse(text: str) -> Mapping[str, Layout]:
    """All structs of a header by name; raises ``EmulatorError`` for a field that it cannot parse."""
    found: dict[str, Layout] = {}
    for name, body in STRUCT.findall(COMMENT.sub("", text)):
        found[name] = _struct(name, body, found)
    if len(found) != len(re.findall(r"\b(?:struct|class|union)\b", COMMENT.sub("", text))):
        _refuse("a struct, class or union")
    return found


def _struct(name: str, body: str, known: Mapping[str, Layout]) -> Layout:
    scalars: list[Scalar] = []
    end, alignment = 0, 1
    for field, inner in _fields(body, known):
        alignment = max(alignment, inner.alignment)
        begin = _aligned(end, inner.alignment)
        scalars += [Scalar(f"{field}{s.name}", s.kind, begin + s.offset) for s in inner.scalars]
        end = begin + inner.size
    return Layout(name, _aligned(end, alignment), alignment, tuple(scalars))


def _fields(body: str, known: Mapping[str, Layout]) -> Iterator[tuple[str, Layout]]:
    """The fields in order, array elements one by one: the prefix of its scalars' names, and the type."""
    *declarations, rest = (part.strip() for part in body.split(";"))
    if rest:
        _refuse(rest)
    for declaration in declarations:
        match = FIELD.fullmatch(declaration)
        # In `T* a, b` b is not a pointer, so each pointer has its own declaration.
        if match is None or (match["pointer"] and "," in match["names"]):
            _refuse(declaration)
        type_ = _type(match, known)
        dot = "." if match["type"] in known and not match["pointer"] else ""
        for name in match["names"].split(","):
            yield from ((f"{each}{dot}", type_) for each in _names(name.strip()))


def _type(match: re.Match[str], known: Mapping[str, Layout]) -> Layout:
    """A field's type: one unnamed scalar, or a struct."""
    if not match["pointer"] and match["type"] in known:
        return known[match["type"]]
    kind = POINTER if match["pointer"] else TYPES.get(match["type"], "")
    if not kind:
        _refuse(match[0])
    size = struct.calcsize(f"<{kind}")
    return Layout(match["type"], size, size, (Scalar("", kind, 0),))


def _names(declared: str) -> list[str]:
    match = NAME.fullmatch(declared)
    if match is None:
        _refuse(declared)
    if match["count"] is None:
        return [match["name"]]
    return [f"{match['name']}[{n}]" for n in range(int(match["count"]))]


def _refuse(what: str) -> NoReturn:
    message = (
        f"{DECLARED_IN} declares {what!r}, which is not a field of {', '.join(TYPES)}, pointers and structs"
    )
    raise EmulatorError(message, advice="teach wheel_builder/emulator/params.py the declaration")


def _aligned(offset: int, alignment: int) -> int:
    return offset + -offset % alignment
