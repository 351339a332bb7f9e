"""The kinds of kernels: the tables of ``kernels/tables/kinds.toml``, whose head explains them.

Standard library only.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from wheel_builder.base.errors import KindError
from wheel_builder.tables.archs import CHECKOUT
from wheel_builder.tables.rows import read_row, read_tables

KINDS = Path("kernels/tables/kinds.toml")
HEAD = f"Generated from {KINDS} by `python3 -m wheel_builder.tables.generated`; do not edit."
FORWARD, BACKWARD, LATENT, APPEND = "forward", "backward", "latent", "append"
PACKED = "packed"
MISSING = "has no row for this ISA, head dim, dtype and loop"
CHOICES = {
    "call": (FORWARD, BACKWARD, LATENT, APPEND),
    "tile": ("forward", "dkdv", "dq"),
    "rows": ("queries", "many_queries", "uneven_queries", "shared_queries", PACKED),
}
# Of paths, in C++, and the calls that have them.
ENUMERATIONS = {"Path": (FORWARD, LATENT), "BwdPath": (BACKWARD,)}


@dataclass(frozen=True)
class Kind:
    """One kind of kernel."""

    words: str
    call: str
    params: str
    header: str
    macro: str
    shared: str
    paths: tuple[str, ...] = ()
    variant: str = ""
    tile: str = ""
    rows: str = ""
    only: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    @property
    def answers(self) -> tuple[str, ...]:
        """The paths and the variant of calls that are named after it."""
        return (*self.paths, self.variant) if self.variant else self.paths


Kinds = Mapping[str, Kind]


@cache
def known_kinds() -> Kinds:
    """The checkout's kinds, by op; raises ``KindError`` when they cannot be read."""
    return parse_kinds((CHECKOUT / KINDS).read_text(encoding="utf-8"))


def parse_kinds(text: str) -> Kinds:
    """The kinds of a text.

    Raises ``KindError`` with everything that is wrong: an unknown key or word, a path that two kinds answer,
    fields of tiles without a tile.
    """
    problems: list[str] = []
    found: dict[str, Kind] = {}
    for op, row in read_tables(text, KINDS.name, problems).items():
        kind = read_row(Kind, row, f"{KINDS.name}: {op}", problems, CHOICES)
        if kind is not None:
            found[op] = kind
    problems += (
        f"{KINDS.name}: {op}: {name} without tile"
        for op, kind in found.items()
        for name in ("rows", "only", "also")
        if getattr(kind, name) and not kind.tile
    )
    paths = [path for kind in found.values() for path in kind.paths]
    problems += (
        f"{KINDS.name}: two kinds answer {path}" for path in sorted(set(paths)) if paths.count(path) > 1
    )
    if problems:
        title = f"{KINDS} does not describe kinds of kernels"
        raise KindError(title, problems, advice="its head explains the keys")
    return found


def forwards(kinds: Kinds) -> tuple[str, ...]:
    """The ops whose workgroups have rows of one head."""
    return tuple(
        op for op, kind in kinds.items() if kind.call == FORWARD and kind.tile and kind.rows != PACKED
    )


def build_json(kinds: Kinds) -> str:
    """What compiling kernels needs of their kinds: ``Op`` of kernels/build/instances/generate.py."""
    rows = (
        f'  "{op}": {json.dumps([kind.header, kind.macro, kind.shared, kind.tile])}'
        for op, kind in kinds.items()
    )
    return "{\n" + ",\n".join(rows) + "\n}\n"


def cpp_kinds(kinds: Kinds) -> str:
    """The ops, what their rows are, and the words of a kernel whose row in the table of tiles is missing."""
    tiled = {op: kind for op, kind in kinds.items() if kind.tile}
    rows = "".join(
        f"    case Op::{op}: return Rows::{kind.rows};\n" for op, kind in tiled.items() if kind.rows
    )
    where = "kernels/tables/tiles.toml"
    asserts = " \\\n".join(
        f'  static_assert(op != Op::{op} || (found), "{where}: [{op}] {MISSING}");' for op in tiled
    )
    return (
        f"// {HEAD}\n\nenum class Op {{ {', '.join(kinds)} }};\n\n"
        f"constexpr Rows rows_of(Op op) {{\n  switch (op) {{\n{rows}"
        "    default: return Rows::queries;\n  }\n}\n\n"
        f"#define FA_REQUIRE_ROW(op, found) \\\n{asserts[:-1]}\n"
    )


def cpp_paths(kinds: Kinds) -> str:
    """An enumeration of each direction's paths, all names, and the ops that answer forward paths."""
    parts = [f"// {HEAD}"]
    for name, calls in ENUMERATIONS.items():
        paths = _paths(kinds, calls)
        parts += [f"enum class {name} {{ {', '.join(paths)} }};", _names(name, paths, "std::string_view")]
    parts.append(_names("Op", kinds, "const char*"))
    attending = (kind for kind in kinds.items() if kind[1].call != BACKWARD)
    parts.append(
        _switch("Op op_of", "Path", ((path, f"Op::{op}") for op, kind in attending for path in kind.paths))
    )
    return "\n\n".join(parts) + "\n"


def python_paths(kinds: Kinds) -> str:
    """The names as Python's constants."""
    by_direction = {calls[0]: _paths(kinds, calls) for calls in ENUMERATIONS.values()}
    every = dict.fromkeys(name for names in by_direction.values() for name in names)
    lines = ['"""The names of paths."""', "", f"# {HEAD}"]
    lines += [f'{name.upper()} = "{name}"' for name in every]
    lines += [f"{key.upper()} = ({', '.join(map(str.upper, names))})" for key, names in by_direction.items()]
    return "".join(f"{line}\n" for line in lines)


def python_kinds(kinds: Kinds) -> str:
    """The text of the package's ``values/kinds.py``: which kernels answer calls."""
    tables = {
        "ATTENDING": _answers(kinds, (FORWARD, LATENT)),
        "GRADIENTS": _answers(kinds, (BACKWARD,)),
    }
    lines = ['"""The op of the kernels that answer a call, by its path or variant."""', "", f"# {HEAD}"]
    variants = dict.fromkeys(kind.variant for kind in kinds.values() if kind.variant)
    lines += [f'{variant.upper()} = "{variant}"' for variant in variants]
    for name, answers in tables.items():
        lines += [f"{name} = {{", *(f'    "{key}": "{op}",' for key, op in answers.items()), "}"]
    return "".join(f"{line}\n" for line in lines)


def _paths(kinds: Kinds, calls: Iterable[str]) -> tuple[str, ...]:
    return tuple(path for kind in kinds.values() if kind.call in calls for path in kind.paths)


def _answers(kinds: Kinds, calls: Iterable[str]) -> Mapping[str, str]:
    return {key: op for op, kind in kinds.items() if kind.call in calls for key in kind.answers}


def _names(kind: str, names: Iterable[str], type_: str) -> str:
    return _switch(f"{type_} name", kind, ((each, f'"{each}"') for each in names))


def _switch(function: str, kind: str, cases: Iterable[tuple[str, str]]) -> str:
    """A function of an enumeration, which has a result for each of its members."""
    lines = "".join(f"    case {kind}::{each}: return {result};\n" for each, result in cases)
    return f"constexpr {function}({kind} of) {{\n  switch (of) {{\n{lines}  }}\n  return {{}};\n}}"
