"""Adds a user's report of ``selftest`` to the tree, for its wheel."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from packaging.specifiers import SpecifierSet
from pydantic import BaseModel, TypeAdapter

from wheel_builder.base.errors import PublishError, WheelBuilderError
from wheel_builder.files.device.library import LIBRARY, WINDOWS_LIBRARY, device_code, for_windows, library_of
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, WheelFile, read_metadata, read_wheel
from wheel_builder.matrix.catalogue import Catalogue
from wheel_builder.matrix.gpus import device_problem, units_problem
from wheel_builder.matrix.hardware import (
    FOLDER,
    Report,
    counted_twice,
    parse_report,
    signed,
    signed_reports,
    to_json,
    visible_name,
)
from wheel_builder.matrix.reported import (
    begin_problem,
    platform_problem,
    python_problem,
    torch_floor_problem,
)
from wheel_builder.provenance.provenance import read_provenance
from wheel_builder.provenance.records import provenance_path
from wheel_builder.tables.archs import arch_named, code_of, known_products

TITLE = "the report was not taken"
# The calls made by selftest for each kernel of each arch, by number.
CALLS = "flash_attn_rocm/suite/corpus.json"


class _Like(BaseModel):
    """The corpus of an arch: the calls of the arch ``like``, with the differing kernels in ``kernels``."""

    like: str
    kernels: dict[str, list[int]]


# An arch may have the name of another one, whose calls it shares.
_CALLS = TypeAdapter(dict[str, _Like | dict[str, list[int]] | str])
# The ids of kernels' rows, by arch and kernel, with the compilers that have them.
ROW_IDS = "flash_attn_rocm/values/rows.json"
_ROW_IDS = TypeAdapter(dict[str, dict[str, list[tuple[int, str]]]])
ADVICE = "ask its sender to run selftest again, without options, on the wheel as it was published"


def add_report(
    file: Path,
    wheels: Iterable[Path],
    checkout: Path,
    *,
    catalogue: Catalogue,
    signed_off_by: str,
    now: datetime,
) -> Path:
    """Check a report against its wheel among ``wheels``, the wheel's statement, and ``catalogue``.

    Repeated reports are refused. Returns the path of the report in the tree.

    Raises ``PublishError`` with all problems, before it writes anything.
    """
    try:
        report = parse_report(file.read_bytes(), now)
        wheel = _wheel_of(report, wheels)
        found = signed(report, wheel.path.name, wheel.sha256, signed_off_by)
    except (OSError, ValueError) as error:
        raise PublishError(TITLE, [f"{file.name}: {error}"], advice=ADVICE) from error
    problems = [
        *_against(report, wheel, catalogue),
        *_against_wheel(report, wheel, catalogue.torch.floor),
        *filter(None, [counted_twice(report, signed_reports(checkout))]),
    ]
    if problems:
        raise PublishError(TITLE, [f"{file.name}: {problem}" for problem in problems], advice=ADVICE)
    data = to_json(found)
    path = checkout / FOLDER / f"{report.gfx}-{wheel.sha256[:12]}-{hashlib.sha256(data).hexdigest()[:8]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _wheel_of(report: Report, wheels: Iterable[Path]) -> WheelFile:
    paths = sorted(wheels)
    for path in paths:
        try:
            wheel = read_wheel(path, max_mib=MAX_READ_MIB)
            library = WINDOWS_LIBRARY if for_windows(wheel) else LIBRARY
            digest = hashlib.sha256(library_of(wheel, library)).hexdigest()
        except WheelBuilderError:
            continue  # another project's, or broken
        if digest == report.library_sha256:
            return wheel
    names = ", ".join(dict.fromkeys(path.name for path in paths)) or "none"
    message = f"no wheel has its library, sha256 {report.library_sha256}; looked at: {names}"
    raise ValueError(message)


def _calls_of(code: str, wheel: WheelFile) -> Mapping[str, int]:
    """The number of calls of each kernel in the wheel's suite. Raises ``KeyError`` and ``ValueError``."""
    every = _CALLS.validate_json(wheel.files[CALLS])
    found = every[code]
    own = found.kernels if isinstance(found, _Like) else {}
    shared = found.like if isinstance(found, _Like) else found
    numbers = every[shared] if isinstance(shared, str) else shared
    if not isinstance(numbers, dict):
        raise KeyError(code)
    return {name: len(each) for name, each in (numbers | own).items() if each}


def _against_wheel(report: Report, wheel: WheelFile, torch_floor: str) -> Iterator[str]:
    """Claims of the report that are impossible for the wheel."""
    requires = read_metadata(wheel).requires_python or SpecifierSet()
    yield from filter(
        None,
        (
            torch_floor_problem(report.torch, torch_floor),
            python_problem(report.python, requires),
            platform_problem(report.os, for_windows=for_windows(wheel)),
        ),
    )
    try:
        built = datetime.fromisoformat(read_provenance(provenance_path(wheel.path)).run.finished)
    except (WheelBuilderError, ValueError):
        yield f"time: no statement beside {wheel.path.name} says when it was built"
        return
    if built.tzinfo is None:
        yield f"time: the statement of {wheel.path.name} has no zone"
    elif problem := begin_problem(datetime.fromisoformat(report.time), report.seconds, built):
        yield problem


def _row_problems(report: Report, wheel: WheelFile, code: str) -> Iterator[str]:
    """Row ids that the wheel lacks for their kernel."""
    try:
        ids = _ROW_IDS.validate_json(wheel.files[ROW_IDS])[code]
    except (KeyError, ValueError):
        ids = {}
    for name, kernel in sorted(report.kernels.items()):
        if kernel.row and kernel.row not in [row for _, row in ids.get(name, [])]:
            yield f"kernels.{visible_name(name)}: its row in the wheel is not {kernel.row[:20]!r}"


def _against(report: Report, wheel: WheelFile, catalogue: Catalogue) -> Iterator[str]:
    """Contradictions of the report to the wheel, its suite and the table of GPUs."""
    if report.package != str(wheel.version):
        yield f"package: it says {report.package}, the wheel is {wheel.version}"
    code = code_of(report.gfx)
    if not any(each.gfx == code for each in device_code(wheel)):
        yield f"arch: the wheel has no code for {visible_name(report.gfx)}"
        return
    if problem := device_problem(report.device, report.gfx, catalogue.gpus):
        yield f"device: {problem}"
    elif problem := units_problem(
        report.device, report.compute_units, known_products(), arch_named(code).die_units
    ):
        yield problem
    try:
        calls = _calls_of(code, wheel)
    except (KeyError, ValueError):
        yield f"kernels: the wheel has no calls for {code} in {CALLS}"
        return
    if missing := sorted(calls.keys() - report.kernels.keys()):
        yield f"kernels: {len(missing)} of the wheel's were not run, such as {missing[0]}"
    if unknown := sorted(report.kernels.keys() - calls.keys()):
        yield f"kernels: the wheel's suite has no {visible_name(unknown[0])}"
    yield from _row_problems(report, wheel, code)
    for name in sorted(calls.keys() & report.kernels.keys()):
        if (found := report.kernels[name].calls) != calls[name]:
            yield f"kernels.{name}: expected the {calls[name]} calls of the wheel's suite, found {found}"
