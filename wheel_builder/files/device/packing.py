"""Writes an arch's device code in one compressed bundle, which the host library unpacks.

The bundle has clang's form for compressed ones (wheel_builder/files/device/compressed.py). It holds an
uncompressed bundle per code object, in the order of their names. All of an arch are compressed together,
because kernels resemble each other. Equal code objects give equal bytes.
"""

import struct
from collections.abc import Mapping
from pathlib import Path

import zstandard

from wheel_builder.base.store import sha256_file
from wheel_builder.files.device.compressed import HEADERS, VERSION, ZSTD, content_hash
from wheel_builder.files.device.fatbin import ALIGNMENT, COMPRESSED_MAGIC, DEVICE_PREFIXES, HOST_PREFIX, MAGIC

SUFFIX = ".hipfb"
HOST = f"{HOST_PREFIX}x86_64-unknown-linux-gnu-"
LEVEL = 22
WINDOW_LOG = 23  # 8 MiB: all code of an arch
# All that the bytes depend on besides the code objects: part of the keys of packed code and of wheels.
SETTINGS = {"zstd": ".".join(map(str, zstandard.ZSTD_VERSION)), "packer": sha256_file(Path(__file__))}


def packed(arch: str, objects: Mapping[str, bytes]) -> bytes:
    """The compressed bundle of an arch's code objects, given by name."""
    content = b"".join(_bundle(arch, objects[name]) for name in sorted(objects))
    settings = zstandard.ZstdCompressionParameters.from_level(
        LEVEL, window_log=WINDOW_LOG, write_content_size=True, write_checksum=True, threads=0
    )
    frame = zstandard.ZstdCompressor(compression_params=settings).compress(content)
    sizes = (struct.calcsize(HEADERS[VERSION]) + len(frame), len(content))
    mark = (COMPRESSED_MAGIC, VERSION, ZSTD)
    return struct.pack(HEADERS[VERSION], *mark, *sizes, content_hash(content)) + frame


def _bundle(arch: str, code: bytes) -> bytes:
    """An uncompressed bundle as clang writes it: an empty host entry, and a code object."""
    contents = {HOST: b"", f"{DEVICE_PREFIXES[0]}{arch}": code}
    table = MAGIC + struct.pack("<Q", len(contents))
    for name, data in contents.items():
        table += struct.pack("<QQQ", ALIGNMENT, len(data), len(name)) + name.encode("ascii")
    return _padded(table) + _padded(code)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)
