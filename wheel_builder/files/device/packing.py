"""Writes an arch's device code in one compressed bundle, which the host library unpacks.

The bundle has clang's form for compressed ones (wheel_builder/files/device/compressed.py). It holds an
uncompressed bundle per code object, in the order of their names. All of an arch are compressed together,
because kernels resemble each other, and so do archs: with the content of another arch's bundle at hand, only
differences are written. Equal code objects give equal bytes.
"""

import struct
from collections.abc import Mapping
from pathlib import Path

import zstandard

from wheel_builder.base.store import sha256_file
from wheel_builder.files.device.compressed import (
    BASE_HASH,
    HEADERS,
    VERSION,
    ZSTD,
    ZSTD_WITH_BASE,
    content_hash,
    zstd_prefix,
)
from wheel_builder.files.device.fatbin import ALIGNMENT, COMPRESSED_MAGIC, DEVICE_PREFIXES, HOST_PREFIX, MAGIC
from wheel_builder.tables.archs import known_archs

SUFFIX = ".hipfb"
HOST = f"{HOST_PREFIX}x86_64-unknown-linux-gnu-"
LEVEL = 22
WINDOW_LOG = 23  # 8 MiB: all code of an arch
# All that the bytes depend on besides the code objects: part of the keys of packed code and of wheels.
SETTINGS = {"zstd": ".".join(map(str, zstandard.ZSTD_VERSION)), "packer": sha256_file(Path(__file__))}


def base_of(arch: str, kernels: Mapping[str, int]) -> str | None:
    """The arch whose code is the base of that of ``arch``, from the number of kernels by arch.

    Of the archs with the same matrix unit it is the one with most kernels, which itself has none. So the
    library unpacks two bundles at most.
    """
    unit = known_archs()[arch].isa.unit
    alike = (each for each in kernels if known_archs()[each].isa.unit == unit)
    largest = min(alike, key=lambda each: (-kernels[each], each))
    return None if largest == arch else largest


def content_of(arch: str, objects: Mapping[str, bytes]) -> bytes:
    """What the bundle of an arch's code objects holds. They are given by name."""
    return b"".join(_bundle(arch, objects[name]) for name in sorted(objects))


def packed(arch: str, objects: Mapping[str, bytes], base: bytes = b"") -> bytes:
    """The compressed bundle of an arch's code objects, given by name.

    ``base``: the content of another bundle, needed for unpacking. That one is packed without a base.
    """
    content = content_of(arch, objects)
    settings = zstandard.ZstdCompressionParameters.from_level(
        LEVEL, window_log=WINDOW_LOG, write_content_size=True, write_checksum=True, threads=0
    )
    compressor = zstandard.ZstdCompressor(compression_params=settings, dict_data=zstd_prefix(base))
    data = (BASE_HASH.pack(content_hash(base)) if base else b"") + compressor.compress(content)
    sizes = (struct.calcsize(HEADERS[VERSION]) + len(data), len(content))
    mark = (COMPRESSED_MAGIC, VERSION, ZSTD_WITH_BASE if base else ZSTD)
    return struct.pack(HEADERS[VERSION], *mark, *sizes, content_hash(content)) + data


def _bundle(arch: str, code: bytes) -> bytes:
    """An uncompressed bundle as clang writes it: an empty host entry, and a code object."""
    contents = {HOST: b"", f"{DEVICE_PREFIXES[0]}{arch}": code}
    table = MAGIC + struct.pack("<Q", len(contents))
    for name, data in contents.items():
        table += struct.pack("<QQQ", ALIGNMENT, len(data), len(name)) + name.encode("ascii")
    return _padded(table) + _padded(code)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)
