"""The kernels' argument structs, packed in the compiler's layout.

Fields and their order come from ``kernels/tables/calls.toml``, the source of the C++ structs.
tests/engine/layout compares the offsets with the compiler's.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from wheel_builder.base.errors import EmulatorError
from wheel_builder.tables.calls import CALLS, FieldType, known_calls

POINTER = "Q"
KINDS = {"int64_t": "q", "int32_t": "i", "uint32_t": "I", "float": "f"}  # ``struct`` format characters
Value = int | float


@dataclass(frozen=True)
class Scalar:
    """One number or pointer: its name, ``struct`` format character, and offset in bytes."""

    name: str
    kind: str
    offset: int


@dataclass(frozen=True)
class Layout:
    """A struct: its size in bytes and its scalars. Scalars of inner structs are named ``tensors[0].from``."""

    name: str
    size: int
    alignment: int
    scalars: tuple[Scalar, ...]

    def pack(self, values: Mapping[str, Value]) -> bytes:
        """The struct's bytes. Scalars missing from ``values`` are 0.

        Raises ``EmulatorError`` with every unknown name.
        """
        if unknown := values.keys() - {scalar.name for scalar in self.scalars}:
            names = ", ".join(sorted(unknown))
            message = f"{self.name}, of {CALLS}, has no field {names}"
            raise EmulatorError(message, advice=f"fields: {', '.join(s.name for s in self.scalars)}")
        data = bytearray(self.size)
        for scalar in self.scalars:
            struct.pack_into(f"<{scalar.kind}", data, scalar.offset, values.get(scalar.name, 0))
        return bytes(data)

    def unpack(self, data: bytes) -> tuple[Value, ...]:
        """The scalars of a struct's bytes, in order."""
        return tuple(struct.unpack_from(f"<{each.kind}", data, each.offset)[0] for each in self.scalars)


def layout(name: str) -> Layout:
    """The struct ``fa::<name>`` of this checkout's kernels. Raises ``EmulatorError`` for an unknown one."""
    known = known_layouts()
    if name not in known:
        message = f"no struct {name} in {CALLS}"
        raise EmulatorError(message, advice=f"structs: {', '.join(known)}")
    return known[name]


@cache
def known_layouts() -> Mapping[str, Layout]:
    """The layouts of all structs, by name."""
    return layouts(known_calls().structs)


def layouts(structs: Mapping[str, Mapping[str, FieldType]]) -> Mapping[str, Layout]:
    """Their layouts. A struct may contain earlier ones."""
    found: dict[str, Layout] = {}
    for name, fields in structs.items():
        found[name] = _struct(name, fields, found)
    return found


def _struct(name: str, fields: Mapping[str, FieldType], known: Mapping[str, Layout]) -> Layout:
    scalars: list[Scalar] = []
    end, alignment = 0, 1
    for field, inner in _elements(fields, known):
        alignment = max(alignment, inner.alignment)
        begin = _aligned(end, inner.alignment)
        scalars += [Scalar(f"{field}{s.name}", s.kind, begin + s.offset) for s in inner.scalars]
        end = begin + inner.size
    return Layout(name, _aligned(end, alignment), alignment, tuple(scalars))


def _elements(fields: Mapping[str, FieldType], known: Mapping[str, Layout]) -> Iterator[tuple[str, Layout]]:
    """The fields in order, array elements one by one: the prefix of its scalars' names, and the type."""
    for field, type_ in fields.items():
        is_struct = type_.name in known and not type_.pointer
        inner = known[type_.name] if is_struct else _scalar(type_)
        names = [f"{field}[{n}]" for n in range(type_.count)] or [field]
        yield from ((f"{name}." if is_struct else name, inner) for name in names)


def _scalar(type_: FieldType) -> Layout:
    kind = POINTER if type_.pointer else KINDS[type_.name]
    size = struct.calcsize(f"<{kind}")
    return Layout(type_.name, size, size, (Scalar("", kind, 0),))


def _aligned(offset: int, alignment: int) -> int:
    return offset + -offset % alignment
