"""A call, described once: ``kernels/tables/calls.toml``, whose head explains it.

Standard library only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from wheel_builder.base.errors import CallError
from wheel_builder.tables.archs import CHECKOUT
from wheel_builder.tables.rows import read_row, read_tables

CALLS = Path("kernels/tables/calls.toml")
SCALARS = ("int32_t", "int64_t", "uint32_t", "float")
CHOICES = {
    "holds": ("rows", "fp32", "int32", "int64", "mask"),
    "contiguous": ("all", "last"),
    "type": ("int64", "float", "double", "bool", "text"),
}


@dataclass(frozen=True)
class TensorArgument:
    """A tensor of a call."""

    name: str
    holds: str
    written: bool = False
    optional: bool = False
    contiguous: str = ""


@dataclass(frozen=True)
class ValueArgument:
    """A number, truth or text of a call."""

    name: str
    type: str
    traced: bool = False


@dataclass(frozen=True)
class Call:
    """The arguments of an operator, in its order."""

    values: tuple[ValueArgument, ...]
    tensors: tuple[TensorArgument, ...] = ()


@dataclass(frozen=True)
class Maker:
    """An operator of ``call`` that makes the memory of its results."""

    call: str
    makes: tuple[str, ...]
    between: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    values: tuple[ValueArgument, ...] = ()

    def given(self, call: Call) -> tuple[TensorArgument, ...]:
        """The tensors among its arguments."""
        others = (*self.makes, *self.between, *self.absent)
        return tuple(each for each in call.tensors if each.name not in others)


@dataclass(frozen=True)
class FieldType:
    """The type of a struct's field: ``name`` without const, * and [count]. count 0: a scalar."""

    name: str
    pointer: bool = False
    const: bool = False
    count: int = 0


@dataclass(frozen=True)
class Calls:
    """The whole file. ``structs`` field -> type, in order."""

    expected: Mapping[str, str]
    calls: Mapping[str, Call]
    makers: Mapping[str, Maker]
    structs: Mapping[str, Mapping[str, FieldType]]


@dataclass(frozen=True)
class _File:
    expected: Mapping[str, str]
    calls: Mapping[str, Call]
    makers: Mapping[str, Maker]
    structs: Mapping[str, Mapping[str, str]]


@cache
def known_calls() -> Calls:
    """The checkout's description. Raises ``CallError`` for an unreadable file."""
    return parse_calls((CHECKOUT / CALLS).read_text(encoding="utf-8"))


def parse_calls(text: str) -> Calls:
    """The description in a text.

    Raises ``CallError`` with all problems: an unknown key or type, a repeated name.
    """
    problems: list[str] = []
    tables = read_tables(text, CALLS.name, problems)
    found: _File | None = read_row(_File, tables, CALLS.name, problems, CHOICES)
    structs: dict[str, dict[str, FieldType]] = {}
    if found is not None:
        for name, call in found.calls.items():
            problems += [f"{CALLS.name}: calls.{name}: {each} comes twice" for each in _twice(call)]
        for name, maker in found.makers.items():
            problems += [f"{CALLS.name}: makers.{name}: {each}" for each in _misfits(maker, found.calls)]
        for name, fields in found.structs.items():
            known = (*SCALARS, *structs)
            structs[name] = {field: _type(type_) for field, type_ in fields.items()}
            problems += [
                f"{CALLS.name}: structs.{name}: {field} is {fields[field]!r}, expected {', '.join(known)}, "
                "a pointer, or [n] of one"
                for field, type_ in structs[name].items()
                if not _is_known(type_, known)
            ]
    if found is None or problems:
        title = f"{CALLS} does not describe calls"
        raise CallError(title, problems, advice="its head explains the keys")
    return Calls(found.expected, found.calls, found.makers, structs)


def _twice(call: Call) -> list[str]:
    names = [*(each.name for each in call.tensors), *(each.name for each in call.values)]
    return sorted({name for name in names if names.count(name) > 1})


def _misfits(maker: Maker, calls: Mapping[str, Call]) -> list[str]:
    """What a maker says wrongly of its call."""
    if maker.call not in calls:
        return [f"call is {maker.call!r}, expected one of {', '.join(calls)}"]
    tensors = calls[maker.call].tensors
    written = [each.name for each in tensors if each.written]
    optional = [each.name for each in tensors if each.optional]
    fields = (
        ("makes", maker.makes, written),
        ("between", maker.between, written),
        ("absent", maker.absent, optional),
    )
    return [
        f"{field} has {name!r}, expected {', '.join(expected)}"
        for field, names, expected in fields
        for name in names
        if name not in expected
    ]


def _type(text: str) -> FieldType:
    element, bracket, count = text.partition("[")
    name = element.removesuffix("*")
    is_count = count.endswith("]") and count[:-1].isdecimal() and int(count[:-1]) > 0
    return FieldType(
        name.removeprefix("const "),
        pointer=name != element,
        const=name.startswith("const "),
        count=int(count[:-1]) if is_count else -1 if bracket else 0,
    )


def _is_known(type_: FieldType, known: tuple[str, ...]) -> bool:
    if type_.count < 0 or (type_.const and not type_.pointer):
        return False
    return type_.name in (*SCALARS, "void") if type_.pointer else type_.name in known
