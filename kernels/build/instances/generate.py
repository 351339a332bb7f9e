"""Generates the input of compiler, assembler and host registry from the support table.

Standard library only: this runs in the builder image, in the build hook of the wheel and in tests.
"""

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

KERNELS = Path(__file__).parents[2]
ARCHS = KERNELS / "generated/archs.json"
KINDS = KERNELS / "generated/kinds.json"
TABLE = KERNELS / "generated/table.toml"
ROW_KEYS = ("op", "dtypes", "head_dims", "needs")
OPTIONAL = ("needs",)
ANY_HEAD_DIM = 0
DTYPES = ("fp16", "bf16")  # enumerators of DType: the sources name them, so others fail to compile


class Op(NamedTuple):
    """How an operation's kernels are compiled: fields of its kind (kernels/tables/kinds.toml)."""

    header: str
    macro: str
    shared: str
    tile: str

    @property
    def per_head_dim(self) -> bool:
        """Others take the head dim at run time: one instance per dtype."""
        return bool(self.tile)


OPS = {name: Op(*row) for name, row in json.loads(KINDS.read_text(encoding="utf-8")).items()}


class TableError(Exception):
    """The support table, or a request to it, is wrong. ``problems`` has all errors."""

    def __init__(self, title: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join([title, *(f"  - {problem}" for problem in self.problems)]))


@dataclass(frozen=True)
class Instance:
    """One kernel: an operation for one dtype and head dim, or any head dim, and the archs it exists for."""

    op: str
    dtype: str
    head_dim: int
    archs: tuple[str, ...]

    @property
    def name(self) -> str:
        end = "" if self.head_dim == ANY_HEAD_DIM else f"_d{self.head_dim}"
        return f"fa_{self.op}_{self.dtype}{end}"


@dataclass(frozen=True)
class Known:
    """The names that a table may use."""

    ops: tuple[str, ...]
    dtypes: tuple[str, ...]
    features: Mapping[str, frozenset[str]]  # of each arch

    @property
    def archs(self) -> tuple[str, ...]:
        return tuple(self.features)

    def with_all(self, needs: Iterable[str]) -> tuple[str, ...]:
        """The archs with all these features."""
        return tuple(arch for arch, features in self.features.items() if features >= set(needs))


def known(archs: Path = ARCHS) -> Known:
    """The known names. ``archs`` is a generated file with the features by arch."""
    return Known(
        ops=tuple(OPS),
        dtypes=DTYPES,
        features={name: frozenset(has) for name, has in json.loads(archs.read_text("utf-8")).items()},
    )


def load_table(path: Path = TABLE) -> tuple[Instance, ...]:
    """Read and check the support table.

    Returns the instances in the table's order.  Raises ``TableError`` with every problem at once.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        message = f"{path.name} cannot be read"
        raise TableError(message, [str(error)]) from error
    names = known()
    problems = [f"unknown key {_quoted(key, ['kernels'])}" for key in table if key != "kernels"]
    rows = table.get("kernels", [])
    if not isinstance(rows, list) or not rows:
        problems.append("no [[kernels]] row: at least one is needed")
        rows = []
    instances: list[Instance] = []
    for number, row in enumerate(rows, start=1):
        found = [f"row {number}: {problem}" for problem in _row_problems(row, names)]
        problems += found
        instances += [] if found else _row_instances(row, names)
    problems += _duplicates(instances)
    if problems:
        message = f"{path.name} is not right"
        raise TableError(message, problems)
    return tuple(instances)


def check_arch(arch: str) -> None:
    """Raise ``TableError`` unless there are kernels for ``arch``."""
    archs = known().archs
    if arch not in archs:
        hint = f"there are no kernels for {_quoted(arch, archs)}; known: {', '.join(archs)}"
        advice = "how to add an arch: CONTRIBUTING.md"
        message = "unknown arch"
        raise TableError(message, [hint, advice])


def served(instances: Iterable[Instance], archs: Sequence[str]) -> tuple[Instance, ...]:
    """The instances of a build for ``archs``, each reduced to its archs among them."""
    kept = (replace(i, archs=tuple(a for a in i.archs if a in archs)) for i in instances)
    return tuple(i for i in kept if i.archs)


def source(instance: Instance) -> str:
    """The translation unit of one instance."""
    op = OPS[instance.op]
    arguments = [instance.name, f"fa::DType::{instance.dtype}"]
    arguments += [str(instance.head_dim)] if op.per_head_dim else []
    return f"{include(op.header)}{_tiles(instance)}\n{op.macro}({', '.join(arguments)})\n"


def _tiles(instance: Instance) -> str:
    """The lines that include the table of tiles' rows for its head dim only."""
    if not OPS[instance.op].per_head_dim:
        return ""
    rows = f"generated/device/tiles/{instance.op}/d{instance.head_dim}.inc"
    return f'#define FA_TILES_{OPS[instance.op].tile} "{rows}"\n{include("call/tiles.hpp")}'


def include(header: str) -> str:
    """The line that includes a header of kernels."""
    return f'#include "device/{header}"\n'


def write_sources(instances: Iterable[Instance], out_dir: Path) -> tuple[Path, ...]:
    """Write one translation unit per instance to ``out_dir``, which is created if missing."""
    out_dir.mkdir(parents=True, exist_ok=True)
    paths = []
    for instance in instances:
        path = out_dir / f"{instance.name}.hip"
        path.write_text(source(instance), encoding="utf-8")
        paths.append(path)
    return tuple(paths)


def registry_inc(instances: Sequence[Instance], archs: Sequence[str], clang: int) -> str:
    """The host registry's rows of a build for ``archs``: instances, then archs, each with code only.

    ``clang``: the major version of the compiler.
    """
    lines = ["// FA_INSTANCE(op, dtype, head_dim, name, archs with device code in this build)"]
    lines += [
        f'FA_INSTANCE({i.op}, {i.dtype}, {i.head_dim}, {i.name}, "{",".join(i.archs)}")'
        for i in served(instances, archs)
    ]
    lines += ["// FA_CLANG(major version of the compiler of device code)", f"FA_CLANG({clang})"]
    lines += ["// FA_ARCH(arch with device code in this build)"]
    lines += [f"FA_ARCH({arch})" for arch in held_archs(instances, archs)]
    return "\n".join(lines) + "\n"


def held_archs(instances: Iterable[Instance], archs: Sequence[str]) -> tuple[str, ...]:
    """Those of ``archs`` with an instance, in order."""
    return tuple(arch for arch in archs if any(arch in i.archs for i in instances))


# Common to both object file formats, for the assembler's preprocessor.
FATBIN_SECTIONS = """\
#ifdef _WIN32
#define FATBIN .section .hip_fat, "dr"
#define FUNCTIONS .section .fa_bund, "xr"
#define HIDDEN_FUNCTION(name)
#define END
#else
#define FATBIN .section .hip_fatbin, "a", @progbits
#define FUNCTIONS .section .fa_bundles, "ax", @progbits
#define HIDDEN_FUNCTION(name) .hidden name; .type name, @function
#define END .section .note.GNU-stack, "", @progbits
#endif"""


def fatbin_s(archs: Iterable[str]) -> str:
    """Assembler source: the compressed bundles ``<arch>.hipfb`` one after the other in .hip_fatbin.

    Each is at a multiple of 4096. The hidden function ``fa_bundle_<arch>``, 16 bytes of .fa_bundles, returns
    its address and size. So the library's other code and data are independent of the bundles' sizes. On
    Windows section names have 8 characters.
    """
    bundles, functions = [], []
    for arch in archs:
        symbol, label = f"fa_bundle_{arch}", f".Lbundle_{arch}"
        bundles += [".p2align 12", f"{label}:", f'.incbin "{arch}.hipfb"', f"{label}_end:"]
        functions += [".p2align 4, 0xcc", f".globl {symbol}", f"HIDDEN_FUNCTION({symbol})", f"{symbol}:"]
        functions += [f"lea {label}(%rip), %rax", f"mov ${label}_end - {label}, %edx", "ret"]
    lines = [FATBIN_SECTIONS, "FATBIN", *bundles, "FUNCTIONS", *functions, ".p2align 4, 0xcc", "END"]
    return "\n".join(lines) + "\n"


def _row_problems(row: Any, names: Known) -> list[str]:  # noqa: ANN401  (whatever the TOML holds)
    if not isinstance(row, dict):
        return ["[[kernels]] expected, a table"]
    problems = [f"unknown key {_quoted(key, ROW_KEYS)}" for key in row if key not in ROW_KEYS]
    runtime = any(row.get("op") == name and not op.per_head_dim for name, op in OPS.items())
    needed = [key for key in ROW_KEYS if key not in OPTIONAL and not (runtime and key == "head_dims")]
    problems += [f"key {key!r} is missing" for key in needed if key not in row]
    if runtime and "head_dims" in row:
        problems += [f"head_dims: kernels of {row['op']!r} take any head dim"]
    if "op" in row:
        problems += _unknown("op", [row["op"]], names.ops)
    for key, word, values in (
        ("dtypes", "dtype", names.dtypes),
        ("needs", "feature", sorted(set().union(*names.features.values()))),
    ):
        problems += _list_problems(key, word, row[key], values) if key in row else []
    if "head_dims" in row and not runtime:
        problems += _head_dim_problems(row["head_dims"])
    return problems


def _head_dim_problems(value: Any) -> list[str]:  # noqa: ANN401
    """The problems of a list of head dims. Values that no kernel supports are refused at compile time."""
    if not isinstance(value, list) or not value:
        return ["head_dims must be a list with at least one head dim"]
    wrong = [v for v in value if not isinstance(v, int) or isinstance(v, bool) or v < 1]
    return [f"head dim {v!r} is not a positive whole number" for v in wrong] + _twice("head dim", value)


def _list_problems(key: str, word: str, value: Any, names: Sequence[str | int]) -> list[str]:  # noqa: ANN401
    if not isinstance(value, list) or not value:
        return [f"{key} must be a list with at least one {word}"]
    return _unknown(word, value, names) + _twice(word, value)


def _twice(word: str, value: list[Any]) -> list[str]:
    return [f"{word} {v} stands there twice" for v in sorted({str(v) for v in value if value.count(v) > 1})]


def _unknown(word: str, values: Sequence[Any], names: Sequence[str | int]) -> list[str]:
    allowed = ", ".join(str(name) for name in names)
    return [
        f"unknown {word} {_quoted(value, names)}; known: {allowed}"
        for value in values
        if value not in names or isinstance(value, bool)
    ]


def _quoted(value: object, names: Iterable[str | int]) -> str:
    close = difflib.get_close_matches(str(value), [str(name) for name in names], n=1)
    return f"{value!r}" + (f" (did you mean {close[0]}?)" if close else "")


def _row_instances(row: dict[str, Any], names: Known) -> list[Instance]:
    return [
        Instance(row["op"], dtype, head_dim, names.with_all(row.get("needs", ())))
        for dtype in row["dtypes"]
        for head_dim in row.get("head_dims", [ANY_HEAD_DIM])
    ]


def _duplicates(instances: Sequence[Instance]) -> list[str]:
    names = [instance.name for instance in instances]
    return [
        f"{name} comes from more than one row" for name in sorted({n for n in names if names.count(n) > 1})
    ]
