"""A local index, written by releases on this machine: a changed wheel replaces the one of the same name.

The file ``.local`` marks it. Its wheels are checked less than public ones: the checkout may have changes. So
a local index stays local, ``publish`` refuses it, and a release refuses every other index.
"""

from collections.abc import Collection, Sequence
from glob import escape
from pathlib import Path

from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import PublishError
from wheel_builder.files.wheels.sidecars import (
    ATTACHMENTS,
    METADATA_SUFFIX,
    RECORD_SUFFIX,
    VARIANTS_SUFFIX,
    YANK_SUFFIX,
)
from wheel_builder.files.wheels.variant import INDEX_FILE, variant_name
from wheel_builder.index import folder
from wheel_builder.index.folder import NewFile, beside
from wheel_builder.index.offers import simple_pages
from wheel_builder.matrix.catalogue import Catalogue
from wheel_builder.matrix.model import LOCAL_INDEX, PUBLIC, PUBLIC_INDEX, SIMPLE, VARIANTS

MARK = ".local"
HOMES = ("rocm*", PUBLIC)
# Lists of projects before projects, and pages before their link targets.
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
PUBLISH_ELSEWHERE = f"publish to a folder of its own: --index DIR, by default {PUBLIC_INDEX}"
RELEASE_ELSEWHERE = (
    f"release to a folder of its own: --index DIR, by default {LOCAL_INDEX}; "
    f"if this is that folder, move it to {PUBLIC_INDEX}, where publish writes now"
)


def is_local(root: Path) -> bool:
    """Whether releases on this machine wrote this index."""
    return (root / MARK).is_file()


def begin(root: Path) -> None:
    """Mark an empty index as local, and refuse a public one. The caller holds the lock."""
    refuse_public(root, "nothing was published")
    ensure(root / MARK, TEXT)


def refuse_local(root: Path) -> None:
    """Raise ``PublishError`` with the unpublishable wheels if ``root`` is local."""
    if is_local(root):
        contents, _ = folder.read_what_can_be_read(root)
        names = {
            e.record.filename for projects in contents.values() for group in projects.values() for e in group
        }
        title = f"{root} is a local index, whose wheels are not for others; nothing was published"
        problems = [f"{name} was written by a release on this machine" for name in sorted(names)]
        raise PublishError(title, problems or [f"{root / MARK} says so"], advice=PUBLISH_ELSEWHERE)


def refuse_public(root: Path, kept: str) -> None:
    """Raise ``PublishError`` if ``root`` is neither empty nor local. ``kept`` names the skipped action."""
    there = sorted(path.name for path in root.glob("*") if not path.name.startswith("."))
    if there and not is_local(root):
        title = f"{root} is not a local index: others may have used it; {kept}"
        problem = f"it has {', '.join(there)}, and no file {MARK}"
        raise PublishError(title, [problem], advice=RELEASE_ELSEWHERE)


def replaced(root: Path, files: Sequence[NewFile]) -> frozenset[str]:
    """The names of ``files`` that the index has with different content."""
    new = {file.filename: file.sha256 for file in files}
    return frozenset(
        entry.record.filename
        for projects in folder.read_contents(root).values()
        for entries in projects.values()
        for entry in entries
        if entry.record.sha256 != new.get(entry.record.filename, entry.record.sha256)
    )


def withdraw(root: Path, names: Collection[str], catalogue: Catalogue) -> None:
    """Remove files from a local index. The caller holds the lock.

    First they leave the pages' input, then the pages, then the disk. After a kill all links of the pages
    hold, and the next release completes it.
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
    """Remove pages of projects without files."""
    pages = {root / name for name in simple_pages(folder.read_contents(root))}
    for page in (page for pattern in PAGES for page in sorted(root.glob(pattern))):
        if page not in pages:
            page.unlink()
