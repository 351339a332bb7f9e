"""Rows of TOML files as frozen dataclasses, with every problem at once.  Standard library only."""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

# Field -> its allowed words or numbers.
Choices = Mapping[str, tuple[str | int, ...]]


def read_tables(text: str, where: str, problems: list[str]) -> Mapping[str, Any]:
    """The tables of a TOML text. Invalid TOML and values outside tables are noted as problems."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{where}: {error}")
        return {}
    problems += [f"{where}: {name} is not a table" for name in found if not isinstance(found[name], dict)]
    return {name: table for name, table in found.items() if isinstance(table, dict)}


def inherited(tables: Mapping[str, Any], where: str, problems: list[str]) -> Mapping[str, Any]:
    """Resolve ``like = "other"``: missing fields are taken from the table of this name.

    Nested tables are merged field by field. A ``like`` naming an unknown table, or one with a ``like``
    itself, is noted as a problem.
    """
    found = {}
    for name, table in tables.items():
        own, like = {key: value for key, value in table.items() if key != "like"}, table.get("like")
        whole = [other for other in tables if "like" not in tables[other]]
        if "like" in table and like not in whole:
            problems.append(f"{where}: {name} is like {like!r}, expected one of {', '.join(whole)}")
        found[name] = _over(tables[like], own) if like in whole else own
    return found


def _over(base: Mapping[str, Any], own: Mapping[str, Any]) -> Mapping[str, Any]:
    both = [name for name in own if isinstance(base.get(name), dict) and isinstance(own[name], dict)]
    return {**base, **own, **{name: _over(base[name], own[name]) for name in both}}


def read_row(kind: type, row: Mapping[str, Any], where: str, problems: list[str], choices: Choices) -> Any:  # noqa: ANN401
    """The row as the dataclass ``kind``, or None after noting problems.

    Fields are numbers, texts and booleans, tuples and mappings of these, and dataclasses.
    """
    types, before = get_type_hints(kind), len(problems)
    required = [field.name for field in fields(kind) if field.default is MISSING]
    problems += [f"{where}: no {name}" for name in required if name not in row]
    problems += [f"{where}: not a field: {name}" for name in row if name not in types]
    values = {
        name: _value(types[name], name, row[name], where, problems, choices) for name in types if name in row
    }
    return kind(**values) if len(problems) == before else None


def _value(kind: Any, name: str, value: Any, where: str, problems: list[str], choices: Choices) -> Any:  # noqa: ANN401
    of = get_args(kind)
    if isinstance(value, dict) and isinstance(kind, type) and is_dataclass(kind):
        return read_row(kind, value, f"{where}.{name}", problems, choices)
    if isinstance(value, dict) and get_origin(kind) is Mapping:
        each = ((key, f"{name}.{key}", value[key]) for key in value)
        return {key: _value(of[1], path, inner, where, problems, choices) for key, path, inner in each}
    if isinstance(value, list) and get_origin(kind) is tuple and (of[-1] is ... or len(of) == len(value)):
        return tuple(_value(of[0], name, each, where, problems, choices) for each in value)
    if not _is_a(kind, value):
        shown = kind.__name__ if isinstance(kind, type) and not of else kind
        problems.append(f"{where}: {name} is {value!r}, expected {shown}")
    elif value not in choices.get(name, (value,)):
        problems.append(f"{where}: {name} is {value!r}, expected one of {', '.join(map(str, choices[name]))}")
    return value


def _is_a(kind: Any, value: Any) -> bool:  # noqa: ANN401
    """Whether ``value`` has type ``kind``: integers are accepted as floats, booleans are refused as numbers.

    None is absent from TOML. It stands for a row with problems noted before.
    """
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    return value is None or type(value) in kinds or (kind is float and type(value) is int)
