"""Files that are there as a whole or not at all, also after a kill or a loss of power."""

import os
from pathlib import Path

PART_SUFFIX = ".part"


def ensure(path: Path, data: bytes) -> None:
    """Let ``path`` hold ``data``, durably; at no moment does it hold anything between the old and the new.

    Missing folders are made.  Raises ``OSError`` with ``filename``, and leaves nothing behind that takes up
    space.
    """
    if path.is_file() and path.read_bytes() == data:
        return
    make_folder(path.parent)
    aside = path.with_name(f".{path.name}{PART_SUFFIX}")
    try:
        with aside.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    except OSError as error:
        # A write that finds the disk full does not say which file it was for.
        error.filename = error.filename or str(path)
        aside.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make ``folder`` and what is missing above it, durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def remove_parts(root: Path) -> None:
    """Remove what an interrupted writer was writing aside; the caller knows that no other is at work."""
    for part in root.rglob(f".*{PART_SUFFIX}"):
        part.unlink()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
