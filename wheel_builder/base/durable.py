"""Atomic file writes: whole or absent, even after a kill or a power failure."""

import os
from pathlib import Path

PART_SUFFIX = ".part"


def ensure(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` durably. A reader sees the old content or the new, complete.

    Makes missing folders. Raises ``OSError`` with ``filename`` set, and removes its partial file.
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
        # ENOSPC from a write lacks the file's name.
        error.filename = error.filename or str(path)
        aside.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make ``folder`` and its missing parents, durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def remove_parts(root: Path) -> None:
    """Remove partial files of interrupted writers. The caller ensures exclusive access."""
    for part in root.rglob(f".*{PART_SUFFIX}"):
        part.unlink()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
