"""Whether the installed files are those of the wheel. Needs neither PyTorch nor a GPU."""

import csv
import ctypes
import hashlib
import importlib.metadata
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path

from flash_attn_rocm.machine.requirements import DISTRIBUTION, LIBRARY, WINDOWS


def problems() -> Iterator[str]:
    """Missing and changed files, and a library that does not load."""
    listed = dict(_listed())
    if not listed:
        yield f"{DISTRIBUTION} is not installed, or without a list of its files"
    for path, digest in listed.items():
        if not path.is_file():
            yield f"{path} is missing"
        elif digest != _digest(path, digest.partition("=")[0]):
            yield f"{path} is not the wheel's"
    yield from _library_problems()


def _listed() -> Iterator[tuple[Path, str]]:
    """The files with a digest in RECORD. Those added by installers have none."""
    try:
        found = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return
    for name, digest, _size in csv.reader((found.read_text("RECORD") or "").splitlines()):
        if digest:
            yield Path(str(found.locate_file(name))), digest


def _digest(path: Path, algorithm: str) -> str:
    """As in RECORD."""
    found = hashlib.new(algorithm, path.read_bytes()).digest()
    return f"{algorithm}={urlsafe_b64encode(found).rstrip(b'=').decode()}"


def _library_problems() -> Iterator[str]:
    """Without torch in the process, loaders do not find PyTorch's libraries. Windows does not name them."""
    try:
        ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        if "libtorch.so" not in str(error) and sys.platform != WINDOWS:
            yield f"{LIBRARY} does not load: {error}"
