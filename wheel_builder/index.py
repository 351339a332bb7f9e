"""A static package index: one folder per ROCm version, pages made from append-only records.

    <root>/simple/index.html, index.json                        the projects of all ROCm versions
    <root>/simple/<project>/index.html, index.json              their files, which are where they are:
    <root>/rocm7.2/simple/index.html, index.json                the projects of one ROCm version
    <root>/rocm7.2/simple/<project>/index.html, index.json      its files
    <root>/rocm7.2/simple/<project>/<file>.whl                  a wheel
                                    <file>.whl.metadata         its METADATA (PEP 658)
                                    <file>.whl.verification.json, <file>.whl.provenance.json
                                    <file>.whl.record.json      the facts about it; never changed
                                    <file>.whl.yanked.json      that it is yanked, when and why
    <root>/wheels.json, index.html                              the page where users find their wheel

A file is published when its record is there; pages say what the records say.  Everything is written
aside and renamed, in the order wheel, metadata, what is attached, record, pages from the files up to
the root: a kill at any moment leaves pages whose links hold, and publishing again completes the rest.
"""

import fcntl
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from packaging.version import Version
from pydantic import TypeAdapter, ValidationError

from wheel_builder.catalogue import Catalogue
from wheel_builder.durable import ensure, make_folder
from wheel_builder.errors import PublishError
from wheel_builder.index_pages import ATTACHMENTS, RECORD_SUFFIX, Entry, Record, json_bytes
from wheel_builder.model import PROJECT
from wheel_builder.offers import Contents, finder_pages_of, in_order, simple_pages

METADATA_SUFFIX = ".metadata"
YANK_SUFFIX = ".yanked.json"
LOCK = ".lock"
ROCM_VERSION = re.compile(r"\d{1,2}\.\d{1,2}")
RETRY = "publish the same wheels again: it completes what is missing and changes nothing else"

_RECORD = TypeAdapter(Record)


@dataclass(frozen=True)
class NewFile:
    """A wheel to be published, with its METADATA; ``attachments`` are contents by kind."""

    filename: str
    project: str
    version: str
    requires_python: str
    data: bytes
    metadata: bytes
    serves: tuple[str, ...] = ()
    verified: Mapping[str, str] = field(default_factory=dict)
    attachments: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        return sha256(self.data)

    def to_record(self, now: datetime) -> Record:
        return Record(
            filename=self.filename,
            project=self.project,
            version=self.version,
            requires_python=self.requires_python,
            size=len(self.data),
            sha256=self.sha256,
            metadata_sha256=sha256(self.metadata),
            upload_time=now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            serves=self.serves,
            verified=self.verified,
            attachments={kind: sha256(data) for kind, data in self.attachments.items()},
        )


def simple_of(root: Path, rocm: str) -> Path:
    """The folder that ``--index-url`` names for ROCm ``rocm``."""
    return root / f"rocm{rocm}" / "simple"


@contextmanager
def changing(root: Path) -> Iterator[None]:
    """Keep other publishers out of the index, waiting for one that is at work; ``OSError`` gets its words."""
    try:
        make_folder(root)
        with (root / LOCK).open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield
    except OSError as error:
        title = f"the index {root} could not be written to the end; what clients see of it is sound"
        problem = f"{error.filename or root}: {error.strerror or error}"
        raise PublishError(title, [problem], advice=f"make room or mend the disk, then {RETRY}") from error


def add_file(simple: Path, file: NewFile, now: datetime) -> bool:
    """Publish ``file``; False when it was there.  The caller holds the lock and knows the name is free."""
    path = simple / file.project / file.filename
    record = beside(path, RECORD_SUFFIX)
    published = _read_entry(record).record if record.exists() else None
    ensure(path, file.data)
    ensure(beside(path, METADATA_SUFFIX), file.metadata)
    for kind, data in file.attachments.items():
        # A later verification of the same wheel does not replace what was published with it.
        if published is None or published.attachments.get(kind) == sha256(data):
            ensure(beside(path, ATTACHMENTS[kind]), data)
    if published is None:
        ensure(record, json_bytes(asdict(file.to_record(now))))
    return published is None


def yank(root: Path, rocm: str, filename: str, reason: str, *, catalogue: Catalogue, now: datetime) -> None:
    """Tell installers to leave a published file alone unless it is pinned (PEP 592); it stays where it is."""
    simple = simple_of(root, rocm)
    with changing(root):
        records = [path for path in _records(simple) if path.name == filename + RECORD_SUFFIX]
        if not records:
            title = f"{filename} cannot be yanked"
            problem = f"no such file in the index of ROCm {rocm}"
            raise PublishError(title, [problem], advice=f"see the names in {simple}")
        mark = records[0].with_name(filename + YANK_SUFFIX)
        if not mark.exists():
            ensure(mark, json_bytes({"reason": reason, "time": now.astimezone(UTC).isoformat()}))
        write_pages(root, catalogue)


# Pages


def write_pages(root: Path, catalogue: Catalogue) -> None:
    """Make every page say what the records and ``catalogue`` say; the caller holds the lock."""
    contents = read_contents(root)
    for name, page in (simple_pages(contents) | finder_pages_of(contents, catalogue)).items():
        ensure(root / name, page)


# Reading


def read_contents(root: Path) -> Contents:
    """All published files; raises ``PublishError`` with every damaged record."""
    contents, problems = read_what_can_be_read(root)
    if problems:
        title = f"{root}: records cannot be read"
        raise PublishError(title, problems, advice="restore these files from a copy of the index")
    return contents


def read_what_can_be_read(root: Path) -> tuple[Contents, tuple[str, ...]]:
    """The published files whose records can be read, and what is wrong with the other records."""
    contents: dict[str, dict[str, list[Entry]]] = {}
    problems = []
    for simple in sorted(root.glob("rocm*/simple")):
        rocm = simple.parent.name.removeprefix("rocm")
        for path in _records(simple):
            try:
                entry = _read_entry(path)
            except (OSError, ValueError, KeyError, TypeError) as error:
                problems.append(f"{path}: {_words(error)}")
            else:
                contents.setdefault(rocm, {}).setdefault(path.parent.name, []).append(entry)
    return {rocm: in_order(projects) for rocm, projects in contents.items()}, tuple(problems)


def newest_wheel(root: Path, rocm: str) -> Path | None:
    """The newest wheel of ours that was built with ``rocm`` and is not yanked."""
    entries = read_contents(root).get(rocm, {}).get(PROJECT, ())
    names = [entry.record.filename for entry in entries if entry.yanked is None]
    return simple_of(root, rocm) / PROJECT / names[-1] if names else None


def beside(path: Path, suffix: str) -> Path:
    """The file that belongs to the wheel ``path``."""
    return path.with_name(path.name + suffix)


def _records(simple: Path) -> list[Path]:
    return sorted(simple.glob(f"*/*{RECORD_SUFFIX}"))


def _read_entry(path: Path) -> Entry:
    record = _RECORD.validate_json(path.read_bytes(), strict=True, extra="forbid")
    if (record.project, f"{record.filename}{RECORD_SUFFIX}") != (path.parent.name, path.name):
        message = f"it is about {record.project}/{record.filename}"
        raise ValueError(message)
    if strange := [rocm for rocm in record.serves if not ROCM_VERSION.fullmatch(rocm)]:
        message = f"serves has {strange[0]!r}, expected ROCm versions such as 7.2"
        raise ValueError(message)
    if unknown := sorted(record.attachments.keys() - ATTACHMENTS.keys()):
        message = f"attachments has {unknown[0]!r}, expected some of {', '.join(ATTACHMENTS)}"
        raise ValueError(message)
    Version(record.version)
    mark = path.with_name(record.filename + YANK_SUFFIX)
    return Entry(record, str(json.loads(mark.read_bytes())["reason"]) if mark.exists() else None)


def _words(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    found = (
        (".".join(map(str, one["loc"])), one["msg"])
        for one in error.errors(include_url=False, include_input=False)
    )
    return "; ".join(f"{where}: {what}" if where else what for where, what in found)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
