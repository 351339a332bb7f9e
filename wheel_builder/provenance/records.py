"""A wheel's verification record and provenance statement: files next to it.

A record travels with its wheel, so a wheel verified on one machine can be published from another. It names
the wheel by its sha256. ``publish`` requires both files.

``serves`` in a record lists the ROCm versions whose runtimes loaded the wheel, in addition to the build's
own. The index offers the wheel for them too. The wheel finds HIP in the process instead of linking
libamdhip64, so the list is limited by:

- the runtime must have every function called by the library: hipGetDevicePropertiesR0600 came with 6.0
- its loader must support the code objects' version, chosen by the compiler (6 in today's wheels)
- a supported torch release must exist for it.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import ProvenanceError, PublishError
from wheel_builder.base.plain import read_plain
from wheel_builder.base.store import sha256_file
from wheel_builder.base.words import visible
from wheel_builder.files.wheels.sidecars import ATTACHMENTS, RECORD_SUFFIX
from wheel_builder.images.wheel_tests import TIERS
from wheel_builder.matrix.model import Public
from wheel_builder.provenance.provenance import parse_provenance
from wheel_builder.provenance.verification import EMULATED, Verification, read_verification

SUFFIX = ATTACHMENTS["verification"]
PROVENANCE_SUFFIX = ATTACHMENTS["provenance"]
VERIFY_FIRST = (
    "verify it first: scripts/wheel-builder verify WHEEL; only a build writes the statement: "
    "scripts/wheel-builder wheel"
)


@dataclass(frozen=True)
class Demand:
    """Requirements for the record of a published wheel.

    It must pass for each of ``archs``. ``others`` of the wheel's archs may be unexecuted. Further archs are
    refused. ``how`` are the only words allowed for executed archs, ``not_executed`` for the others. It must
    count launches of exactly ``kernels``, the wheel's own by arch. ``serves`` are the allowed ROCm versions.
    ``candidates``: the digests of code objects, by kernel and row, that it must have executed, and no others.
    """

    archs: Collection[str]
    serves: Collection[str] = ()
    others: Collection[str] = ()
    how: str = EMULATED
    not_executed: str = ""
    kernels: Mapping[str, Collection[str]] = field(default_factory=dict)
    candidates: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def record_path(wheel: Path) -> Path:
    """The path of the record of ``wheel``."""
    return wheel.with_name(wheel.name + SUFFIX)


def provenance_path(wheel: Path) -> Path:
    """The path of the provenance statement of ``wheel``, even if there is none."""
    return wheel.with_name(wheel.name + PROVENANCE_SUFFIX)


def write_record(wheel: Path, record: Mapping[str, Any]) -> Path:
    """Write ``record`` next to ``wheel``, atomically. Returns its path.

    Raises ``PublishError`` for a wheel in an index.
    """
    refuse_published([wheel])
    path = record_path(wheel)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    aside.replace(path)
    return path


def refuse_published(wheels: Collection[Path]) -> None:
    """Raise ``PublishError`` if one of ``wheels`` lies in an index, where its files must not change."""
    problems = [
        f"{wheel} is a file of an index"
        for wheel in map(Path.absolute, wheels)
        if wheel.parent.parent.name == "simple" and wheel.with_name(wheel.name + RECORD_SUFFIX).exists()
    ]
    if problems:
        title = "files published beside a wheel never change; nothing was written"
        raise PublishError(title, problems, advice="copy the wheel to a separate folder and use it there")


def require_attachments(wheels: Mapping[Path, Demand]) -> None:
    """Raise ``PublishError`` unless each wheel has a passing record and a statement about it.

    All problems are reported at once.
    """
    problems = [
        problem
        for wheel, demand in wheels.items()
        for problem in (*record_problems(wheel, demand), *missing_statement(wheel))
    ]
    if problems:
        title = (
            "nothing was published: not every wheel has a passing verification record for each of its archs "
            "and a provenance statement"
        )
        raise PublishError(title, problems, advice=VERIFY_FIRST)


def require_served(wheels: Collection[Path], public: Public) -> None:
    """Raise ``PublishError`` unless each record serves every version of ``public``."""
    problems = [
        f"{wheel.name}: its record does not say that it serves ROCm {', '.join(missing)}"
        for wheel in wheels
        if (missing := [one for one in public.fits if one not in _served(wheel)])
    ]
    if problems:
        title = "nothing was published: the public wheel was not loaded under every runtime that it is for"
        advice = f"verify it again: scripts/wheel-builder verify --runtimes {','.join(public.runtimes)} WHEEL"
        raise PublishError(title, problems, advice=advice)


def _served(wheel: Path) -> list[str]:
    return read_verification(record_path(wheel).read_bytes()).serves


def missing_statement(wheel: Path) -> Iterator[str]:
    """Problems of the provenance statement of ``wheel``."""
    path, record = provenance_path(wheel), record_path(wheel)
    if not path.is_file():
        yield f"{wheel.name}: there is no {path.name} beside it"
        return
    recorded = sha256_file(record) if record.is_file() else ""
    yield from statement_problems(path.read_bytes(), wheel, sha256_file(wheel), recorded)


def statement_problems(data: bytes, wheel: Path, sha256: str, recorded: str) -> Iterator[str]:
    """Problems of ``data`` as a statement about ``wheel`` and its record, whose sha256 is ``recorded``."""
    name = provenance_path(wheel).name
    try:
        found = parse_provenance(data, name)
    except ProvenanceError as error:
        yield from (f"{name}: it is not a provenance statement ({problem})" for problem in error.problems)
        return
    yield from (f"{name}: {problem}" for problem in found.subject_problems(wheel.name, sha256))
    said = found.byproduct(record_path(wheel).name).digest.get("sha256", "")
    if recorded and said != recorded:
        yield f"{name}: it names a record with sha256 {said or 'none'}, but the record's is {recorded}"


def record_problems(wheel: Path, demand: Demand) -> Iterator[str]:
    """Problems of the record of ``wheel``."""
    path = record_path(wheel)
    try:
        record = read_verification(read_plain(path))
    except FileNotFoundError:
        yield f"{wheel.name}: there is no {path.name} beside it"
        return
    except (OSError, ValueError) as error:
        yield f"{path.name}: it is not a verification record ({error})"
        return
    if record.sha256 != (digest := sha256_file(wheel)):
        yield f"{path.name}: it is about a wheel with sha256 {record.sha256}, but the wheel's is {digest}"
        return
    if record.wheel not in ("", wheel.name):
        yield f"{path.name}: it is about {visible(record.wheel)}, but the wheel is {wheel.name}"
    if unknown := sorted(set(record.serves) - set(demand.serves)):
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        known = ", ".join(demand.serves) or "none, it was loaded under no runtime"
        yield f"{path.name}: serves has ROCm {unknown[0]!r}{more}; known: {known}"
    yield from (f"{path.name}: {problem}" for problem in record.gpu_problems())
    yield from (f"{wheel.name}: {one}" for arch in demand.archs for one in arch_problems(arch, record))
    yield from (f"{wheel.name}: {one}" for arch in demand.others for one in _other_problems(arch, record))
    yield from (f"{wheel.name}: {one}" for one in _tier_problems(record))
    yield from (f"{path.name}: {problem}" for problem in _word_problems(record, demand))
    yield from (f"{path.name}: {problem}" for problem in _launch_problems(record, demand))
    yield from (f"{path.name}: {problem}" for problem in candidate_problems(record, demand))


def arch_problems(arch: str, record: Verification) -> list[str]:
    """Reasons why a record does not vouch for ``arch``."""
    if arch not in record.archs:
        return [f"{arch} was not verified"]
    return [
        f"{arch} {problem}" if problem.startswith("did not pass") else f"{arch}: {problem}"
        for problem in record.archs[arch].problems()
    ]


def _tier_problems(record: Verification) -> Iterator[str]:
    """Archs that passed fewer tests than a release runs. Records of the former reduced suite name no tier."""
    less = [arch for arch, shown in record.archs.items() if shown.passed and shown.tier not in TIERS]
    if less:
        expected = " or ".join(TIERS)
        yield (
            f"{', '.join(map(visible, less))}: the record does not say that all tests of a release passed "
            f"(tier, expected {expected}); verify it again"
        )


def _other_problems(arch: str, record: Verification) -> list[str]:
    """Problems of an arch that may be unexecuted. If executed, it must have passed."""
    shown = record.archs.get(arch)
    executed = shown is None or shown.passed or any(shown.launches.values()) or shown.findings
    return arch_problems(arch, record) if executed else []


def _word_problems(record: Verification, demand: Demand) -> Iterator[str]:
    """Unproven claims of a record that pages would show."""
    known = (*demand.archs, *demand.others)
    for arch, shown in record.archs.items():
        expected = demand.how if shown.passed else demand.not_executed
        if arch not in known:
            expected = ", ".join(known) or "none"
            yield f"it is about {visible(arch)}, but the wheel lacks its code; expected {expected}"
        elif expected and shown.numerics != expected:  # with no claim, it did not pass
            yield f"{arch}: it says {visible(shown.numerics)!r}, expected {expected!r}"


def _launch_problems(record: Verification, demand: Demand) -> Iterator[str]:
    """Kernels counted by the record and missing in the wheel, and the reverse."""
    for arch, shown in record.archs.items():
        own = set(demand.kernels.get(arch, ()))
        if not own or not shown.passed:
            continue
        for what, counted in (("launches", shown.launches), ("instances", shown.instances)):
            if strange := sorted(counted.keys() - own):
                yield f"{arch}: {what} has {visible(strange[0])}, which the wheel has not for that arch"
        if missing := sorted(name for name in own if not shown.launches.get(name)):
            yield f"{arch}: {missing[0]} was never launched; expected all {len(own)} kernels of the wheel"


def candidate_problems(record: Verification, demand: Demand) -> Iterator[str]:
    """Candidates that were not executed with right results, or that are not in the wheel."""
    said = {(name, row): each for name, rows in record.candidates.items() for row, each in rows.items()}
    held = {(name, row): sha for name, rows in demand.candidates.items() for row, sha in rows.items()}
    for name, row in sorted(said.keys() - held.keys()):
        yield f"{visible(name)}, row {visible(row)}: the wheel has no such candidate"
    for (name, row), sha256 in held.items():
        if (each := said.get((name, row))) is None:
            yield f"{name}, row {row}: it was not executed"
        elif each.sha256 != sha256:
            found = f"code with sha256 {visible(each.sha256)} was executed, but the wheel's has {sha256}"
            yield f"{name}, row {row}: {found}"
        else:
            yield from (f"{name}, row {row}: {visible(problem)}" for problem in each.problems())
