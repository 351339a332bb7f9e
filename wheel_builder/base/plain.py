"""Reading files that others wrote: a device, a pipe or a file without an end is none."""

import errno
import stat
from pathlib import Path

MIB = 1 << 20
MOST_PAPER = 64 * MIB  # of a record or a statement; the largest that we write have half a MiB


def read_plain(path: Path, most: int = MOST_PAPER) -> bytes:
    """The content of a plain file of at most ``most`` bytes; raises ``OSError``."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a plain file", str(path))
    if found.st_size > most:
        words = f"it has {found.st_size} bytes; the most that is opened is {most}"
        raise OSError(errno.EFBIG, words, str(path))
    with path.open("rb") as stream:
        return stream.read(found.st_size)  # of ``most`` Python would take the memory at once
