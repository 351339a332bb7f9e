"""Compressed offload bundles: a header, then a bundle compressed by zlib or zstd.

The header is "CCOB", version (u16), method (u16: 0 zlib, 1 zstd), the packed size including the header
(absent in version 1), the unpacked size, and a hash of the unpacked bytes (u64). Sizes are u32, from version
3 on u64. All numbers are little endian.

A method of our own, 2, is for archs that resemble each other: the hash (u64) of another bundle's content, the
base, then zstd's frame, which refers to the base as if it stood before its own content. A base has none.

Input is untrusted: sizes are limited and checked.
"""

import hashlib
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import zstandard

from wheel_builder.base.errors import FatbinError
from wheel_builder.files.device.fatbin import (
    ALIGNMENT,
    COMPRESSED_MAGIC,
    SECTION,
    CodeObject,
    bundle_starts,
    read_fatbin,
)

VERSION, ZSTD, ZSTD_WITH_BASE = 3, 1, 2  # of our own
BASE_HASH = struct.Struct("<Q")
HEADERS = {1: "<4sHHIQ", 2: "<4sHHIIQ", 3: "<4sHHQQQ"}
MAX_MIB = 2048
MAX_OWN_MIB = 256
MAX_ARCH = 64 << 20  # bytes that the library unpacks at once: kMost in kernels/host/registry/unpack.cpp
REBUILD = "build the wheel again: wheel_builder/files/device/packing.py writes its bundles"


@dataclass(frozen=True)
class Compressed:
    """A compressed bundle: its first byte and end in its section, and its content."""

    start: int
    end: int
    content: bytes


@dataclass(frozen=True)
class _Header:
    """Where a bundle starts, and what is compressed begins and ends, at most. The size of the content."""

    version: int
    method: int
    start: int
    begin: int
    end: int
    size: int

    @property
    def has_base(self) -> bool:
        return (self.version, self.method) == (VERSION, ZSTD_WITH_BASE)


def expand(data: bytes, max_mib: int = MAX_MIB) -> bytes:
    """A section's bundles, with compressed ones unpacked, to ``max_mib`` in all.

    Raises ``FatbinError`` if a bundle's content contradicts its header.
    """
    found = compressed_bundles(data, max_mib)
    contents = (each.content + bytes(-len(each.content) % ALIGNMENT) for each in found)
    return b"".join(contents) + data[_next(found[-1].end) if found else 0 :]


def compressed_bundles(data: bytes, max_mib: int = MAX_MIB) -> tuple[Compressed, ...]:
    """The compressed bundles at the begin of a section. Raises ``FatbinError`` as ``expand``."""
    found: list[Compressed] = []
    waiting: list[tuple[int, _Header]] = []
    start, left = 0, max_mib << 20
    while data[start : start + len(COMPRESSED_MAGIC)] == COMPRESSED_MAGIC:
        header = _header(data, start, left)
        content, end = (b"", header.end) if header.has_base else _unpacked(data, header)
        waiting += [(len(found), header)] if header.has_base else []
        found.append(Compressed(start, end, content))
        left -= header.size
        if data[end : (after := _next(end))].strip(b"\0"):
            raise _error(start, f"the bytes {end} to {after} after it are not padding")
        start = after
    for number, content in _unpacked_with_bases(data, waiting, tuple(found)):
        found[number] = replace(found[number], content=content)
    return tuple(found)


def packed_bundles(data: bytes) -> tuple[Compressed, ...]:
    """The bundles in a section of our own library: nothing but what its loader unpacks.

    Raises ``FatbinError`` for another form than that of ``wheel_builder/files/device/packing.py``.
    """
    found = compressed_bundles(data, MAX_OWN_MIB)
    end = _next(found[-1].end) if found else 0
    if data[end:].strip(b"\0"):
        raise _error(end, "it is not compressed", REBUILD)
    for each in found:
        _, version, method, *_, hashed = struct.unpack_from(HEADERS[VERSION], data, each.start)
        if version != VERSION or method not in (ZSTD, ZSTD_WITH_BASE):
            expected = f"expected {VERSION} and {ZSTD} or {ZSTD_WITH_BASE} (zstd)"
            raise _error(each.start, f"it has version {version} and method {method}, {expected}", REBUILD)
        if (size := len(each.content)) > MAX_ARCH:
            raise _error(each.start, f"it holds {size} bytes, the library unpacks {MAX_ARCH}", REBUILD)
        if hashed != content_hash(each.content):
            raise _error(each.start, f"its content has not the hash {hashed:#x} of its header", REBUILD)
    return found


def zstd_prefix(base: bytes) -> zstandard.ZstdCompressionDict | None:
    """What zstd takes as standing before a content."""
    return zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT) if base else None


def content_hash(content: bytes) -> int:
    """The hash in the header, as clang writes it."""
    return int.from_bytes(hashlib.md5(content, usedforsecurity=False).digest()[:8], "little")


def read_packed(data: bytes) -> tuple[CodeObject, ...]:
    """The code objects in a section of our own library. Raises ``FatbinError`` as ``packed_bundles``."""
    return tuple(code for each in packed_bundles(data) for code in _of_one_arch(each))


def _of_one_arch(bundle: Compressed) -> tuple[CodeObject, ...]:
    codes = read_fatbin(bundle.content)
    if len(archs := sorted({code.arch for code in codes})) != 1:
        raise _error(bundle.start, f"it is for {', '.join(archs) or 'no arch'}, expected one arch", REBUILD)
    if len(bundle_starts(bundle.content)) != len(codes):
        raise _error(bundle.start, "a bundle in it has not exactly one code object", REBUILD)
    return codes


def _next(end: int) -> int:
    return -(-end // ALIGNMENT) * ALIGNMENT


def _header(data: bytes, start: int, most: int) -> _Header:
    """The header of the compressed bundle at ``start``, whose content has at most ``most`` bytes."""
    version = int.from_bytes(data[start + 4 : start + 6], "little")
    if version not in HEADERS:
        raise _error(start, f"version {version} is not one of {', '.join(map(str, HEADERS))}")
    form = HEADERS[version]
    begin = start + struct.calcsize(form)
    if begin > len(data):
        raise _error(start, "its header is cut off")
    _, _, method, *sizes, _ = struct.unpack_from(form, data, start)
    total, size = (len(data) - start, *sizes) if version == 1 else sizes
    if not begin - start < total <= len(data) - start:
        raise _error(start, f"it claims {total} bytes of {len(data) - start}")
    if size > most:
        raise _error(start, f"it claims to hold {size} bytes, more than the {most} allowed")
    return _Header(version, method, start, begin, start + total, size)


def _unpacked(
    data: bytes, header: _Header, prefix: zstandard.ZstdCompressionDict | None = None
) -> tuple[bytes, int]:
    """A bundle's content, and the bundle's end."""
    start, size = header.start, header.size
    found, rest, ended = _decompress(data[header.begin : header.end], header.method, size, start, prefix)
    if rest and header.version != 1:
        raise _error(start, f"{rest} bytes follow its content")
    if len(found) != size:
        raise _error(start, f"it holds {len(found)} bytes or more, its header says {size}")
    if not ended:
        raise _error(start, "its compressed data is cut off behind the content")
    return found, header.end - rest


def _unpacked_with_bases(
    data: bytes, waiting: Sequence[tuple[int, _Header]], found: Sequence[Compressed]
) -> Iterator[tuple[int, bytes]]:
    """The contents of ``waiting``, numbered bundles with a base: one of ``found``.

    zstd copies a base, so its bundles are unpacked together. Of contents with one hash the first is the base,
    as for the library.
    """
    if not waiting:
        return
    bases = {content_hash(each.content): each.content for each in reversed(found) if each.content}

    def wanted(numbered: tuple[int, _Header]) -> int:
        return _hash_of_base(data, numbered[1])

    for hashed, group in groupby(sorted(waiting, key=wanted), wanted):
        bundles = tuple(group)
        if hashed not in bases:
            what = f"its base, the content with hash {hashed:#x}, is missing"
            raise _error(bundles[0][1].start, what, "name the library or the wheel with both")
        prefix = zstd_prefix(bases[hashed])
        for number, header in bundles:
            frame = replace(header, begin=header.begin + BASE_HASH.size)
            yield number, _unpacked(data, frame, prefix)[0]


def _hash_of_base(data: bytes, header: _Header) -> int:
    if header.begin + BASE_HASH.size > header.end:
        raise _error(header.start, "its header is cut off")
    return int(BASE_HASH.unpack_from(data, header.begin)[0])


def _decompress(
    data: bytes, method: int, size: int, start: int, prefix: zstandard.ZstdCompressionDict | None
) -> tuple[bytes, int, bool]:
    """The unpacked data, at most ``size`` + 1 bytes, the bytes left after the stream, and whether it ended.

    A stream that was cut off can have all of its content, without its checksum. Loaders refuse it.
    """
    try:
        if method == 0:
            inflate = zlib.decompressobj()
            return inflate.decompress(data, size + 1), len(inflate.unused_data), inflate.eof
        if method == ZSTD or prefix:
            frame = zstandard.get_frame_parameters(data)
            if frame.content_size != size:  # once equal, zstd itself stops there
                raise _error(start, f"it holds {frame.content_size} bytes, its header says {size}")
            unpacker = zstandard.ZstdDecompressor(prefix, max_window_size=1 << 27)
            unpack = unpacker.decompressobj()
            return unpack.decompress(data), len(unpack.unused_data), unpack.eof
    except (zlib.error, zstandard.ZstdError) as error:
        raise _error(start, f"it cannot be decompressed: {error}") from error
    raise _error(start, f"its compression method {method} is neither zlib (0) nor zstd (1)")


def _error(start: int, what: str, advice: str = "is the file complete? name another one") -> FatbinError:
    return FatbinError(f"compressed offload bundle at byte {start} of {SECTION}: {what}", advice=advice)
