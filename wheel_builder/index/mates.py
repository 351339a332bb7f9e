"""The files of one version for several platforms: installers and people treat them as one release.

pip asks each file for its METADATA. uv and poetry read the METADATA of one file and use it for every
platform.
So all files of a version have equal METADATA, and are built from the same sources as far as statements tell.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from wheel_builder.base.errors import ProvenanceError
from wheel_builder.files.wheels.sidecars import ATTACHMENTS
from wheel_builder.index.folder import NewFile, beside, read_contents, sha256, simple_of
from wheel_builder.index.offers import build_of
from wheel_builder.provenance.provenance import SOURCE_TREE, parse_provenance

UNREADABLE = ""  # such a statement proves nothing; `index verify` reports its problems


@dataclass(frozen=True)
class Made:
    """A file, its METADATA and its sources, "" if no statement names them."""

    filename: str
    project: str
    version: str
    metadata: str
    sources: str

    @property
    def release(self) -> tuple[object, ...]:
        """The key shared with its mates. Later builds of a version are other releases."""
        return release_of(self.project, self.version, self.filename)


def release_of(project: str, version: str, filename: str) -> tuple[object, ...]:
    """The key shared by a file and its mates."""
    return project, version, build_of(filename)


def conflicts(new: Iterable[Made], others: Iterable[Made]) -> Mapping[str, tuple[str, ...]]:
    """By the names of ``others``, differences in the making from ``new``."""
    found: dict[str, tuple[str, ...]] = {}
    for each, other in product(new, others):
        if other.filename != each.filename and other.release == each.release:
            found[other.filename] = (*found.get(other.filename, ()), *_differences(each, other))
    return {name: problems for name, problems in found.items() if problems}


def in_index(root: Path, new: Iterable[Made]) -> Iterator[Made]:
    """The published files of the releases of ``new``. Only their statements are read."""
    wanted = {each.release for each in new}
    for home, projects in read_contents(root).items():
        for project, entries in projects.items():
            for record in (entry.record for entry in entries):
                if release_of(project, record.version, record.filename) not in wanted:
                    continue
                statement = beside(
                    simple_of(root, home) / project / record.filename, ATTACHMENTS["provenance"]
                )
                data = statement.read_bytes() if statement.is_file() else b""
                yield Made(record.filename, project, record.version, record.metadata_sha256, _sources(data))


def of_file(file: NewFile) -> Made:
    """A file to be published."""
    sources = _sources(file.attachments.get("provenance", b""))
    return Made(file.filename, file.project, file.version, sha256(file.metadata), sources)


def _sources(statement: bytes) -> str:
    try:
        found = parse_provenance(statement, "statement")
    except ProvenanceError:
        return UNREADABLE
    return found.dependency(SOURCE_TREE).digest.get("sha256", UNREADABLE)


def _differences(new: Made, other: Made) -> Iterator[str]:
    if new.metadata != other.metadata:
        yield (
            f"{new.filename}: its METADATA has sha256 {new.metadata}, but that of {other.filename}, of the "
            f"same version, has {other.metadata}"
        )
    if new.sources and other.sources and new.sources != other.sources:
        yield (
            f"{new.filename}: it is of sources with sha256 {new.sources}, but {other.filename}, of the same "
            f"version, of {other.sources}"
        )
