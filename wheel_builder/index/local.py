"""An index that only releases on this machine wrote: there a changed wheel replaces the one of its name.

The file ``.local`` in the index says so.  ``publish``, which gives wheels to others, removes it; from then on
no file of the index changes.
"""

from collections.abc import Collection, Sequence
from glob import escape
from pathlib import Path

from wheel_builder.base.durable import ensure
from wheel_builder.files.sidecars import (
    ATTACHMENTS,
    METADATA_SUFFIX,
    RECORD_SUFFIX,
    VARIANTS_SUFFIX,
    YANK_SUFFIX,
)
from wheel_builder.files.variant import INDEX_FILE, variant_name
from wheel_builder.index import folder
from wheel_builder.index.folder import NewFile, beside
from wheel_builder.index.offers import simple_pages
from wheel_builder.matrix.catalogue import Catalogue
from wheel_builder.matrix.model import PUBLIC, SIMPLE, VARIANTS

MARK = ".local"
HOMES = ("rocm*", PUBLIC)
# Lists of projects before projects, and pages before what they link.
PAGES = (
    *(
        f"{home}{pages}/{page}"
        for home in ("", *(f"{home}/" for home in HOMES))
        for pages in (VARIANTS, SIMPLE)
        for page in ("index.*", "*/index.*")
    ),
    *(f"{home}/{SIMPLE}/*/*-{INDEX_FILE}" for home in HOMES),
)
TEXT = b"Only releases on this machine wrote this index: a changed wheel replaces the one of its name.\n"


def is_local(root: Path) -> bool:
    """Whether nobody else was given this index."""
    return (root / MARK).is_file()


def begin(root: Path) -> None:
    """Mark an index that has no file yet as local; the caller holds the lock."""
    if not any(path for home in HOMES for path in root.glob(home)):
        ensure(root / MARK, TEXT)


def give(root: Path) -> None:
    """From now on no file of the index changes; the caller holds the lock."""
    (root / MARK).unlink(missing_ok=True)


def replaced(root: Path, files: Sequence[NewFile]) -> frozenset[str]:
    """The names of ``files`` that the index has with another content."""
    new = {file.filename: file.sha256 for file in files}
    return frozenset(
        entry.record.filename
        for projects in folder.read_contents(root).values()
        for entries in projects.values()
        for entry in entries
        if entry.record.sha256 != new.get(entry.record.filename, entry.record.sha256)
    )


def withdraw(root: Path, names: Collection[str], catalogue: Catalogue) -> None:
    """Take files out of a local index; the caller holds the lock.

    First from what pages are made of, then from the pages, then from the disk: a kill leaves pages whose
    links hold, and the next release completes it.
    """
    paths = [
        path for name in sorted(names) for home in HOMES for path in root.glob(f"{home}/simple/*/{name}")
    ]
    for path in paths:
        for suffix in (YANK_SUFFIX, VARIANTS_SUFFIX, RECORD_SUFFIX):
            beside(path, suffix).unlink(missing_ok=True)
    if paths:
        folder.write_pages(root, catalogue)
        _remove_pages_of_nothing(root)
    for path in paths:
        for suffix in ("", METADATA_SUFFIX, *ATTACHMENTS.values()):
            beside(path, suffix).unlink(missing_ok=True)
        for variant in path.parent.glob(variant_name(escape(path.name), "*")):
            for file in (variant, beside(variant, METADATA_SUFFIX)):
                file.unlink(missing_ok=True)


def _remove_pages_of_nothing(root: Path) -> None:
    """Remove pages of projects that have no file any more."""
    pages = {root / name for name in simple_pages(folder.read_contents(root))}
    for page in (page for pattern in PAGES for page in sorted(root.glob(pattern))):
        if page not in pages:
            page.unlink()
