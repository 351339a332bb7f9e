"""Advice for a file that cannot be read or written."""

import errno
import os

import pytest

from wheel_builder.base.errors import FilesError
from wheel_builder.base.mend import files_error, make_room, mend


def statvfs(*, blocks, free, files, files_free):
    return os.statvfs_result((4096, 4096, blocks, free, free, files, files_free, files_free, 0, 255))


@pytest.mark.parametrize(
    ("found", "advice"),
    [
        (statvfs(blocks=1000, free=0, files=1000, files_free=900), "make room (df -h)"),
        (statvfs(blocks=1000, free=900, files=1000, files_free=0), "delete files: the file system has few"),
        # The failed command's output is removed again before this is called.
        (statvfs(blocks=1000, free=900, files=1000, files_free=12), "delete files: the file system has few"),
        (statvfs(blocks=1000, free=0, files=0, files_free=0), "make room (df -h)"),  # btrfs reports 0 inodes
        (None, "make room (df -h)"),
    ],
)
def test_a_file_system_without_inodes_is_not_asked_for_bytes(found, advice):
    """A file system with room but without inodes got the advice ``df -h``, which shows room."""
    assert make_room(found).startswith(advice)
    assert ("(df -i)" in make_room(found)) == ("inodes" in advice or "few" in advice)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOENT, "check the name: a.o does not exist"),
        (errno.ENOTDIR, "check the name: a.o does not exist"),
        (errno.EISDIR, "name a file: a.o is a folder"),
        (errno.EACCES, "give this user the right to read and write a.o"),
        (errno.EROFS, "mount the file system writable"),
        (errno.EIO, "mend the disk"),
    ],
)
def test_the_next_step_is_that_for_the_failure(code, advice):
    """For a missing file the advice was to make room."""
    error = OSError(code, os.strerror(code), "a.o")
    error.add_note("  step: publish")
    found = files_error(error)
    assert mend(error, "a.o") == advice
    assert isinstance(found, FilesError)
    assert found.message == f"a.o: expected to read or write a file, found: {os.strerror(code)}"
    assert found.advice == f"{advice}, then run the same command again; finished steps are kept"
    assert found.__notes__ == ["  step: publish"]
