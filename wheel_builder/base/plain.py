"""Reading files written by others. Devices, pipes and endless files are refused."""

import errno
import stat
from pathlib import Path

MIB = 1 << 20
MOST_PAPER = 64 * MIB  # limit for a record or statement: our largest have half a MiB


def read_plain(path: Path, most: int = MOST_PAPER) -> bytes:
    """The content of a plain file of at most ``most`` bytes. Raises ``OSError``."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a plain file", str(path))
    if found.st_size > most:
        words = f"it has {found.st_size} bytes, and the limit is {most}"
        raise OSError(errno.EFBIG, words, str(path))
    with path.open("rb") as stream:
        return stream.read(found.st_size)  # of ``most`` Python would take the memory at once
