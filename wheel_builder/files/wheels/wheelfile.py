"""Open an untrusted wheel: a zip whose every claim is checked before use."""

import base64
import csv
import hashlib
import io
import re
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.errors import MessageError
from email.parser import BytesParser
from itertools import islice
from pathlib import Path, PurePosixPath

from packaging.metadata import InvalidMetadata, Metadata
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from wheel_builder.base.errors import WheelFileError
from wheel_builder.base.plain import MIB, read_plain
from wheel_builder.files.wheels.ziplayout import METHODS, ends_itself, layout_problems

# The audit checks the budget. This limit only bounds memory.
MAX_READ_MIB = 64.0
# Uncompressed offload bundles, of early wheels, shrink to a sixth. Our wheels always expand less than this.
MAX_EXPANSION = 32
# Each file has this limit too, except files below this size.
FREE_BYTES = MIB
MAX_ENTRIES = 10_000
# The limit of file systems for one part of a path, and a generous one for whole paths.
MAX_NAME_BYTES, MAX_PATH_BYTES = 255, 1000
RECORD_HASH = "sha256"
MSDOS_FOLDER = 0x10
NAMED = 5  # lines shown for a file; it may have millions
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9-]*: \S(.*\S)?")


@dataclass(frozen=True)
class WheelFile:
    """A wheel in memory: ``files`` maps names inside to bytes. ``data`` is the whole file."""

    path: Path
    name: str
    version: Version
    tags: frozenset[Tag]
    files: Mapping[str, bytes]
    data: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def dist_info(self) -> str:
        """The dist-info folder's name, from the file name, with no slash."""
        return "-".join(self.path.name.split("-")[:2]) + ".dist-info"

    @property
    def metadata_bytes(self) -> bytes:
        """METADATA, empty if missing."""
        return self.files.get(f"{self.dist_info}/METADATA", b"")


def read_wheel(path: Path, *, max_mib: float) -> WheelFile:
    """Read a wheel. Raises ``WheelFileError`` with all problems of its name and zip structure.

    ``max_mib`` is the budget of the packed file. Files many times larger are refused unread. Files that would
    unpack to more than ``MAX_EXPANSION`` times the budget are refused before unpacking.
    """
    _parsed(path)
    limit = _limit(max_mib)
    try:
        data = read_plain(path, limit)
    except OSError as error:
        raise _refusal(path, [f"cannot be read: {error}"]) from error
    return open_wheel(path, data, max_mib=max_mib)


def open_wheel(path: Path, data: bytes, *, max_mib: float) -> WheelFile:
    """The wheel at ``path`` with ``data`` as its bytes. Raises as ``read_wheel`` does."""
    name, version, tags = _parsed(path)
    return WheelFile(path, name, version, tags, _unpack(path, data, _limit(max_mib)), data)


def read_metadata(wheel: WheelFile) -> Metadata:
    """METADATA, checked against the core metadata specification. Raises ``WheelFileError``."""
    try:
        return Metadata.from_email(wheel.metadata_bytes)
    except* (InvalidMetadata, MessageError, ValueError) as errors:
        problems = [f"METADATA: {error}" for error in _leaves(errors)]
    raise _refusal(wheel.path, problems)


def wheel_headers(wheel: WheelFile) -> Mapping[str, tuple[str, ...]]:
    """The fields of the WHEEL file, empty if missing."""
    return _headers(wheel.files.get(f"{wheel.dist_info}/WHEEL", b""))[0]


def metadata_headers(wheel: WheelFile) -> tuple[Mapping[str, tuple[str, ...]], bytes]:
    """The fields of METADATA as written, and its description, empty if missing."""
    return _headers(wheel.metadata_bytes)


def _headers(text: bytes) -> tuple[Mapping[str, tuple[str, ...]], bytes]:
    """Fields by the first spelling of their names, and the body."""
    message = BytesParser().parsebytes(text)
    # Keys are compared case-insensitively, as in installers.
    names = {key.casefold(): key for key in reversed(message.keys())}
    body = message.get_payload(decode=True) if not message.is_multipart() else b""
    fields = {key: tuple(str(v) for v in message.get_all(key, [])) for key in names.values()}
    return fields, body if isinstance(body, bytes) else b""


def wheel_text_problems(wheel: WheelFile) -> Iterator[str]:
    """Lines of the WHEEL file that installers would read differently, as they are no plain fields."""
    name = f"{wheel.dist_info}/WHEEL"
    try:
        text = wheel.files.get(name, b"").decode("utf-8")
    except UnicodeDecodeError as error:
        yield f"{name} is not UTF-8: {error.reason} at byte {error.start}"
        return
    odd = (
        f"{name}: line {number} is {line[:80]!r}, expected 'Field: value'"
        for number, line in enumerate(text.rstrip("\n").split("\n"), 1)
        if not (_FIELD.fullmatch(line) and line.isprintable())
    )
    yield from islice(odd, NAMED)


def record_problems(wheel: WheelFile) -> Iterator[str]:
    """All differences between RECORD and the files. Each row must have three columns."""
    record = f"{wheel.dist_info}/RECORD"
    if record not in wheel.files:
        yield f"{record} is missing"
        return
    try:
        rows = list(csv.reader(io.StringIO(wheel.files[record].decode("utf-8")), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        yield f"{record} cannot be read: {error}"
        return
    # pip stops at an empty row, uv at a row of another length.
    odd = (
        f"{record}: row {number} has {len(row)} columns, expected 3"
        for number, row in enumerate(rows, 1)
        if len(row) != 3
    )
    yield from islice(odd, NAMED)
    rows = [row for row in rows if len(row) == 3]
    listed = {row[0]: row for row in rows}
    yield from (f"{name} is listed {n} times" for name, n in Counter(r[0] for r in rows).items() if n > 1)
    yield from (
        f"{name} is listed but not in the wheel" for name in sorted(listed.keys() - wheel.files.keys())
    )
    yield from (
        f"{name} is in the wheel but not listed" for name in sorted(wheel.files.keys() - listed.keys())
    )
    for name in sorted(listed.keys() & wheel.files.keys()):
        data = wheel.files[name]
        found, expected = (
            listed[name][1:],
            ["", ""] if name == record else [record_hash(data), str(len(data))],
        )
        if found != expected:
            said, is_now = (",".join(filter(None, each)) or "nothing" for each in (found, expected))
            yield f"{name} is listed as {said}, but is {is_now}"


def record_hash(data: bytes) -> str:
    """As RECORD writes it."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"{RECORD_HASH}={digest}"


def _limit(max_mib: float) -> int:
    return int(max_mib * MIB * MAX_EXPANSION)


def _parsed(path: Path) -> tuple[str, Version, frozenset[Tag]]:
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise _refusal(path, [f"not a wheel's file name: {error}"]) from error
    return name, version, tags


def _unpack(path: Path, data: bytes, limit: int) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            problems = [
                *_entry_problems(entries, limit),
                *layout_problems(data, entries, archive.start_dir),
            ]
            if problems:
                raise _refusal(path, problems)
            return {entry.filename: _read_entry(archive, entry, data) for entry in entries}
    # RuntimeError: encrypted. NotImplementedError: a compression unknown to zipfile.
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        raise _refusal(path, [f"not a readable zip file: {error}"]) from error


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, packed: bytes) -> bytes:
    # Reading only the promised size bounds the unpacked bytes. Otherwise zipfile unpacks everything at once.
    with archive.open(entry) as stream:
        data = stream.read(entry.file_size)
    if len(data) != entry.file_size:
        message = f"{entry.filename!r} holds {len(data)} bytes, not {entry.file_size}"
        raise zipfile.BadZipFile(message)
    if not ends_itself(packed, entry):
        message = f"{entry.filename!r} is packed into a stream that does not end where the directory says"
        raise zipfile.BadZipFile(message)
    return data


def _entry_problems(entries: list[zipfile.ZipInfo], limit: int) -> Iterator[str]:
    if len(entries) > MAX_ENTRIES:
        yield f"it has {len(entries)} entries; the most that is unpacked is {MAX_ENTRIES}"
        return
    yield from _name_problems(entries)
    for entry in entries:
        kind = stat.S_IFMT(entry.external_attr >> 16)
        # Installers create folders as needed. A folder made for such an entry would never be removed.
        if entry.filename.endswith("/") or kind == stat.S_IFDIR or entry.external_attr & MSDOS_FOLDER:
            yield f"{entry.filename!r} is an entry for a folder; a wheel has entries for files only"
        elif kind not in (0, stat.S_IFREG):
            yield f"{entry.filename!r} is not a regular file (a link or a device)"
        if entry.compress_type not in METHODS:
            expected = " or ".join(METHODS.values())
            yield f"{entry.filename!r} is packed with method {entry.compress_type}, expected {expected}"
        if entry.file_size > max(FREE_BYTES, MAX_EXPANSION * entry.compress_size):
            most = f"at most {MAX_EXPANSION} times its packed size"
            yield f"{entry.filename!r} unpacks from {entry.compress_size} to {entry.file_size} bytes; {most}"
    total = sum(entry.file_size for entry in entries)
    if total > limit:
        yield f"it unpacks to {total} bytes; the most that is unpacked is {limit}"


def _name_problems(entries: list[zipfile.ZipInfo]) -> Iterator[str]:
    counts = Counter(entry.filename for entry in entries)
    yield from (f"{name!r} is in it {count} times" for name, count in counts.items() if count > 1)
    for entry in entries:
        if entry.filename != entry.orig_filename:
            yield f"{entry.orig_filename!r} is read as {entry.filename!r}"
    if unsafe := [name for name in counts if not _is_safe(name)]:
        yield from (f"{name[:MAX_PATH_BYTES]!r} is not a path inside the wheel" for name in unsafe)
        return
    folders = {str(folder) for name in counts for folder in PurePosixPath(name).parents}
    yield from (f"{name!r} is both a file and a folder" for name in sorted(counts.keys() & folders))


def _is_safe(name: str) -> bool:
    parts = name.removesuffix("/").split("/")
    return (
        name.isprintable()
        and len(name.encode()) <= MAX_PATH_BYTES
        and not any(character in name for character in '\\:"')
        and not PurePosixPath(name).is_absolute()
        and all(part not in ("", ".", "..") and len(part.encode()) <= MAX_NAME_BYTES for part in parts)
    )


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _refusal(path: Path, problems: list[str]) -> WheelFileError:
    return WheelFileError(
        f"{path.name}: not a wheel that can be opened safely",
        problems,
        advice="build the wheel again; do not install this file",
    )
