"""The kinds of kernels: the tables of ``kernels/tables/kinds.toml``, whose head explains them.

Standard library only.
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from wheel_builder.base.errors import KindError
from wheel_builder.base.words import listed
from wheel_builder.tables.archs import CHECKOUT
from wheel_builder.tables.rows import read_row, read_tables

KINDS = Path("kernels/tables/kinds.toml")
HEAD = f"Generated from {KINDS} by `python3 -m wheel_builder.tables.generated`; do not edit."
FORWARD, BACKWARD, LATENT, APPEND, WIDEN = "forward", "backward", "latent", "append", "widen"
FP8, INT8 = "fp8", "int8"
QUERIES, MANY_QUERIES, UNEVEN_QUERIES = "queries", "many_queries", "uneven_queries"
SHARED_QUERIES, PACKED = "shared_queries", "packed"
LAUNCHES = 3  # of a backward call
PLAIN = "// For calls without softcap, ALiBi, dropout and pages only.\n"
LACKS = "// Why such kernels refuse a call.\n"
FEATURES = ("softcap", "ALiBi", "dropout", "pages")
LACKING = ((), ("dropout",), FEATURES)  # plans ask for no other sets (kernels/host/plan)
VALUE_DIM = "// v's head dim, of kernels where it differs from that of q and k, else 0.\n"
LAUNCHED = "// The kernels of a backward call, in the order of their launches.\n"
MISSING = "has no row for this ISA, head dim, dtype and loop"
CHOICES = {
    "call": (FORWARD, BACKWARD, LATENT, FP8, INT8, APPEND, WIDEN),
    "tile": ("forward", "dkdv", "dq"),
    "lacks": FEATURES,
    "multiplies": ("fp16", FP8, INT8),
    "beside": ("bf16",),
    "rows": (QUERIES, MANY_QUERIES, UNEVEN_QUERIES, SHARED_QUERIES, PACKED),
}
# Of paths, in C++, and the calls that have them.
ENUMERATIONS = {"Path": (FORWARD, LATENT, FP8, INT8), "BwdPath": (BACKWARD,)}


@dataclass(frozen=True)
class Row:
    """A kernel for each dtype and head dim, of archs with all features that it needs."""

    dtypes: tuple[str, ...]
    head_dims: tuple[int, ...] = ()
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kind:
    """One kind of kernel."""

    words: str
    call: str
    params: str
    header: str
    macro: str
    shared: str
    kernels: tuple[Row, ...]
    paths: tuple[str, ...] = ()
    variant: str = ""
    tile: str = ""
    rows: str = ""
    only: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    value_dim: int = 0
    products: tuple[int, ...] = ()
    multiplies: str = ""
    beside: str = ""
    launches: tuple[str, ...] = ()
    canary: str = ""

    def of_v(self, head_dim: int) -> int:
        """The head dim of v in kernels whose q and k have ``head_dim``."""
        return self.value_dim or head_dim

    def built(self, dtype: str, head_dim: int, features: Container[str]) -> bool:
        """Whether an arch with these features has the kernel."""
        return any(
            dtype in row.dtypes and head_dim in row.head_dims and all(each in features for each in row.needs)
            for row in self.kernels
        )

    @property
    def plain(self) -> bool:
        """Whether it is for calls without features only."""
        return self.lacks == FEATURES

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
    fields of tiles without a tile, launches of unknown kinds.
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
    problems += (f"{KINDS.name}: {op}: {problem}" for op in found for problem in _launch_problems(op, found))
    problems += (
        f"{KINDS.name}: {op}: canary is missing, and it answers calls"
        for op, kind in found.items()
        if kind.answers and not kind.canary
    )
    problems += (
        f"{KINDS.name}: {op}: lacks is {', '.join(kind.lacks)}; expected dropout, or {', '.join(FEATURES)}"
        for op, kind in found.items()
        if kind.lacks not in LACKING
    )
    if problems:
        title = f"{KINDS} does not describe kinds of kernels"
        raise KindError(title, problems, advice="its head explains the keys")
    return found


def _launch_problems(op: str, kinds: Kinds) -> Iterator[str]:
    launches, needed = kinds[op].launches, kinds[op].call == BACKWARD and bool(kinds[op].answers)
    if len(launches) != (LAUNCHES if needed else 0):
        yield f"{len(launches)} launches, expected {LAUNCHES if needed else 0}"
    if launches and op not in launches:
        yield f"launches without {op}"
    yield from (f"launches {other}, which is no kind" for other in launches if other not in kinds)


def answering(kinds: Kinds, *calls: str) -> Mapping[str, str]:
    """The op of the kernels that answer such calls, by path and variant."""
    return {key: op for op, kind in kinds.items() if kind.call in calls for key in kind.answers}


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


def support_table(kinds: Kinds) -> str:
    """The table that compiling kernels, the host's registry and the pipeline read."""
    rows = ((op, row) for op, kind in kinds.items() for row in kind.kernels)
    return f"# {HEAD}\n" + "".join(f'\n[[kernels]]\nop = "{op}"\n{_fields(row)}' for op, row in rows)


def _fields(row: Row) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in asdict(row).items() if value)


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
    """The names of paths, variants and ops in C++, and what the table says of them."""
    forward, backward = answering(kinds, *ENUMERATIONS["Path"]), answering(kinds, BACKWARD)
    (path, paths), (bwd_path, bwd_paths) = (
        (name, _paths(kinds, calls)) for name, calls in ENUMERATIONS.items()
    )
    variants = _variants(kinds)
    launches = {key: ", ".join(f"Op::{each}" for each in kinds[op].launches) for key, op in backward.items()}
    plain = " || ".join(f"of == Op::{op}" for op, kind in kinds.items() if kind.plain)
    refusals = [(op, json.dumps(_refusal(kind.lacks))) for op, kind in kinds.items() if kind.lacks]
    value_dims = [(op, str(kind.value_dim)) for op, kind in kinds.items() if kind.value_dim]
    parts = [
        f"// {HEAD}",
        _enumeration(path, paths),
        _names(path, paths, "std::string_view"),
        _list("kPaths", path, paths),
        _enumeration(bwd_path, bwd_paths),
        _names(bwd_path, bwd_paths, "std::string_view"),
        f"// Calls whose path does not tell their kernels.\n{_enumeration('Variant', variants)}",
        _names("Op", kinds, "const char*"),
        f"// Forwards whose workgroups have rows of one head.\n{_list('kForwards', 'Op', forwards(kinds))}",
        f"{PLAIN}constexpr bool is_plain(Op of) {{\n  return {plain or 'false'};\n}}",
        LACKS + _switch("const char* refusal_of", "Op", refusals, '    default: return "";\n'),
        VALUE_DIM + _switch("int value_dim_of", "Op", value_dims, "    default: return 0;\n"),
        _switch("Op op_of", path, _ops(paths, forward)),
        _switch("Op op_of", "Variant", _ops(variants, forward)),
        f"{LAUNCHED}using Launches = std::array<Op, {LAUNCHES}>;",
        _switch("Launches launches_of", bwd_path, ((key, f"{{{launches[key]}}}") for key in bwd_paths)),
        _switch(
            "Launches launches_of",
            "Variant",
            ((key, f"{{{launches[key]}}}") for key in variants if key in launches),
            "    default: return {};\n",
        ),
    ]
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
    tables = {"ATTENDING": answering(kinds, *ENUMERATIONS["Path"]), "GRADIENTS": answering(kinds, BACKWARD)}
    lines = ['"""The op of the kernels that answer a call, by its path or variant."""', "", f"# {HEAD}"]
    lines += [f'{variant.upper()} = "{variant}"' for variant in _variants(kinds)]
    for name, answers in tables.items():
        lines += [f"{name} = {{", *(f'    "{key}": "{op}",' for key, op in answers.items()), "}"]
    lines += [
        "# Ops for calls without softcap, ALiBi, dropout and pages.",
        f"PLAIN = {_tuple([op for op, kind in kinds.items() if kind.plain and kind.answers])}",
        "# Ops with a kernel for each head dim.",
        "TILED = (",
        *(f'    "{op}",' for op, kind in kinds.items() if kind.tile),
        ")",
        "# Of an op in GRADIENTS, all kernels of a call in the order of their launches.",
        "LAUNCHES = {",
    ]
    lines += [f'    "{op}": {_tuple(kinds[op].launches)},' for op in tables["GRADIENTS"].values()]
    lines += ["}", "# The rows of canary/rows.py that check an op.", "CANARY = {"]
    lines += [f'    "{op}": "{kind.canary}",' for op, kind in kinds.items() if kind.canary]
    return "".join(f"{line}\n" for line in [*lines, "}"])


def _refusal(lacks: Sequence[str]) -> str:
    """In the words of errors."""
    first, *others = lacks
    if not others:
        return f"its kernels have no {first}"
    return f"its kernels have neither {first} nor {listed(others, 'or')}"


def _paths(kinds: Kinds, calls: Iterable[str]) -> tuple[str, ...]:
    return tuple(path for kind in kinds.values() if kind.call in calls for path in kind.paths)


def _variants(kinds: Kinds) -> tuple[str, ...]:
    return tuple(dict.fromkeys(kind.variant for kind in kinds.values() if kind.variant))


def _ops(names: Iterable[str], answers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((name, f"Op::{answers[name]}") for name in names if name in answers)


def _enumeration(name: str, members: Iterable[str]) -> str:
    return f"enum class {name} {{ {', '.join(members)} }};"


def _list(name: str, kind: str, members: Iterable[str]) -> str:
    return f"inline constexpr {kind} {name}[] = {{{', '.join(f'{kind}::{each}' for each in members)}}};"


def _tuple(words: Sequence[str]) -> str:
    return f"({', '.join(map(json.dumps, words))}{',' if len(words) == 1 else ''})"


def _names(kind: str, names: Iterable[str], type_: str) -> str:
    return _switch(f"{type_} name", kind, ((each, f'"{each}"') for each in names))


def _switch(function: str, kind: str, cases: Iterable[tuple[str, str]], others: str = "") -> str:
    """A function of an enumeration: a result for each of its members, or for some and ``others``."""
    lines = "".join(f"    case {kind}::{each}: return {result};\n" for each, result in cases)
    return f"constexpr {function}({kind} of) {{\n  switch (of) {{\n{lines}{others}  }}\n  return {{}};\n}}"
