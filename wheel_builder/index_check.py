"""Check an index: hash everything in it again, compare every page with the records, explain each fault."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import TypeAdapter

from wheel_builder import index
from wheel_builder.catalogue import Catalogue
from wheel_builder.durable import PART_SUFFIX
from wheel_builder.finder import DATA_FILE
from wheel_builder.index import beside, sha256
from wheel_builder.index_pages import ATTACHMENTS, RECORD_SUFFIX, Entry
from wheel_builder.offers import Contents, finder_pages_of, simple_pages

READABLE = "give this user the right to read it or mend the disk"
RESTORE = "restore it from a copy of the index"
REWRITE = "write the pages again: python -m wheel_builder index pages"
_CATALOGUE = TypeAdapter(Catalogue)


def verify_index(root: Path) -> tuple[str, ...]:
    """Every fault in words, with what to do; () when the index is sound."""
    contents, damaged = index.read_what_can_be_read(root)
    if not contents and not damaged:
        return (f"{root}: there is no index; publish a wheel first",)
    return tuple(_faults(root, contents, damaged))


def _faults(root: Path, contents: Contents, damaged: tuple[str, ...]) -> Iterator[str]:
    yield from (f"{problem}; {RESTORE}" for problem in damaged)
    published = list(_published(root, contents))
    for path, entry in published:
        yield from _file_faults(path, entry)
    if damaged:
        # What the pages should say is not known.
        return
    pages = simple_pages(contents)
    try:
        pages |= finder_pages_of(contents, _catalogue(root))
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield f"{root / DATA_FILE}: it cannot be read ({type(error).__name__}); {REWRITE}"
    yield from _page_faults(root, pages)
    known = {root / name for name in pages} | {root / index.LOCK, root / DATA_FILE, root / "index.html"}
    known |= {file for path, entry in published for file in _files_of(path, entry)}
    yield from _stray_faults(root, known)


def _published(root: Path, contents: Contents) -> Iterator[tuple[Path, Entry]]:
    for rocm, projects in contents.items():
        for project, entries in projects.items():
            for entry in entries:
                yield index.simple_of(root, rocm) / project / entry.record.filename, entry


def _catalogue(root: Path) -> Catalogue:
    # What the page was made with: the checkout's matrix.yaml may have moved on.
    text = json.dumps(json.loads((root / DATA_FILE).read_bytes())["catalogue"])
    return _CATALOGUE.validate_json(text, strict=True, extra="forbid")


def _file_faults(path: Path, entry: Entry) -> Iterator[str]:
    record = entry.record
    yield from _hash_faults(path, record.sha256, record.size)
    yield from _hash_faults(beside(path, index.METADATA_SUFFIX), record.metadata_sha256)
    for kind, digest in record.attachments.items():
        yield from _hash_faults(beside(path, ATTACHMENTS[kind]), digest)


def _files_of(path: Path, entry: Entry) -> Iterator[Path]:
    yield path
    attached = (ATTACHMENTS[kind] for kind in entry.record.attachments)
    for suffix in (index.METADATA_SUFFIX, RECORD_SUFFIX, index.YANK_SUFFIX, *attached):
        yield beside(path, suffix)


def _hash_faults(path: Path, expected: str, size: int | None = None) -> Iterator[str]:
    try:
        data = _content(path)
    except OSError as error:
        yield f"{path}: it cannot be read ({error.strerror}); {READABLE}, or {RESTORE}"
        return
    if data is None:
        yield f"{path}: missing, though its record is there; {index.RETRY}"
    elif (found := sha256(data)) != expected:
        cut = f" and {len(data)} bytes of {size}: it was cut off" if size and len(data) < size else ""
        yield f"{path}: sha256 is {found}{cut}, its record says {expected}; {index.RETRY}"


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
            yield f"{path}: the page is not what the records say; {REWRITE}"


def _content(path: Path) -> bytes | None:
    """What is in the file, None when it is not there; raises ``OSError``."""
    return path.read_bytes() if path.is_file() else None


def _stray_faults(root: Path, known: set[Path]) -> Iterator[str]:
    for path in sorted(set(root.rglob("*")) - known):
        if path.is_dir() or path.name == index.LOCK:
            continue
        if path.name.endswith(PART_SUFFIX):
            yield f"{path}: an interrupted publisher left it; {index.RETRY}"
        else:
            yield f"{path}: no record knows it, it is not published; {index.RETRY}, or remove it"
