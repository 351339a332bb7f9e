"""Whether all programs read a zip file alike.

Some installers follow the directory at the end, others the headers before each file. If the two differ, or
bytes belong to neither, an installer may install other bytes than were checked.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipInfo

# signature, version, flags, method, time, date, CRC-32, packed size, size, length of name, length of extra
_LOCAL = struct.Struct("<4s5HIIIHH")
_LOCAL_SIGNATURE = b"PK\x03\x04"
# signature, disk, disk of the directory, entries here, entries, its size, its offset, length of comment
_END = struct.Struct("<4s4HIIH")
_END_SIGNATURE = b"PK\x05\x06"
# In each entry of the directory, after 28 bytes: length of name, of extra, of comment, then 12 bytes more.
_LENGTHS, _LENGTHS_AT, _ENTRY_BYTES = struct.Struct("<3H"), 28, 46
_UTF8 = 0x800
METHODS = {ZIP_STORED: "stored", ZIP_DEFLATED: "deflated"}


def layout_problems(data: bytes, entries: Sequence[ZipInfo], directory: int) -> Iterator[str]:
    """Deviations of ``data`` from a plain row of its entries followed by the directory at that offset."""
    yield from _end_problems(data, len(entries), directory)
    yield from _directory_problems(data, len(entries), directory)
    for entry in entries:
        # Some programs take names and sizes from extra fields, or look for sizes after the bytes.
        if entry.extra or entry.comment:
            yield f"{entry.filename!r} has an extra field or a comment in the directory"
        if entry.flag_bits & ~_UTF8:
            yield f"{entry.filename!r} has the flags {entry.flag_bits:#x}, expected at most {_UTF8:#x}"
    position = 0
    for entry in sorted(entries, key=lambda each: each.header_offset):
        if entry.header_offset != position:
            yield f"{entry.filename!r} begins at byte {entry.header_offset}, where {position} was expected"
            return
        position, problems = _read_local(data, entry)
        yield from problems
        if problems:
            return
    if position != directory:
        yield f"its directory begins at byte {directory}, where {position} was expected"


def _end_problems(data: bytes, entries: int, directory: int) -> Iterator[str]:
    """Deviations of the end record from a plain file with these entries."""
    if len(data) < _END.size or data[-_END.size :][:4] != _END_SIGNATURE:
        yield "it does not end with the end of its directory: there is a comment, or something was added"
        return
    at = len(data) - _END.size
    _, disk, first_disk, here, total, size, offset, comment = _END.unpack_from(data, at)
    found = {
        "disk number": (disk, 0),
        "disk of the directory": (first_disk, 0),
        "entries on this disk": (here, entries),
        "entries": (total, entries),
        "size of the directory": (size, at - directory),
        "offset of the directory": (offset, directory),
        "bytes of comment": (comment, 0),
    }
    for name, (said, expected) in found.items():
        if said != expected:
            yield f"the record at its end says {said} for {name}, where {expected} was expected"


def _directory_problems(data: bytes, entries: int, directory: int) -> Iterator[str]:
    """Whether the entries, by their lengths, fill the directory. zipfile accepts fewer."""
    at, end = directory, len(data) - _END.size
    for _ in range(entries):
        if at + _ENTRY_BYTES > end:
            break
        at += _ENTRY_BYTES + sum(_LENGTHS.unpack_from(data, at + _LENGTHS_AT))
    if at != end:
        yield f"the entries of its directory end at byte {at}, where {end} was expected"


def ends_itself(data: bytes, entry: ZipInfo) -> bool:
    """Whether a packed stream ends at the size in the directory. Some programs skip this check."""
    if entry.compress_type != ZIP_DEFLATED:
        return True
    end, _ = _read_local(data, entry)
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    stream.decompress(data[end - entry.compress_size : end], entry.file_size + 1)
    return stream.eof and not stream.unused_data


def _read_local(data: bytes, entry: ZipInfo) -> tuple[int, list[str]]:
    """Where the entry's bytes end, and how its own header differs from the directory."""
    start = entry.header_offset
    if len(data) < start + _LOCAL.size:
        return start, [f"{entry.filename!r} has no header"]
    signature, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes = _LOCAL.unpack_from(
        data, start
    )
    body = start + _LOCAL.size + name_bytes + extra_bytes
    name = data[start + _LOCAL.size : start + _LOCAL.size + name_bytes]
    said = [signature, flags, method, name, crc, packed, size, extra_bytes]
    listed: list[object] = [_LOCAL_SIGNATURE, entry.flag_bits, entry.compress_type, _encoded(entry)]
    listed += [entry.CRC, entry.compress_size, entry.file_size, 0]
    differs = said != listed
    problems = [f"{entry.filename!r} has a header that differs from the directory"] if differs else []
    return body + entry.compress_size, problems


def _encoded(entry: ZipInfo) -> bytes:
    # As zipfile decoded it, but whole where zipfile cuts a name off at a NUL.
    return entry.orig_filename.encode("utf-8" if entry.flag_bits & _UTF8 else "cp437")
