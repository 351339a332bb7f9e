"""The index's data about a wheel, made from the wheel and its files.

Publishing writes it, and checks of an index compute it again: no part is taken on trust.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from packaging.utils import canonicalize_name

from wheel_builder.audit.candidates import audited
from wheel_builder.base.errors import AuditError
from wheel_builder.build.shim import NAMES as SHIM_NAMES
from wheel_builder.files.wheels.candidates import has_candidates
from wheel_builder.files.wheels.wheelfile import (
    WheelFile,
    read_metadata,
    record_problems,
    wheel_text_problems,
)
from wheel_builder.index.entries import served_problems, text_problems
from wheel_builder.index.folder import NewFile, sha256
from wheel_builder.matrix.model import PROJECT, PUBLIC
from wheel_builder.provenance.records import (
    Demand,
    candidate_problems,
    provenance_path,
    record_path,
    statement_problems,
)
from wheel_builder.provenance.verification import read_verification


def described(wheel: WheelFile) -> tuple[NewFile, list[str]]:
    """A wheel as the index lists it, and its problems. Raises ``WheelFileError`` for its METADATA."""
    metadata = read_metadata(wheel)
    problems = [*wheel_text_problems(wheel), *record_problems(wheel)]
    if (canonicalize_name(metadata.name), metadata.version) != (wheel.name, wheel.version):
        problems.append(f"METADATA is about {metadata.name} {metadata.version}")
    attachments = dict(_attachments(wheel))
    if has_candidates(wheel.path):
        problems += _of_candidates(wheel, attachments.get("verification", b"{}"))
    serves: tuple[str, ...] = ()
    verified: dict[str, str] = {}
    if "verification" in attachments:
        serves, verified, faults = _verification(wheel, attachments["verification"])
        problems += faults
    if "provenance" in attachments:
        record = attachments.get("verification")
        recorded = sha256(record) if record is not None else ""
        problems += statement_problems(attachments["provenance"], wheel.path, wheel.sha256, recorded)
    file = NewFile(
        filename=wheel.path.name,
        project=wheel.name,
        version=str(wheel.version),
        requires_python=str(metadata.requires_python or ""),
        data=wheel.data,
        metadata=wheel.metadata_bytes,
        serves=serves,
        verified=verified,
        attachments=attachments,
    )
    return file, [*problems, *text_problems(file.to_record(datetime.now(UTC)))]


def misplaced(wheel: WheelFile, rocm: str) -> list[str]:
    """Why a wheel belongs to another index than that of ``rocm``. Only our wheels' versions show this."""
    label = wheel.version.local or ""
    public = (wheel.name == PROJECT or has_candidates(wheel.path)) and not label
    if wheel.name in SHIM_NAMES or not (public or label.startswith("rocm")):
        return []
    if rocm == (PUBLIC if public else label.removeprefix("rocm")):
        return []
    here = rocm if rocm == PUBLIC else f"rocm{rocm}"
    return [f"it is for {label or 'every ROCm version'}, but this is the index of {here}"]


def _of_candidates(wheel: WheelFile, record: bytes) -> list[str]:
    """Problems of a distribution of candidates, and of its record: each of them was executed."""
    try:
        found = audited(wheel)
        verified = read_verification(record)
    except AuditError as error:
        return [*error.problems]
    except ValueError:
        return [f"there is no readable {record_path(wheel.path).name} beside it: no candidate was verified"]
    return [*candidate_problems(verified, Demand((), candidates=found.digests))]


def _attachments(wheel: WheelFile) -> Iterator[tuple[str, bytes]]:
    beside = (("verification", record_path(wheel.path)), ("provenance", provenance_path(wheel.path)))
    yield from ((kind, path.read_bytes()) for kind, path in beside if path.is_file())


def _verification(wheel: WheelFile, text: bytes) -> tuple[tuple[str, ...], dict[str, str], list[str]]:
    """From the record: the ROCm versions served, the result for each arch, and the record's problems."""
    name = record_path(wheel.path).name
    try:
        record = read_verification(text)
    except ValueError as error:
        return (), {}, [f"{name}: it is not a verification record ({error})"]
    serves = tuple(record.serves)
    problems = [f"{name}: {problem}" for problem in (*served_problems(serves), *record.gpu_problems())]
    if record.sha256 != wheel.sha256:
        said = record.sha256
        problems.append(f"{name}: it is about a wheel with sha256 {said}, but the wheel's is {wheel.sha256}")
    return serves, record.gpus, problems
