"""Check an index: hash everything in it again, compare every page with the records, explain each fault."""

import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from pydantic import TypeAdapter
from pydantic_core import to_json

from wheel_builder.base.durable import PART_SUFFIX
from wheel_builder.base.strict_json import read_json
from wheel_builder.files.wheels.sidecars import (
    ATTACHMENTS,
    METADATA_SUFFIX,
    RECORD_SUFFIX,
    VARIANTS_SUFFIX,
    YANK_SUFFIX,
)
from wheel_builder.files.wheels.variant import variant_name, wheel_of
from wheel_builder.index import folder, local, manual, owners, variants
from wheel_builder.index.computed import contradictions
from wheel_builder.index.entries import YANK_AGAIN
from wheel_builder.index.finder import DATA_FILE
from wheel_builder.index.folder import beside, sha256
from wheel_builder.index.offers import Contents, finder_pages_of, simple_pages
from wheel_builder.index.simple.pages import Entry
from wheel_builder.matrix.catalogue import Catalogue

READABLE = "give this user the right to read it or mend the disk"
RESTORE = "restore it from a copy of the index"
AGAIN_WITH_VARIANTS = f"{folder.RETRY}, with --variants"
REWRITE = "write the pages again: scripts/wheel-builder index pages"
OWN = (folder.LOCK, local.MARK, DATA_FILE, "index.html")
_CATALOGUE = TypeAdapter(Catalogue)


@dataclass(frozen=True)
class Found:
    """``faults`` in words, with remedies. ``leftovers`` of a killed publisher are invisible to clients."""

    faults: tuple[str, ...]
    leftovers: tuple[str, ...] = ()


def check_index(root: Path, *, ours: Collection[str] | None = None) -> Found:
    """Differences of an index from its records, and of the records from the wheels.

    If ``ours`` names the projects of the index, wheels of others are faults.
    """
    contents, damaged = folder.read_what_can_be_read(root)
    if not contents and not damaged:
        return Found((f"{root}: the index does not exist; publish a wheel first",))
    faults = list(_faults(root, contents, damaged, ours))
    if damaged:
        return Found(tuple(faults))  # the index's files are unknown if records are unreadable
    strays = _strays(root, contents)
    told = {path: _left(path, ours) for path in strays}
    foreign = (path for path, words in told.items() if not words)
    faults += (f"{path}: no record knows it, it is not published; remove it" for path in foreign)
    return Found(tuple(faults), tuple(f"{path}: {words}" for path, words in told.items() if words))


def verify_index(root: Path) -> tuple[str, ...]:
    """Every fault in words, with its remedy, or () when the index is sound."""
    return check_index(root).faults


def not_public(root: Path) -> tuple[str, ...]:
    """Files that a web server of another user cannot read, in words, or () if it can read all."""
    closed = [path for path in sorted(root.rglob("*")) if path.name != folder.LOCK and not _is_public(path)]
    if not closed:
        return ()
    first, more = closed[0], f" and {len(closed) - 1} more" if len(closed) > 1 else ""
    advice = f"chmod -R a+rX {root}, and set umask 022 before the next command"
    return (f"{first}{more}: only some users may read it, a web server may not; {advice}",)


def _is_public(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return True  # another publisher renamed it meanwhile
    needed = 0o5 if stat.S_ISDIR(mode) else 0o4
    return mode & needed == needed


def _faults(
    root: Path, contents: Contents, damaged: tuple[str, ...], ours: Collection[str] | None
) -> Iterator[str]:
    yield from not_public(root)
    yield from (problem if YANK_AGAIN in problem else f"{problem}; {RESTORE}" for problem in damaged)
    for rocm in contents:
        for path, entry in _published(root, {rocm: contents[rocm]}):
            changed = list(_file_faults(path, entry))
            yield from changed
            if not changed:
                yield from (f"{fault}; {RESTORE}" for fault in contradictions(path, entry, rocm, ours))
    published = list(_published(root, contents))
    clashes = variants.conflicts(entry.record for _, entry in published if entry.variants)
    yield from (f"{root}: {clash}; {RESTORE}" for clash in clashes)
    if damaged:
        # The content of pages is unknown if records are unreadable.
        return
    yield from (f"{fault}; {RESTORE}" for fault in owners.faults(root))
    pages = simple_pages(contents)
    try:
        pages |= finder_pages_of(contents, _catalogue(root), documented=manual.is_there(root))
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield f"{root / DATA_FILE}: it cannot be read ({type(error).__name__}); {REWRITE}"
    yield from _page_faults(root, pages)
    if (root / manual.FOLDER).exists():
        yield from (f"{fault}; {manual.AGAIN}" for fault in manual.faults(root / manual.FOLDER))


def _strays(root: Path, contents: Contents) -> list[Path]:
    """Files that belong to no published file."""
    known = {root / name for name in (*simple_pages(contents), *OWN)}
    known |= {file for path, entry in _published(root, contents) for file in _files_of(path, entry)}
    documents = root / manual.FOLDER
    found = (path for path in root.rglob("*") if not path.is_dir() and not path.is_relative_to(documents))
    return sorted(set(found) - known)


def _left(path: Path, ours: Collection[str] | None) -> str:
    """Whether a stray file is the leftover of a killed publisher, in words, empty if it may be anything."""
    if path.name.startswith(".") and path.name.endswith(PART_SUFFIX):
        return "an interrupted publisher left it; the next publish removes it"
    name = "".join(path.name.partition(".whl")[:2])
    try:
        project = parse_wheel_filename(wheel_of(name) or name)[0]
    except InvalidWheelFilename:
        return ""
    foreign = ours is not None and project not in ours
    if foreign or (path.parent.name, path.parent.parent.name) != (project, "simple"):
        return ""
    return f"no page names it; an interrupted publisher may have left it; {folder.RETRY}, or remove it"


def _published(root: Path, contents: Contents) -> Iterator[tuple[Path, Entry]]:
    for rocm, projects in contents.items():
        for project, entries in projects.items():
            for entry in entries:
                yield folder.simple_of(root, rocm) / project / entry.record.filename, entry


def _catalogue(root: Path) -> Catalogue:
    # The page's own catalogue: the checkout's matrix.yaml may have changed since.
    text = to_json(read_json((root / DATA_FILE).read_bytes())["catalogue"])
    return _CATALOGUE.validate_json(text, strict=True, extra="forbid")


def _file_faults(path: Path, entry: Entry) -> Iterator[str]:
    record = entry.record
    # Publishing again leaves a yanked file yanked.
    mend = folder.RETRY if entry.yanked is None else RESTORE
    yield from _hash_faults(path, record.sha256, mend, record.size)
    yield from _hash_faults(beside(path, METADATA_SUFFIX), record.metadata_sha256, mend)
    for kind, digest in record.attachments.items():
        yield from _hash_faults(beside(path, ATTACHMENTS[kind]), digest, mend)
    if entry.variants:
        mend = AGAIN_WITH_VARIANTS if entry.yanked is None else RESTORE
        for label, made in entry.variants.wheels.items():
            variant = path.with_name(variant_name(path.name, label))
            yield from _hash_faults(variant, made.sha256, mend, made.size)
            yield from _hash_faults(beside(variant, METADATA_SUFFIX), record.metadata_sha256, mend)
        yield from (f"{fault}; {RESTORE}" for fault in variants.faults(path, entry))


def _files_of(path: Path, entry: Entry) -> Iterator[Path]:
    yield path
    attached = (ATTACHMENTS[kind] for kind in entry.record.attachments)
    for suffix in (METADATA_SUFFIX, RECORD_SUFFIX, YANK_SUFFIX, VARIANTS_SUFFIX, *attached):
        yield beside(path, suffix)
    for label in entry.variants.wheels if entry.variants else ():
        variant = path.with_name(variant_name(path.name, label))
        yield from (variant, beside(variant, METADATA_SUFFIX))


def _hash_faults(path: Path, expected: str, mend: str, size: int | None = None) -> Iterator[str]:
    try:
        data = _content(path)
    except OSError as error:
        yield f"{path}: it cannot be read ({error.strerror}); {READABLE}, or {RESTORE}"
        return
    if data is None:
        yield f"{path}: missing, though its record is there; {mend}"
    elif (found := sha256(data)) != expected:
        cut = f" and {len(data)} bytes of {size}: it was cut off" if size and len(data) < size else ""
        yield f"{path}: sha256 is {found}{cut}, its record says {expected}; {mend}"


def _page_faults(root: Path, pages: Mapping[str, bytes]) -> Iterator[str]:
    for name, page in pages.items():
        path = root / name
        try:
            data = _content(path)
        except OSError as error:
            yield f"{path}: the page cannot be read ({error.strerror}); {READABLE}, or {REWRITE}"
            continue
        if data is None:
            yield f"{path}: the page is missing; {REWRITE}"
        elif data != page:
            yield f"{path}: the page differs from the records; {REWRITE}"


def _content(path: Path) -> bytes | None:
    """The file's content, None if missing. Raises ``OSError``."""
    return path.read_bytes() if path.is_file() else None
