"""An index's documentation: its folder docs/, replaced only by newer documentation.

``docs/SHA256SUMS`` lists its files in sha256sum's format. Files are written before the pages that link to
them, the list last. After a kill the documentation is readable, and writing it again completes it.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import PublishError

FOLDER = "docs"
SUMS = "SHA256SUMS"
AGAIN = "put the documentation there again: scripts/wheel-builder index docs --site DIR"
_LINE = re.compile(r"([0-9a-f]{64})  ((?:\w[\w.-]*/)*\w[\w.-]*)", re.ASCII)


def is_there(root: Path) -> bool:
    """Whether the index has a documentation."""
    return (root / FOLDER / SUMS).is_file()


def sums_of(site: Path) -> str:
    """The list of a site's files."""
    files = sorted(path for path in site.rglob("*") if path.is_file() and path != site / SUMS)
    return "".join(f"{_sha256(path.read_bytes())}  {path.relative_to(site).as_posix()}\n" for path in files)


def put(root: Path, site: Path) -> None:
    """Copy a built site into the index. The caller holds the lock.

    Raises ``PublishError`` before it writes anything if the site differs from its list.
    """
    if found := [*faults(site)]:
        title = f"{site} is no documentation; nothing was changed"
        raise PublishError(title, found, advice="build it again: scripts/wheel-builder docs")
    folder, sums = root / FOLDER, _read(site)
    for name in sorted(sums, key=lambda name: (name.endswith(".html"), name)):
        ensure(folder / name, (site / name).read_bytes())
    ensure(folder / SUMS, (site / SUMS).read_bytes())
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        elif path.is_file() and path != folder / SUMS and path.relative_to(folder).as_posix() not in sums:
            path.unlink()


def faults(site: Path) -> Iterator[str]:
    """How a site differs from its list, in words."""
    try:
        sums = _read(site)
    except (OSError, ValueError) as error:
        yield f"{site / SUMS}: it cannot be read as lines of a sha256 and a name ({error})"
        return
    for name, expected in sums.items():
        path = site / name
        found = _sha256(path.read_bytes()) if path.is_file() and not path.is_symlink() else ""
        if found != expected:
            yield f"{path}: sha256 is {found or 'that of no file'}, {SUMS} says {expected}"
    for path in sorted(site.rglob("*")):
        name = path.relative_to(site).as_posix()
        if not path.is_dir() and name != SUMS and name not in sums:
            yield f"{path}: {SUMS} does not name it"


def _read(site: Path) -> Mapping[str, str]:
    lines = (site / SUMS).read_text(encoding="ascii").splitlines()
    found = [_LINE.fullmatch(line) for line in lines]
    names = {match[2]: match[1] for match in found if match}
    if "index.html" not in names or len(names) != len(lines):
        message = "expected a line for each file, and one for index.html"
        raise ValueError(message)
    return names


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
