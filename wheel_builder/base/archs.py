"""The archs that there are kernels for, and what is known of each: two tables of facts, read once.

``kernels/archs/isas.toml`` has how machine code works, ``kernels/archs/gpus.toml`` how much there is on each
GPU; the head of each file says what its fields mean.  C++ includes what is generated from them:

    python3 -m wheel_builder.base.archs

writes ``kernels/include/fa/arch/archs.inc``.  Standard library only.
"""

import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from wheel_builder.base.errors import ArchError

CHECKOUT = Path(__file__).parents[2]
ISAS = Path("kernels/archs/isas.toml")
GPUS = Path("kernels/archs/gpus.toml")
TABLES = (ISAS, GPUS)
GENERATED = Path("kernels/include/fa/arch/archs.inc")


@dataclass(frozen=True)
class Counters:
    """The wait counters of an ISA."""

    stores_apart: bool
    keeps_half: bool
    depth: tuple[int, int, int]


@dataclass(frozen=True)
class Hazards:
    """What the hardware does not wait for."""

    rules: str


@dataclass(frozen=True)
class Port:
    """Clocks of an LDS access at the port: fixed, and for each dword of a lane, phase and conflict."""

    fixed: float
    dword: float
    phase: float
    conflict: float


@dataclass(frozen=True)
class Lds:
    """How the models charge LDS accesses."""

    phases: tuple[str, ...]
    port: Port


@dataclass(frozen=True)
class Timing:
    """Rates and latencies of the schedule model, in clocks."""

    slot: int
    valu: int
    transcendental: int
    slow: int
    overlap: bool
    matrix_issue: int
    matrix_result: int
    valu_result: int
    transcendental_result: int
    salu_result: int
    lds: int
    vmem: int
    smem: int
    branch: int
    barrier: int
    lds_bytes: int
    vmem_bytes: int


@dataclass(frozen=True)
class Isa:
    """One table of isas.toml."""

    name: str
    family: str
    unit: str
    bf16_k: int
    matrix_clocks: Mapping[str, int]
    separate_accumulators: bool
    packed_fp32: bool
    buffer_word3: int
    wave: int
    simds: int
    cus_of_workgroup: int
    waves_per_simd: int
    vgpr_encoding_granule: int
    sgprs: int
    sgpr_granule: int
    architected_flat_scratch: bool
    packed_work_item_ids: bool
    counters: Counters
    hazards: Hazards
    lds: Lds
    timing: Timing


@dataclass(frozen=True)
class Model:
    """The product that an arch is modelled as: Hz, bytes a second of the whole GPU, bytes."""

    name: str
    clock: float
    memory: float
    l2: float
    instruction_cache: int


@dataclass(frozen=True)
class Arch:
    """One table of gpus.toml, with its ISA."""

    name: str
    isa: Isa
    code_object: str
    elf_machine: int
    device_name: str
    compute_units: int
    die_units: int
    vgprs: int
    vgpr_granule: int
    lds_bytes: int
    lds_granule: int
    fused_backward: bool
    model: Model


# The fields of C++'s ArchTraits, in its order, and how an enumerator is written there.
TRAITS = (
    *("elf_machine", "device_name", "compute_units", "die_units", "family", "unit", "bf16_k"),
    *("separate_accumulators", "packed_fp32", "buffer_word3", "fused_backward", "wave", "simds"),
    *("cus_of_workgroup", "waves_per_simd", "vgprs", "vgpr_granule", "vgpr_encoding_granule", "sgprs"),
    *("sgpr_granule", "lds_bytes", "lds_granule", "architected_flat_scratch", "packed_work_item_ids"),
)
ENUMERATORS = {"family": "Family", "unit": "MatrixUnit"}
# Field -> the words that it may be.
CHOICES = {
    "family": ("cdna", "rdna"),
    "unit": ("mfma", "wmma", "dot2"),
    "phases": ("measured", "contiguous"),
}
HEAD = """\
// Generated from kernels/archs/isas.toml and gpus.toml by `python3 -m wheel_builder.base.archs`; do not edit.
// FA_ARCH(name, fields of ArchTraits): a code object's arch.  FA_GPU(name, arch): a GPU that runs its code.
"""


@cache
def known_archs() -> Mapping[str, Arch]:
    """The checkout's archs, in the table's order; raises ``ArchError`` when the tables cannot be read."""
    isas, gpus = ((CHECKOUT / table).read_text(encoding="utf-8") for table in TABLES)
    return parse_archs(isas, gpus)


def arch_named(name: str) -> Arch:
    """Raises ``ArchError`` for an arch that the table does not have."""
    if name not in known_archs():
        title = f"nothing is known of {name}"
        raise ArchError(title, [f"known: {', '.join(known_archs())}"], advice=f"add it to {GPUS}")
    return known_archs()[name]


def parse_archs(isas: str, gpus: str) -> Mapping[str, Arch]:
    """The archs of two tables' texts.

    Raises ``ArchError`` with everything that is wrong: a field that is missing, unknown or of another type,
    an ISA or code object that is not there, two archs with one ELF number, no arch at all.
    """
    problems: list[str] = []
    found = {
        name: _made(Isa, {"name": name, **row}, f"{ISAS.name}: {name}", problems)
        for name, row in _rows(isas, ISAS, problems)
    }
    archs = {}
    for name, row in _rows(gpus, GPUS, problems):
        where, isa = f"{GPUS.name}: {name}", row.get("isa")
        if not isinstance(isa, str) or isa not in found:
            problems.append(f"{where}: isa is {isa!r}, expected one of {', '.join(found)}")
        else:
            archs[name] = _made(Arch, {**row, "name": name, "isa": found[isa]}, where, problems)
    if not problems:
        problems += _contradictions(archs)
    if problems or not archs:
        title, advice = "the tables of archs cannot be read", "the head of each file says what its fields are"
        raise ArchError(title, problems or ["there is no arch"], advice=advice)
    return archs


def _rows(text: str, path: Path, problems: list[str]) -> list[tuple[str, dict[str, Any]]]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{path.name}: {error}")
        return []
    problems += [
        f"{path.name}: {name} is not a table" for name in tables if not isinstance(tables[name], dict)
    ]
    return [(name, table) for name, table in tables.items() if isinstance(table, dict)]


def _made(kind: type, row: Mapping[str, Any], where: str, problems: list[str]) -> Any:  # noqa: ANN401
    """The row as a ``kind``; None, with the problems noted, where it is not one."""
    types = get_type_hints(kind)
    before = len(problems)
    problems += [f"{where}: no {name}" for name in types if name not in row]
    problems += [f"{where}: not a field: {name}" for name in row if name not in types]
    values = {name: _value(types[name], name, row[name], where, problems) for name in types if name in row}
    return kind(**values) if len(problems) == before else None


def _value(kind: Any, name: str, value: Any, where: str, problems: list[str]) -> Any:  # noqa: ANN401
    of = get_args(kind)
    if isinstance(value, dict) and isinstance(kind, type) and is_dataclass(kind):
        return _made(kind, value, f"{where}.{name}", problems)
    if isinstance(value, dict) and get_origin(kind) is Mapping:
        return {key: _value(of[1], f"{name}.{key}", each, where, problems) for key, each in value.items()}
    if isinstance(value, list) and get_origin(kind) is tuple and (of[-1] is ... or len(of) == len(value)):
        return tuple(_value(of[0], name, each, where, problems) for each in value)
    if not _is_a(kind, value):
        shown = kind.__name__ if isinstance(kind, type) and not of else kind
        problems.append(f"{where}: {name} is {value!r}, expected {shown}")
    elif value not in CHOICES.get(name, (value,)):
        problems.append(f"{where}: {name} is {value!r}, expected one of {', '.join(CHOICES[name])}")
    return value


def _is_a(kind: Any, value: Any) -> bool:  # noqa: ANN401
    """Whether ``value`` is a ``kind``: a whole number is a float too, and true is no number.

    None, which TOML does not have, stands for an ISA whose own problems are noted.
    """
    return value is None or type(value) is kind or (kind is float and type(value) is int)


def _contradictions(archs: Mapping[str, Arch]) -> Iterator[str]:
    numbers: dict[int, str] = {}
    for name, arch in archs.items():
        if (other := numbers.setdefault(arch.elf_machine, name)) != name:
            yield f"{GPUS.name}: {name} and {other} have one elf_machine"
        code = archs.get(arch.code_object)
        if code is None or code.code_object != code.name:
            found = f"{name}: code_object is {arch.code_object!r}"
            yield f"{GPUS.name}: {found}, expected an arch with code of its own"
        elif code.isa != arch.isa:
            yield f"{GPUS.name}: {name} runs the code of {code.name}, which has another ISA ({code.isa.name})"


def cpp_table(archs: Mapping[str, Arch]) -> str:
    """The text of ``archs.inc``."""
    blocks = [_block(arch) for arch in archs.values() if arch.code_object == arch.name]
    gpus = [f"FA_GPU({arch.name}, {arch.code_object})\n" for arch in archs.values()]
    return "\n".join(
        [HEAD, "#ifdef FA_ARCH", *blocks, "#endif\n", "#ifdef FA_GPU", "".join(gpus) + "#endif\n"]
    )


def _block(arch: Arch) -> str:
    lines = [f".{name} = {_cpp(name, _of(arch, name))}" for name in TRAITS]
    return f"FA_ARCH({arch.name},\n        " + ",\n        ".join(lines) + ")\n"


def _of(arch: Arch, name: str) -> int | bool | str:
    found: int | bool | str = getattr(arch if hasattr(arch, name) else arch.isa, name)
    return found


def _cpp(name: str, value: int | bool | str) -> str:  # noqa: FBT001
    if isinstance(value, str):
        return f"{ENUMERATORS[name]}::{value}" if name in ENUMERATORS else f'"{value}"'
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:#x}" if name in ("elf_machine", "buffer_word3") else str(value)


def main() -> None:
    """Write what C++ includes, or say that it is as it should be."""
    text, path = cpp_table(known_archs()), CHECKOUT / GENERATED
    changed = not path.exists() or path.read_text(encoding="utf-8") != text
    path.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{GENERATED}: {'written' if changed else 'nothing to change'}\n")


if __name__ == "__main__":
    main()
