"""Advice after the operating system refused to read or write a file."""

import errno
import os
from pathlib import Path

from wheel_builder.base.errors import FilesError

AGAIN = "then run the same command again; finished steps are kept"
RIGHTS = (errno.EACCES, errno.EPERM)
MISSING = (errno.ENOENT, errno.ENOTDIR)


def files_error(error: OSError) -> FilesError:
    """The exception as a failure with a message for the user, with its notes."""
    where = f"{error.filename}: " if error.filename is not None else ""
    message = f"{where}expected to read or write a file, found: {error.strerror or error}"
    made = FilesError(message, advice=f"{mend(error, error.filename or 'the file')}, {AGAIN}")
    for note in getattr(error, "__notes__", []):
        made.add_note(note)
    return made


def mend(error: OSError, where: object) -> str:
    """The next step for the user. ``where`` is the file or folder of the failed access."""
    if error.errno in MISSING:
        return f"check the name: {where} does not exist"
    if error.errno == errno.EISDIR:
        return f"name a file: {where} is a folder"
    if error.errno in RIGHTS:
        return f"give this user the right to read and write {where}"
    if error.errno == errno.EROFS:
        return "mount the file system writable"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return make_room(_file_system(Path(str(where))))
    return "mend the disk"


def make_room(found: os.statvfs_result | None) -> str:
    """Advice on making room: fewer files where inodes are scarcer than bytes, else fewer bytes."""
    if found and found.f_files and found.f_favail * found.f_blocks < found.f_bavail * found.f_files:
        return "delete files: the file system has few inodes left (df -i)"
    return "make room (df -h)"


def _file_system(path: Path) -> os.statvfs_result | None:
    """The file system of the first existing folder on the way up."""
    for folder in (path, *path.absolute().parents):
        try:
            return os.statvfs(folder)
        except OSError:
            continue
    return None
