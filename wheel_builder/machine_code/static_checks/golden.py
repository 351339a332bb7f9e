"""The golden file of each kernel's reviewed resources, and the differences from it.

It has only figures that can refuse a wheel, once for all ROCm versions that agree. ``updated`` rewrites it,
and people review the diff.
"""

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from wheel_builder.base.errors import DeviceCodeError
from wheel_builder.machine_code.static_checks.findings import Finding

CHECK = "golden"
GOLDEN = Path("wheel_builder/machine_code/static_checks/golden.toml")
HEADER = """\
# Reviewed resources of a wheel's kernels. A wheel is refused for fewer waves, more spilled registers or more
# scratch memory. `scripts/wheel-builder verify --update WHEEL` writes this file: review the difference.
# A table is for one arch and all ROCm versions (their compilers) with equal figures.
#   occupancy  most waves on a SIMD, by registers, LDS and workgroup size
#   *_spills, scratch_bytes  of kernels with registers in memory. All others have none
"""


@dataclass(frozen=True)
class Entry:
    """One kernel: registers, spilled registers, bytes, waves per SIMD, and number of matrix instructions."""

    vgpr: int
    agpr: int
    sgpr: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int
    lds_bytes: int
    code_bytes: int
    occupancy: int
    matrix: int


@dataclass(frozen=True)
class Limits:
    """Limits of one kernel: minimum waves per SIMD, maximum spilled registers and bytes."""

    occupancy: int
    vgpr_spills: int = 0
    sgpr_spills: int = 0
    scratch_bytes: int = 0


Archs = Mapping[str, Mapping[str, Entry]]
Reviewed = Mapping[str, Mapping[str, Limits]]
Name = Literal["occupancy", "vgpr_spills", "sgpr_spills", "scratch_bytes"]
NAMES = tuple(field.name for field in fields(Limits))
HEAD_DIM = re.compile(r"(\w+)_(d\d+)")
_Count = Annotated[int, Field(strict=True, gt=0)]
_Figures = dict[Name, _Count | dict[str, _Count]]  # by head dim, if there are some
_FILE = TypeAdapter(dict[str, dict[str, dict[str, _Figures]]])  # arch, ROCm versions, kernel without head dim


def parse_golden(text: str) -> Mapping[str, Reviewed]:
    """ROCm version -> arch -> kernel -> limits. Raises ``DeviceCodeError`` with all problems."""
    try:
        file = _FILE.validate_python(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise _wrong([str(error)]) from error
    except ValidationError as error:
        raise _wrong(
            f"{' '.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()
        ) from error
    found: dict[str, dict[str, dict[str, dict[str, int]]]] = {}
    problems = []
    for arch, versions, kernel, name, value in _rows(file):
        for rocm in versions.split():
            own = found.setdefault(rocm, {}).setdefault(arch, {}).setdefault(kernel, {})
            if own.setdefault(name, value) != value:
                problems.append(f"{arch} {rocm} {kernel}: {name} is {own[name]} and {value}")
    problems += [
        f"{arch} {rocm} {kernel}: no occupancy"
        for rocm, archs in found.items()
        for arch, kernels in archs.items()
        for kernel, own in kernels.items()
        if "occupancy" not in own
    ]
    if problems:
        raise _wrong(problems)
    return {
        rocm: {
            arch: {kernel: Limits(**own) for kernel, own in kernels.items()}
            for arch, kernels in archs.items()
        }
        for rocm, archs in found.items()
    }


def _rows(
    file: Mapping[str, Mapping[str, Mapping[str, _Figures]]],
) -> Iterator[tuple[str, str, str, str, int]]:
    """Arch, ROCm versions, kernel, name and value of each figure."""
    for arch, tables in file.items():
        for versions, kernels in tables.items():
            for kernel, figures in kernels.items():
                for name, value in figures.items():
                    if isinstance(value, int):
                        yield arch, versions, kernel, name, value
                    else:
                        yield from (
                            (arch, versions, f"{kernel}_{dim}", name, own) for dim, own in value.items()
                        )


def _wrong(problems: Iterable[str]) -> DeviceCodeError:
    advice = "restore it, or rewrite it with --update"
    return DeviceCodeError(f"{GOLDEN.name} is not right", [*problems], advice=advice)


def differences(golden: Reviewed, found: Archs) -> tuple[Finding, ...]:
    """The differences, for the archs in ``found``. Other archs of ``golden`` are ignored."""
    return tuple(
        finding
        for arch, kernels in sorted(found.items())
        for kernel in sorted(kernels.keys() | golden.get(arch, {}).keys())
        for finding in _differences(arch, kernel, golden.get(arch, {}).get(kernel), kernels.get(kernel))
    )


def limits_of(entry: Entry) -> Limits:
    """The limits of a kernel reviewed with ``entry``."""
    return Limits(**{name: getattr(entry, name) for name in NAMES})


def updated(golden: Mapping[str, Reviewed], rocm: str, found: Archs) -> str:
    """The file's new text: found figures replace those of the same version and arch."""
    own = {
        arch: {name: limits_of(entry) for name, entry in kernels.items()} for arch, kernels in found.items()
    }
    everything = {**golden, rocm: {**golden.get(rocm, {}), **own}}
    lines = [HEADER]
    for arch in sorted({arch for archs in everything.values() for arch in archs}):
        tables = _tables({version: archs[arch] for version, archs in everything.items() if arch in archs})
        for versions, rows in sorted(tables.items()):
            lines += [f'[{arch}."{versions}"]', *(_line(*row) for row in sorted(rows.items())), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


Row = tuple[str, str]  # a kernel without its head dim, and a figure's name


def _tables(golden: Mapping[str, Mapping[str, Limits]]) -> Mapping[str, Mapping[Row, Mapping[str, int]]]:
    """Of one arch: versions that agree -> row -> head dim, or nothing, -> value."""
    agreeing: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    for version, kernels in sorted(golden.items()):
        for kernel, limits in kernels.items():
            for name, value in asdict(limits).items():
                if value:
                    agreeing[kernel, name, value].append(version)
    tables: dict[str, dict[Row, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for (kernel, name, value), versions in agreeing.items():
        of_dim = HEAD_DIM.fullmatch(kernel)
        family, dim = of_dim.groups() if of_dim else (kernel, "")
        tables[" ".join(versions)][family, name][dim] = value
    return tables


def _line(row: Row, values: Mapping[str, int]) -> str:
    by_size = sorted(values.items(), key=lambda value: (len(value[0]), value))
    cells = ", ".join(f"{dim} = {value}" for dim, value in by_size)
    return f"{'.'.join(row)} = {values.get('', f'{{{cells}}}')}"


def _differences(arch: str, kernel: str, old: Limits | None, new: Entry | None) -> Iterator[Finding]:
    if old is None:
        yield Finding(
            CHECK, arch, kernel, "not in the golden file; review its resources and run with --update"
        )
    elif new is None:
        yield Finding(CHECK, arch, kernel, "in the golden file, but the kernel does not exist")
    elif changes := [
        (name, getattr(old, name), getattr(new, name))
        for name in NAMES
        if getattr(old, name) != getattr(new, name)
    ]:
        text = ", ".join(f"{name} {before} -> {after}" for name, before, after in changes)
        worse = any(
            after < before if name == "occupancy" else after > before for name, before, after in changes
        )
        yield Finding(CHECK, arch, kernel, text, fails=worse)
