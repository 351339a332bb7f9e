"""The wheel that a user's report is about, and claims of the report that are impossible for it."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from packaging.specifiers import SpecifierSet
from pydantic import TypeAdapter

from wheel_builder.base.errors import WheelBuilderError
from wheel_builder.files.device.library import LIBRARY, WINDOWS_LIBRARY, device_code, for_windows, library_of
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, WheelFile, read_metadata, read_wheel
from wheel_builder.matrix.catalogue import Catalogue
from wheel_builder.matrix.gpus import device_problem, units_problem
from wheel_builder.matrix.machine_run import MachineRun, visible_name
from wheel_builder.matrix.reported import (
    begin_problem,
    platform_problem,
    python_problem,
    torch_floor_problem,
)
from wheel_builder.provenance.provenance import read_provenance
from wheel_builder.provenance.records import provenance_path
from wheel_builder.tables.archs import arch_named, code_of, known_products

# The ids of kernels' rows, by arch and kernel, with the compilers that have them.
ROW_IDS = "flash_attn_rocm/values/rows.json"
_ROW_IDS = TypeAdapter(dict[str, dict[str, list[tuple[int, str]]]])


def wheel_of(run: MachineRun, wheels: Iterable[Path]) -> WheelFile:
    """The wheel with the library of a run. Raises ``ValueError`` without one."""
    paths = sorted(wheels)
    for path in paths:
        try:
            wheel = read_wheel(path, max_mib=MAX_READ_MIB)
            library = WINDOWS_LIBRARY if for_windows(wheel) else LIBRARY
            digest = hashlib.sha256(library_of(wheel, library)).hexdigest()
        except WheelBuilderError:
            continue  # another project's, or broken
        if digest == run.library_sha256:
            return wheel
    names = ", ".join(dict.fromkeys(path.name for path in paths)) or "none"
    message = f"no wheel has its library, sha256 {run.library_sha256}; looked at: {names}"
    raise ValueError(message)


def runs_on(run: MachineRun, wheel: WheelFile) -> bool:
    """Whether the wheel has code for the GPU of a run."""
    return any(each.gfx == code_of(run.gfx) for each in device_code(wheel))


def row_ids(wheel: WheelFile, code: str) -> Mapping[str, Sequence[str]]:
    """The ids of a wheel's rows for an arch, by kernel: of all compilers. Older wheels have none."""
    try:
        found = _ROW_IDS.validate_json(wheel.files[ROW_IDS])[code]
    except (KeyError, ValueError):
        return {}
    return {name: [row for _, row in pairs] for name, pairs in found.items()}


def wheel_problems(run: MachineRun, wheel: WheelFile, catalogue: Catalogue) -> Iterator[str]:
    """Contradictions to the wheel, its statement and the table of GPUs."""
    if run.package != str(wheel.version):
        yield f"package: it says {run.package}, the wheel is {wheel.version}"
    if not runs_on(run, wheel):
        yield f"arch: the wheel has no code for {visible_name(run.gfx)}"
    elif problem := device_problem(run.device, run.gfx, catalogue.gpus):
        yield f"device: {problem}"
    else:
        die_units = arch_named(code_of(run.gfx)).die_units
        yield from filter(None, [units_problem(run.device, run.compute_units, known_products(), die_units)])
    yield from _software_problems(run, wheel, catalogue.torch.floor)


def _software_problems(run: MachineRun, wheel: WheelFile, torch_floor: str) -> Iterator[str]:
    requires = read_metadata(wheel).requires_python or SpecifierSet()
    yield from filter(
        None,
        (
            torch_floor_problem(run.torch, torch_floor),
            python_problem(run.python, requires),
            platform_problem(run.os, for_windows=for_windows(wheel)),
        ),
    )
    try:
        built = datetime.fromisoformat(read_provenance(provenance_path(wheel.path)).run.finished)
    except (WheelBuilderError, ValueError):
        yield f"time: no statement beside {wheel.path.name} says when it was built"
        return
    if built.tzinfo is None:
        yield f"time: the statement of {wheel.path.name} has no zone"
    elif problem := begin_problem(datetime.fromisoformat(run.time), run.seconds, built):
        yield problem
