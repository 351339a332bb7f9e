"""A wheel's provenance statement as a file: written after verify, checked in all parts."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from wheel_builder.audit import sbom as sbom_check
from wheel_builder.audit.candidates import audited
from wheel_builder.audit.rules import Device
from wheel_builder.audit.stage import open_subject, open_windows
from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import ProvenanceError, WheelFileError
from wheel_builder.base.store import Artifact, key_of, sha256_file
from wheel_builder.base.words import one_line
from wheel_builder.build import sbom
from wheel_builder.build.product import Product, read_product
from wheel_builder.build.shim import shim_of
from wheel_builder.build.source import read_remotes
from wheel_builder.files.device import fatbin
from wheel_builder.files.device.library import for_windows
from wheel_builder.files.wheels.candidates import has_candidates
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, WheelFile, read_wheel
from wheel_builder.matrix.model import LINUX, WINDOWS
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.provenance.check import ALL_IN_WORDS, Facts, provenance_problems, signature_words
from wheel_builder.provenance.commit import NO_SOURCES, read_tree
from wheel_builder.provenance.provenance import SOURCE, Provenance, candidates_digest, read_provenance
from wheel_builder.provenance.records import provenance_path, record_path, refuse_published
from wheel_builder.provenance.standing import commit_problem, standing_of
from wheel_builder.provenance.statement import Resource
from wheel_builder.provenance.verification import read_verification


def write_provenance(wheel: Path, provenance: Provenance) -> Path:
    """Write the statement next to ``wheel``, with the digest of its record. Returns its path.

    Raises ``PublishError`` for a wheel in an index.
    """
    refuse_published([wheel])
    record = record_path(wheel)
    if record.is_file():
        provenance = provenance.with_byproduct(
            Resource(name=record.name, digest={"sha256": sha256_file(record)})
        )
    path = provenance_path(wheel)
    ensure(path, provenance.to_json().encode())
    return path


def refresh_provenance(wheel: Path) -> None:
    """Update the digest of the record in the statement of ``wheel``, if there is a statement."""
    if provenance_path(wheel).is_file():
        write_provenance(wheel, read_provenance(provenance_path(wheel)))


def finished_at(artifact: Artifact) -> str:
    """When a stage's result was complete, in UTC."""
    seconds = (artifact.path / "manifest.json").stat().st_mtime
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def verify_provenance(wheel: Path, checkout: Path) -> str:
    """Check statement, file, record, SBOM and sources against each other. Returns the result in words.

    Raises ``ProvenanceError`` with every disagreement.
    """
    found, problems = _checked(wheel, checkout)
    if problems:
        title = f"{wheel.name} and its provenance do not agree"
        raise ProvenanceError(
            title, problems, advice="do not install it; fetch wheel and statement again, or build it"
        )
    lines = [
        f"agrees     {ALL_IN_WORDS}",
        f"commit     {found.commit}",
        f"lies on    {standing_of(checkout, found.commit).on}",
        f"built by   {one_line(found.run.builder)}, by its own word",
        signature_words(
            (path.name for path in wheel.parent.glob(f"{wheel.name}*")),
            load_matrix(checkout / "matrix.yaml").addresses.of_github,
        ),
        f"rebuild    scripts/wheel-builder {_again(wheel)}",
    ]
    return "\n".join(lines)


def _again(wheel: Path) -> str:
    if has_candidates(wheel):
        return "tuning-wheel --arch A --wheel WHEEL, at that commit"
    return "shim --to DIR WHEEL, at that commit" if shim_of(wheel) else f"rebuild {wheel}"


def require_provenance(wheels: Sequence[Path], checkout: Path) -> None:
    """``verify_provenance`` of each wheel before publication.

    Raises ``ProvenanceError`` with all disagreements of all wheels.
    """
    problems = [f"{wheel.name}: {one}" for wheel in wheels for one in _checked(wheel, checkout)[1]]
    if problems:
        title = "nothing was published: not every wheel agrees with its statement, record and commit"
        advice = (
            "build it from a commit without changes, verify it, and publish from a checkout with that commit"
        )
        raise ProvenanceError(title, problems, advice=advice)


def _checked(wheel: Path, checkout: Path) -> tuple[Provenance, list[str]]:
    found = read_provenance(provenance_path(wheel))
    try:
        content = read_wheel(wheel, max_mib=MAX_READ_MIB)
    except WheelFileError as error:
        # A changed file may be an unreadable wheel. The change is reported first.
        changed = found.subject_problems(wheel.name, sha256_file(wheel)) if wheel.is_file() else ()
        problems = [f"file: {problem}" for problem in changed]
        if not problems:
            raise
        return found, [*problems, *error.problems]
    return found, list(provenance_problems(found, facts_of(content, found, checkout)))


def product_of(wheel: Path, checkout: Path) -> Product:
    """The sources' part of ``wheel``: from its statement's commit, if it names one.

    Otherwise, and if ``checkout`` lacks the commit, the files of ``checkout`` as they are.
    """
    shim = shim_of(wheel)
    here = checkout / shim.folder if shim else checkout
    try:
        found = read_provenance(provenance_path(wheel))
    except ProvenanceError:
        return read_product(here)
    built_from_commit = not found.dependency(SOURCE).annotations.dirty
    tree = read_tree(checkout, found.commit) if built_from_commit else None
    product = tree.product if tree else None
    if tree and shim:
        product = tree.shims.get(shim.name, NO_SOURCES).product
    return product if isinstance(product, Product) else read_product(here)


def facts_of(wheel: WheelFile, found: Provenance, checkout: Path) -> Facts:
    """Collect the facts from the wheel, its files and the checkout."""
    record = record_path(wheel.path)
    tree = read_tree(checkout, found.commit, platform=WINDOWS if for_windows(wheel) else LINUX)
    code = code_in(wheel)
    return Facts(
        wheel=wheel,
        archs=frozenset(code),
        sbom=sbom_check.find(wheel.files, wheel.dist_info).get(sbom.FILE, b""),
        record_name=record.name,
        record_sha256=sha256_file(record) if record.is_file() else "",
        record=_subject_of(record),
        tree=tree,
        code=code,
        remotes=read_remotes(checkout),
        now=datetime.now(UTC),
        of_commit="" if tree else commit_problem(checkout, found.commit),
    )


def code_in(wheel: WheelFile) -> Mapping[str, str]:
    """For each arch one sha256 over its code objects in a wheel. Raises ``AuditError`` for bad candidates."""
    if has_candidates(wheel.path):
        found = audited(wheel)
        return {found.listed.arch: candidates_digest(found.digests)}
    return code_digests((open_windows if for_windows(wheel) else open_subject)(wheel).devices)


def code_digests(devices: Sequence[Device]) -> Mapping[str, str]:
    """For each arch the ``code_digest`` of its code objects, one kernel each."""
    files: dict[str, dict[str, str]] = {}
    for device in devices:
        name = "".join(fatbin.kernels(device.elf))
        files.setdefault(device.code.arch, {})[f"{name}.hsaco"] = hashlib.sha256(device.code.data).hexdigest()
    return {arch: key_of(found, length=64) for arch, found in files.items()}


def _subject_of(record: Path) -> str:
    try:
        return read_verification(record.read_bytes()).sha256
    except (OSError, ValueError):
        return ""
