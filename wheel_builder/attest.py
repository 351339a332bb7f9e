"""A wheel's provenance statement as a file: writing it after verify, and checking all that it says."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from wheel_builder import sbom, sbom_check
from wheel_builder.durable import ensure
from wheel_builder.errors import ProvenanceError
from wheel_builder.provenance import Provenance, Resource, read_provenance
from wheel_builder.provenance_check import ALL_IN_WORDS, Facts, provenance_problems, signature_words
from wheel_builder.records import provenance_path, record_path, refuse_published
from wheel_builder.source import read_tree
from wheel_builder.stages.audit import open_subject
from wheel_builder.store import Artifact, sha256_file
from wheel_builder.wheelfile import MAX_READ_MIB, WheelFile, read_wheel


def write_provenance(wheel: Path, provenance: Provenance) -> Path:
    """Put the statement beside ``wheel``, with the digest of the record that lies there; its path.

    Raises ``PublishError`` for a wheel in an index.
    """
    refuse_published([wheel])
    record = record_path(wheel)
    if record.is_file():
        provenance = provenance.with_byproduct(Resource(record.name, {"sha256": sha256_file(record)}))
    path = provenance_path(wheel)
    ensure(path, provenance.to_json().encode())
    return path


def refresh_provenance(wheel: Path) -> None:
    """Let the statement beside ``wheel``, if there is one, name the record that is there now."""
    if provenance_path(wheel).is_file():
        write_provenance(wheel, read_provenance(provenance_path(wheel)))


def finished_at(artifact: Artifact) -> str:
    """When a stage's result was complete, in UTC."""
    seconds = (artifact.path / "manifest.json").stat().st_mtime
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def verify_provenance(wheel: Path, checkout: Path) -> str:
    """Check statement, file, record, SBOM and sources against each other; what was shown, in words.

    Raises ``ProvenanceError`` with everything that does not agree.
    """
    found = read_provenance(provenance_path(wheel))
    content = read_wheel(wheel, max_mib=MAX_READ_MIB)
    problems = list(provenance_problems(found, facts_of(content, found, checkout)))
    if problems:
        title = f"{wheel.name} and its provenance do not agree"
        raise ProvenanceError(
            title, problems, advice="do not install it; fetch wheel and statement again, or build it"
        )
    lines = [
        f"agrees     {ALL_IN_WORDS}",
        f"commit     {found.commit}",
        f"built by   {found.run.builder}, by its own word",
        signature_words(path.name for path in wheel.parent.glob(f"{wheel.name}*")),
        f"rebuild    python -m wheel_builder rebuild {wheel}",
    ]
    return "\n".join(lines)


def facts_of(wheel: WheelFile, found: Provenance, checkout: Path) -> Facts:
    """What the wheel, the files beside it and the checkout say."""
    record = record_path(wheel.path)
    return Facts(
        name=wheel.path.name,
        sha256=wheel.sha256,
        version=str(wheel.version),
        archs=frozenset(device.code.arch for device in open_subject(wheel).devices),
        sbom=_read_sbom(wheel),
        record_name=record.name,
        record_sha256=sha256_file(record) if record.is_file() else "",
        record=_subject_of(record),
        tree=read_tree(checkout, found.commit),
    )


def _read_sbom(wheel: WheelFile) -> dict[str, Any] | None:
    try:
        return sbom_check.read(sbom_check.find(wheel.files, wheel.dist_info)[sbom.FILE])
    except (KeyError, ValueError):
        return None


def _subject_of(record: Path) -> str:
    try:
        return str(from_json(record.read_bytes())["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
