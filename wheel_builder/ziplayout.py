"""Whether a zip file says the same to everyone who reads it.

Some installers follow the directory at the end, others the headers before each file.  Where the two
differ, or bytes belong to neither, what one program checked is not what another installs.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipInfo

# signature, version, flags, method, time, date, CRC-32, packed size, size, length of name, length of extra
_LOCAL = struct.Struct("<4s5HIIIHH")
_LOCAL_SIGNATURE = b"PK\x03\x04"
_END = b"PK\x05\x06"
_END_BYTES = 22
_UTF8, _SIZES_FOLLOW = 0x800, 0x8
_DESCRIPTOR_BYTES = (12, 16, 20, 24)  # with and without a signature, with sizes of 4 or 8 bytes
METHODS = {ZIP_STORED: "stored", ZIP_DEFLATED: "deflated"}


def layout_problems(data: bytes, entries: Sequence[ZipInfo], directory: int) -> Iterator[str]:
    """Everything in which ``data`` is not a plain row of its entries, then the directory at that offset."""
    if data[-_END_BYTES:][:4] != _END:
        yield "it does not end with the end of its directory: there is a comment, or something was added"
    position = 0
    for entry in sorted(entries, key=lambda each: each.header_offset):
        if entry.header_offset != position:
            yield f"{entry.filename!r} begins at byte {entry.header_offset}, where {position} was expected"
            return
        end, problems = _read_local(data, entry)
        yield from problems
        if problems:
            return
        position = _after_descriptor(entry, end, entries, directory)
    if position != directory:
        yield f"its directory begins at byte {directory}, where {position} was expected"


def ends_itself(data: bytes, entry: ZipInfo) -> bool:
    """Whether a packed entry has its own end where the directory says; not all programs insist."""
    if entry.compress_type != ZIP_DEFLATED:
        return True
    end, _ = _read_local(data, entry)
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    stream.decompress(data[end - entry.compress_size : end], entry.file_size + 1)
    return stream.eof and not stream.unused_data


def _read_local(data: bytes, entry: ZipInfo) -> tuple[int, list[str]]:
    """Where the entry's bytes end, and in what its own header differs from the directory."""
    start = entry.header_offset
    if len(data) < start + _LOCAL.size:
        return start, [f"{entry.filename!r} has no header"]
    signature, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes = _LOCAL.unpack_from(
        data, start
    )
    body = start + _LOCAL.size + name_bytes + extra_bytes
    name = data[start + _LOCAL.size : start + _LOCAL.size + name_bytes]
    said = [signature, flags, method, name]
    listed: list[object] = [_LOCAL_SIGNATURE, entry.flag_bits, entry.compress_type, _encoded(entry)]
    if not flags & _SIZES_FOLLOW:
        said += [crc, packed, size]
        listed += [entry.CRC, entry.compress_size, entry.file_size]
    differs = said != listed
    problems = [f"{entry.filename!r} has a header that differs from the directory"] if differs else []
    return body + entry.compress_size, problems


def _encoded(entry: ZipInfo) -> bytes:
    # As zipfile decoded it; a name that it cut off at a NUL is whole here.
    return entry.orig_filename.encode("utf-8" if entry.flag_bits & _UTF8 else "cp437")


def _after_descriptor(entry: ZipInfo, end: int, entries: Sequence[ZipInfo], directory: int) -> int:
    if not entry.flag_bits & _SIZES_FOLLOW:
        return end
    later = [each.header_offset for each in entries if each.header_offset > entry.header_offset]
    following = min(later, default=directory)
    return following if following - end in _DESCRIPTOR_BYTES else end
