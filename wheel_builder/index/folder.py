"""A static package index: one folder per ROCm version, pages made from append-only records.

    <root>/simple/index.html, index.json                        the projects of all ROCm versions
    <root>/simple/<project>/index.html, index.json              links to their files in the folders below
    <root>/rocm7.2/simple/index.html, index.json                the projects of one ROCm version
    <root>/rocm7.2/simple/<project>/index.html, index.json      its files
    <root>/rocm7.2/simple/<project>/<file>.whl                  a wheel
                                    <file>.whl.metadata         its METADATA (PEP 658)
                                    <file>.whl.verification.json, <file>.whl.provenance.json
                                    <file>.whl.record.json      the facts about it, never changed
                                    <file>.whl.yanked.json      if yanked: when and why
                                    <file>.whl.variants.json    the facts about its variants (PEP 825)
                                    <file>-<label>.whl          a variant, and its METADATA likewise
                                    <project>-<version>-variants.json    the GPUs of each variant
    <root>/rocm7.2/variants/..., <root>/variants/...            pages like those in simple, with variants
    <root>/public/simple/...                                    likewise the wheel for every ROCm version
    <root>/wheels.json, index.html                              the page where users find their wheel
    <root>/docs/                                                the documentation (manual.py)

A file is published once its record exists. Pages follow from the records. Everything is written to a
temporary name and renamed, in this order: wheel, metadata, attachments, record, then its variants likewise,
then pages from the files up to the root. After a kill at any moment all links of the pages hold, and
publishing again completes the rest.
"""

import fcntl
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from wheel_builder.base.durable import ensure, make_folder
from wheel_builder.base.errors import PublishError
from wheel_builder.base.mend import mend
from wheel_builder.base.words import line_problem
from wheel_builder.files.wheels.sidecars import (
    ATTACHMENTS,
    METADATA_SUFFIX,
    RECORD_SUFFIX,
    VARIANTS_SUFFIX,
    YANK_SUFFIX,
)
from wheel_builder.files.wheels.variant import SCHEMA, variant_name, wheel_of
from wheel_builder.index import manual
from wheel_builder.index.entries import HOME, in_words, read_entry, read_mark, with_reason
from wheel_builder.index.offers import Contents, finder_pages_of, in_order, simple_pages
from wheel_builder.index.simple.pages import Entry, Record, Variant, Variants, json_bytes
from wheel_builder.matrix.catalogue import Catalogue
from wheel_builder.matrix.model import PROJECT, PUBLIC, platform_of, simple_below, wheel_words

LOCK = ".lock"
MEND = "follow each line, or restore these files from a copy of the index"
RETRY = "publish the same wheels again: it completes what is missing and changes nothing else"


@dataclass(frozen=True)
class NewFile:
    """A wheel to be published, with its METADATA.

    ``attachments`` are contents by kind, ``variants`` are contents by label.
    """

    filename: str
    project: str
    version: str
    requires_python: str
    data: bytes
    metadata: bytes
    serves: tuple[str, ...] = ()
    verified: Mapping[str, str] = field(default_factory=dict)
    attachments: Mapping[str, bytes] = field(default_factory=dict)
    variants: Mapping[str, bytes] = field(default_factory=dict)

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
            upload_time=time_text(now),
            serves=self.serves,
            verified=self.verified,
            attachments={kind: sha256(data) for kind, data in self.attachments.items()},
        )

    def to_variants(self, now: datetime) -> Variants:
        made = {label: Variant(sha256(data), len(data)) for label, data in self.variants.items()}
        return Variants(SCHEMA, time_text(now), made)


def simple_of(root: Path, rocm: str) -> Path:
    """The folder for ``--index-url`` for ROCm ``rocm``, or for ``PUBLIC``."""
    return root / simple_below(rocm)


@contextmanager
def changing(root: Path, *, again: str = RETRY) -> Iterator[None]:
    """Hold the index's lock, waiting for another publisher. ``OSError`` becomes a ``PublishError``.

    ``again`` tells the user what to do after removing the cause.
    """
    try:
        make_folder(root)
        with (root / LOCK).open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield
    except OSError as error:
        title = f"the index {root} could not be written to the end; what clients see of it is sound"
        where = error.filename or root
        advice = f"{mend(error, where)}, then {again}"
        raise PublishError(title, [f"{where}: {error.strerror or error}"], advice=advice) from error


def add_file(simple: Path, file: NewFile, now: datetime) -> bool:
    """Publish ``file``, or return False if published. The caller holds the lock and has checked the name."""
    path = simple / file.project / file.filename
    record = beside(path, RECORD_SUFFIX)
    published = read_entry(record).record if record.exists() else None
    ensure(path, file.data)
    ensure(beside(path, METADATA_SUFFIX), file.metadata)
    for kind, data in file.attachments.items():
        # The verification published with the wheel stays, whatever later ones say.
        if published is None or published.attachments.get(kind) == sha256(data):
            ensure(beside(path, ATTACHMENTS[kind]), data)
    if published is None:
        ensure(record, json_bytes(asdict(file.to_record(now))))
    if file.variants:
        _add_variants(path, file, now)
    return published is None


def _add_variants(path: Path, file: NewFile, now: datetime) -> None:
    for label, data in file.variants.items():
        variant = path.with_name(variant_name(file.filename, label))
        ensure(variant, data)
        ensure(beside(variant, METADATA_SUFFIX), file.metadata)
    if not (facts := beside(path, VARIANTS_SUFFIX)).exists():
        ensure(facts, json_bytes(asdict(file.to_variants(now))))


def yank(root: Path, rocm: str, filename: str, reason: str, *, catalogue: Catalogue, now: datetime) -> None:
    """Tell installers to leave a published file alone unless it is pinned (PEP 592). The file stays.

    The reason is added to earlier ones. Raises ``PublishError``, before it writes anything, for a reason that
    pages cannot show.
    """
    if problem := line_problem(reason):
        title = f"{filename} cannot be yanked: its reason is no line of text"
        advice = "give the reason as one line of UTF-8 text, such as --reason 'wrong results on gfx908'"
        raise PublishError(title, [f"--reason: {problem}"], advice=advice)
    simple = simple_of(root, rocm)
    with changing(root, again="yank the same file again"):
        read_contents(root)  # an unreadable index is left unchanged
        records = [path for path in _records(simple) if path.name == filename + RECORD_SUFFIX]
        if not records:
            title = f"{filename} cannot be yanked"
            problem = f"no such file in the index of {wheel_words(rocm)}"
            advice = f"see the names in {simple}"
            if wheel := wheel_of(filename):
                problem, advice = "it is a variant, which is yanked with its wheel", f"yank {wheel}"
            raise PublishError(title, [problem], advice=advice)
        path = records[0].with_name(filename + YANK_SUFFIX)
        before = read_mark(path) if path.exists() else None
        mark = with_reason(before, reason, now.astimezone(UTC).isoformat())
        if mark != before:
            ensure(path, json_bytes(mark.to_json()))
        write_pages(root, catalogue)


# Pages


def write_pages(root: Path, catalogue: Catalogue) -> None:
    """Write every page from the records and ``catalogue``. The caller holds the lock."""
    contents = read_contents(root)
    finder = finder_pages_of(contents, catalogue, documented=manual.is_there(root))
    for name, page in (simple_pages(contents) | finder).items():
        ensure(root / name, page)


# Reading


def read_contents(root: Path) -> Contents:
    """All published files. Raises ``PublishError`` with every damaged record."""
    contents, problems = read_what_can_be_read(root)
    if problems:
        title = f"{root}: what it says of its files cannot be read; nothing was changed"
        raise PublishError(title, problems, advice=MEND)
    return contents


def read_what_can_be_read(root: Path) -> tuple[Contents, tuple[str, ...]]:
    """The published files with readable records and marks, and the problems of the others."""
    contents: dict[str, dict[str, list[Entry]]] = {}
    problems = []
    for simple in sorted([*root.glob(f"{PUBLIC}/simple"), *root.glob("rocm*/simple")]):
        rocm = simple.parent.name.removeprefix("rocm")
        if not HOME.fullmatch(rocm) or simple != simple_of(root, rocm):
            problems.append(f"{simple.parent}: {rocm!r} is no ROCm version such as 7.2")
            continue
        for path in _records(simple):
            try:
                entry = read_entry(path)
            except (OSError, ValueError) as error:
                problems.append(f"{path}: {in_words(error)}")
            except PublishError as error:
                problems += error.problems
            else:
                contents.setdefault(rocm, {}).setdefault(path.parent.name, []).append(entry)
    return {rocm: in_order(projects) for rocm, projects in contents.items()}, tuple(problems)


def newest_wheels(root: Path, rocm: str) -> list[Path]:
    """This project's newest wheel for each platform in the folder of ``rocm``, without yanked ones."""
    entries = read_contents(root).get(rocm, {}).get(PROJECT, ())
    names = [entry.record.filename for entry in entries if entry.yanked is None]
    newest = {platform_of(name): name for name in names}
    return [simple_of(root, rocm) / PROJECT / name for name in newest.values()]


def beside(path: Path, suffix: str) -> Path:
    """The file of the wheel ``path`` with this suffix."""
    return path.with_name(path.name + suffix)


def time_text(now: datetime) -> str:
    """A time as pages have it: RFC 3339 in UTC, with microseconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _records(simple: Path) -> list[Path]:
    return sorted(simple.glob(f"*/*{RECORD_SUFFIX}"))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
