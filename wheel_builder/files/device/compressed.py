"""Compressed offload bundles: a header, then a bundle compressed by zlib or zstd.

The header is "CCOB", version (u16), method (u16: 0 zlib, 1 zstd), the packed size including the header
(absent in version 1), the unpacked size, and a hash of the unpacked bytes (u64). Sizes are u32, from version
3 on u64. All numbers are little endian.

Input is untrusted: sizes are limited and checked.
"""

import struct
import zlib

import zstandard

from wheel_builder.base.errors import FatbinError
from wheel_builder.files.device.fatbin import ALIGNMENT, COMPRESSED_MAGIC, SECTION

HEADERS = {1: "<4sHHIQ", 2: "<4sHHIIQ", 3: "<4sHHQQQ"}
MAX_MIB = 2048


def expand(data: bytes) -> bytes:
    """A section's bundles, with compressed ones unpacked.

    Raises ``FatbinError`` if a bundle's content contradicts its header.
    """
    out, start = bytearray(), 0
    while data[start : start + len(COMPRESSED_MAGIC)] == COMPRESSED_MAGIC:
        bundle, size = _bundle(data, start)
        out += bundle + bytes(-len(bundle) % ALIGNMENT)
        start += size + -size % ALIGNMENT
    return bytes(out) + data[start:]


def _bundle(data: bytes, start: int) -> tuple[bytes, int]:
    """The content of the compressed bundle at ``start``, and the compressed size."""
    version = int.from_bytes(data[start + 4 : start + 6], "little")
    if version not in HEADERS:
        raise _error(start, f"version {version} is not one of {', '.join(map(str, HEADERS))}")
    header = HEADERS[version]
    begin = start + struct.calcsize(header)
    if begin > len(data):
        raise _error(start, "its header is cut off")
    _, _, method, *sizes, _ = struct.unpack_from(header, data, start)
    total, size = (len(data) - start, *sizes) if version == 1 else sizes
    if not begin - start < total <= len(data) - start:
        raise _error(start, f"it claims {total} bytes of {len(data) - start}")
    if size > MAX_MIB << 20:
        raise _error(start, f"it claims to hold {size} bytes, more than {MAX_MIB} MiB")
    found, rest = _decompress(data[begin : start + total], method, size, start)
    if len(found) != size:
        raise _error(start, f"it holds {len(found)} bytes or more, its header says {size}")
    return found, total - rest if version == 1 else total


def _decompress(data: bytes, method: int, size: int, start: int) -> tuple[bytes, int]:
    """The unpacked data, at most ``size`` + 1 bytes, and the number of bytes left after the stream."""
    try:
        if method == 0:
            inflate = zlib.decompressobj()
            return inflate.decompress(data, size + 1), len(inflate.unused_data)
        if method == 1:
            frame = zstandard.get_frame_parameters(data)
            if frame.content_size != size:  # once equal, zstd itself stops there
                raise _error(start, f"it holds {frame.content_size} bytes, its header says {size}")
            unpack = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
            return unpack.decompress(data), len(unpack.unused_data)
    except (zlib.error, zstandard.ZstdError) as error:
        raise _error(start, f"it cannot be decompressed: {error}") from error
    raise _error(start, f"its compression method {method} is neither zlib (0) nor zstd (1)")


def _error(start: int, what: str) -> FatbinError:
    message = f"compressed offload bundle at byte {start} of {SECTION}: {what}"
    return FatbinError(message, advice="is the file complete? name another one")
