"""A static package index: one folder per ROCm version, pages made from append-only records.

    <root>/rocm7.2/simple/index.html, index.json                the projects
    <root>/rocm7.2/simple/<project>/index.html, index.json      its files
    <root>/rocm7.2/simple/<project>/<file>.whl                  a wheel
                                    <file>.whl.metadata         its METADATA (PEP 658)
                                    <file>.whl.record.json      the facts about it; never changed
                                    <file>.whl.yanked.json      that it is yanked, when and why

A file is published when its record is there; pages say what the records say.  Everything is written
aside and renamed, in the order wheel, metadata, record, pages of the project, pages of the root: a
kill at any moment leaves pages whose links hold, and publishing again completes the rest.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from packaging.version import Version

from wheel_builder.errors import PublishError
from wheel_builder.index_pages import Entry, Record, json_bytes, project_pages, root_pages

METADATA_SUFFIX = ".metadata"
RECORD_SUFFIX = ".record.json"
YANK_SUFFIX = ".yanked.json"
PART_SUFFIX = ".part"
RETRY = "publish the same wheels again: it completes what is missing and changes nothing else"


@dataclass(frozen=True)
class NewFile:
    """A wheel to be published, with its METADATA."""

    filename: str
    project: str
    version: str
    requires_python: str
    data: bytes
    metadata: bytes

    @property
    def sha256(self) -> str:
        return _sha256(self.data)

    def to_record(self, now: datetime) -> Record:
        return Record(
            filename=self.filename,
            project=self.project,
            version=self.version,
            requires_python=self.requires_python,
            size=len(self.data),
            sha256=self.sha256,
            metadata_sha256=_sha256(self.metadata),
            upload_time=now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        )


def folder_of(root: Path, rocm: str) -> Path:
    """The folder that holds ROCm ``rocm``'s index."""
    return root / f"rocm{rocm}"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other publishers out of ``folder``; waits for one that is at work."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def add_file(simple: Path, file: NewFile, now: datetime) -> bool:
    """Publish ``file``; False when it was there.  The caller holds the lock and knows the name is free."""
    project = simple / file.project
    project.mkdir(parents=True, exist_ok=True)
    record = project / f"{file.filename}{RECORD_SUFFIX}"
    is_new = not record.exists()
    _ensure(project / file.filename, file.data)
    _ensure(project / f"{file.filename}{METADATA_SUFFIX}", file.metadata)
    if is_new:
        _ensure(record, json_bytes(asdict(file.to_record(now))))
    return is_new


def yank(root: Path, rocm: str, filename: str, reason: str, *, now: datetime) -> None:
    """Tell installers to leave a published file alone unless it is pinned (PEP 592); it stays where it is."""
    simple = folder_of(root, rocm) / "simple"
    with locked(simple.parent):
        records = [
            path for path in simple.glob(f"*/*{RECORD_SUFFIX}") if path.name == filename + RECORD_SUFFIX
        ]
        if not records:
            title = f"{filename} cannot be yanked"
            problem = f"no such file in the index of ROCm {rocm}"
            raise PublishError(title, [problem], advice=f"see the names in {simple}")
        mark = records[0].with_name(filename + YANK_SUFFIX)
        if not mark.exists():
            _ensure(mark, json_bytes({"reason": reason, "time": now.astimezone(UTC).isoformat()}))
        write_pages(simple)


def write_pages(simple: Path) -> None:
    """Make every page say what the records say; the caller holds the lock."""
    projects = read_projects(simple)
    for project, entries in projects.items():
        for name, page in project_pages(project, entries).items():
            _ensure(simple / project / name, page)
    for name, page in root_pages(projects).items():
        _ensure(simple / name, page)


def remove_parts(simple: Path) -> None:
    """Remove what an interrupted publisher was writing aside; the caller holds the lock."""
    for part in simple.rglob(f".*{PART_SUFFIX}"):
        part.unlink()


def read_projects(simple: Path) -> dict[str, tuple[Entry, ...]]:
    """All published files by project, oldest version first; raises ``PublishError`` for damaged records."""
    projects: dict[str, list[Entry]] = {}
    problems = []
    for path in sorted(simple.glob(f"*/*{RECORD_SUFFIX}")):
        try:
            entry = _read_entry(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            problems.append(f"{path}: {error}")
        else:
            projects.setdefault(path.parent.name, []).append(entry)
    if problems:
        title = f"{simple}: records cannot be read"
        raise PublishError(title, problems, advice="restore these files from a copy of the index")
    return {
        project: tuple(sorted(entries, key=lambda e: (Version(e.record.version), e.record.filename)))
        for project, entries in sorted(projects.items())
    }


def _read_entry(path: Path) -> Entry:
    record = Record(**json.loads(path.read_text(encoding="utf-8")))
    for field, kind in Record.__annotations__.items():
        if not isinstance(value := getattr(record, field), kind):
            message = f"{field} is {value!r}, expected {kind.__name__}"
            raise ValueError(message)  # noqa: TRY004
    if (record.project, f"{record.filename}{RECORD_SUFFIX}") != (path.parent.name, path.name):
        message = f"it is about {record.project}/{record.filename}"
        raise ValueError(message)
    Version(record.version)
    mark = path.with_name(record.filename + YANK_SUFFIX)
    return Entry(record, str(json.loads(mark.read_bytes())["reason"]) if mark.exists() else None)


# Check


def verify_index(folder: Path) -> tuple[str, ...]:
    """Hash everything in one ROCm version's folder; each fault in words with what to do, () when sound."""
    simple = folder / "simple"
    if not simple.is_dir():
        return (f"{simple}: there is no index; publish a wheel first",)
    try:
        projects = read_projects(simple)
    except PublishError as error:
        return tuple(f"{problem}; {error.advice}" for problem in error.problems)
    return tuple(_faults(simple, projects))


def _faults(simple: Path, projects: Mapping[str, Sequence[Entry]]) -> Iterator[str]:
    known = {simple / name for name in root_pages(projects)}
    yield from _page_faults(simple, root_pages(projects))
    for project, entries in projects.items():
        pages = project_pages(project, entries)
        known |= {simple / project / name for name in pages}
        yield from _page_faults(simple / project, pages)
        for entry in entries:
            record, path = entry.record, simple / project / entry.record.filename
            known |= {
                path,
                *(path.with_name(path.name + s) for s in (METADATA_SUFFIX, RECORD_SUFFIX, YANK_SUFFIX)),
            }
            yield from _hash_faults(path, record.sha256)
            yield from _hash_faults(path.with_name(path.name + METADATA_SUFFIX), record.metadata_sha256)
    for path in sorted(set(simple.rglob("*")) - known):
        if path.is_file():
            yield f"{path}: no record knows it, it is not published; {RETRY}, or remove it"


def _page_faults(folder: Path, pages: Mapping[str, bytes]) -> Iterator[str]:
    for name, page in pages.items():
        path = folder / name
        if not path.is_file():
            yield f"{path}: the page is missing; {RETRY}"
        elif path.read_bytes() != page:
            yield f"{path}: the page is not what the records say; {RETRY}"


def _hash_faults(path: Path, expected: str) -> Iterator[str]:
    if not path.is_file():
        yield f"{path}: missing, though its record is there; {RETRY}"
    elif (found := _sha256(path.read_bytes())) != expected:
        yield f"{path}: sha256 is {found}, its record says {expected}; {RETRY}"


# Files


def _ensure(path: Path, data: bytes) -> None:
    """Let ``path`` hold ``data``, durably; at no moment does it hold anything between the old and the new."""
    if path.is_file() and path.read_bytes() == data:
        return
    aside = path.with_name(f".{path.name}{PART_SUFFIX}")
    with aside.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
