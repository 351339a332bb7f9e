"""The device code in a HIP program: offload bundles, each with one code object per gfx arch.

A ``.hip_fatbin`` section is a row of bundles, each beginning at a multiple of 4096.  A bundle is
24 bytes of magic, the number of entries (u64), then per entry offset, size and length of its id
(u64 each) and the id. Offsets count from the bundle's first byte.  All numbers are little endian.

Input is untrusted: every number is checked before it is used.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from wheel_builder.base.errors import FatbinError
from wheel_builder.files.binaries.elf import Elf, section_bytes
from wheel_builder.tables.archs import known_gpus

SECTION = ".hip_fatbin"
MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"
ALIGNMENT = 4096
HOST_PREFIX = "host-"
DEVICE_PREFIXES = ("hipv4-amdgcn-amd-amdhsa--", "hip-amdgcn-amd-amdhsa--")
KERNEL_SUFFIX = ".kd"

MACH_MASK = 0xFF  # of an ELF header's e_flags


@dataclass(frozen=True)
class CodeObject:
    """One arch's ELF. ``arch`` as its bundle names it ("gfx942", or "gfx90a:xnack+")."""

    arch: str
    data: bytes

    @property
    def gfx(self) -> str:
        """The arch without target features."""
        return gfx_of(self.arch)


@dataclass(frozen=True)
class _Entry:
    target: str
    begin: int
    end: int


def gfx_of(arch: str) -> str:
    """The arch without target features: "gfx942" for "gfx942:sramecc+:xnack-"."""
    return arch.partition(":")[0]


def compilers(code_object: bytes) -> frozenset[str]:
    """The releases of clang named in a code object, such as 22.1.8."""
    comment = section_bytes(code_object, ".comment") or b""
    return frozenset(found.decode() for found in re.findall(rb"clang version (\d+\.\d+\.\d+)", comment))


def read_fatbin(data: bytes) -> tuple[CodeObject, ...]:
    """The code objects of all bundles in ``data``, in their order. Host entries are left out.

    Raises ``FatbinError``.
    """
    return tuple(code for start, entries in _bundles(data) for code in _code_objects(data, start, entries))


def kernels(elf: Elf) -> frozenset[str]:
    """Names of a code object's kernels: those with a kernel descriptor ``<name>.kd``."""
    return frozenset(n.removesuffix(KERNEL_SUFFIX) for n in elf.exported if n.endswith(KERNEL_SUFFIX))


def machine_arch(elf: Elf) -> str:
    """The arch in a code object's ELF header."""
    if elf.machine != "EM_AMDGPU":
        return elf.machine
    number = elf.flags & MACH_MASK
    named = (gpu.name for gpu in known_gpus().values() if gpu.elf_machine == number)
    return next(named, f"unknown AMDGPU machine {number:#x}")


def bundle_starts(data: bytes) -> tuple[int, ...]:
    """Where the bundles in ``data`` begin. Raises ``FatbinError`` as ``read_fatbin``."""
    return tuple(start for start, _ in _bundles(data))


def _code_objects(data: bytes, start: int, entries: list[_Entry]) -> Iterator[CodeObject]:
    for entry in entries:
        if (arch := _arch(entry.target)) is not None:
            yield CodeObject(arch, data[entry.begin : entry.end])
        elif entry.end > entry.begin:
            raise _error(start, f"{entry.target} has {entry.end - entry.begin} bytes, expected none")


def _bundles(data: bytes) -> Iterator[tuple[int, list[_Entry]]]:
    start = 0
    while start < len(data):
        if data[start] == 0 and not data[start:].strip(b"\0"):
            return  # padding after the last bundle
        entries, end = _entries(data, start)
        yield start, entries
        for entry in _filled(entries):
            _refuse_content(data, end, entry.begin)
            end = entry.end
        start = _next_bundle(data, end)


def _entries(data: bytes, start: int) -> tuple[list[_Entry], int]:
    """The entries of the bundle at ``start``, and where the table of entries ends."""
    if data[start : start + len(COMPRESSED_MAGIC)] == COMPRESSED_MAGIC:
        raise _error(start, "it is compressed", "put compressed bundles in front of all others")
    if data[start : start + len(MAGIC)] != MAGIC:
        raise _error(start, f"it begins with {data[start : start + len(MAGIC)]!r}, expected {MAGIC!r}")
    (count,) = _numbers(data, start + len(MAGIC), 1, start)
    position = start + len(MAGIC) + 8
    if not 0 < count <= (len(data) - position) // 24:
        raise _error(start, f"it claims {count} entries")
    entries = []
    for _ in range(count):
        entry, position = _entry(data, position, start)
        entries.append(entry)
    _refuse_overlap([_Entry("the table of entries", start, position), *entries], start)
    return entries, position


def _entry(data: bytes, position: int, start: int) -> tuple[_Entry, int]:
    offset, size, length = _numbers(data, position, 3, start)
    position += 24
    if length > len(data) - position:
        raise _error(start, f"an id of {length} bytes does not fit into what is left")
    name = data[position : position + length]
    if not name.isascii() or not name.decode("ascii").isprintable():
        raise _error(start, f"the id {name!r} is not text")
    begin, end = start + offset, start + offset + size
    if end > len(data):
        raise _error(start, f"entry {name.decode()} ends at byte {end} of {len(data)}")
    return _Entry(name.decode(), begin, end), position + length


def _numbers(data: bytes, position: int, count: int, start: int) -> tuple[int, ...]:
    if position + 8 * count > len(data):
        raise _error(start, f"its table of entries is cut off at byte {len(data)}")
    return struct.unpack_from(f"<{count}Q", data, position)


def _filled(entries: list[_Entry]) -> list[_Entry]:
    return sorted((e for e in entries if e.end > e.begin), key=lambda e: e.begin)


def _refuse_overlap(entries: list[_Entry], start: int) -> None:
    filled = _filled(entries)
    for one, other in pairwise(filled):
        if other.begin < one.end:
            raise _error(start, f"{one.target} and {other.target} overlap")


def _arch(target: str) -> str | None:
    if target.startswith(HOST_PREFIX):
        return None
    for prefix in DEVICE_PREFIXES:
        if target.startswith(prefix) and len(target) > len(prefix):
            return target.removeprefix(prefix)
    message = f"offload bundle entry {target!r} is not for an AMD GPU"
    raise FatbinError(message, advice=f"expected an id like {DEVICE_PREFIXES[0]}gfx942; bundle again")


def _next_bundle(data: bytes, end: int) -> int:
    start = -(-end // ALIGNMENT) * ALIGNMENT
    _refuse_content(data, end, start)
    return start


def _refuse_content(data: bytes, begin: int, end: int) -> None:
    """Raise unless these bytes between entries are padding."""
    if data[begin:end].strip(b"\0"):
        raise _error(end, f"the bytes {begin} to {end} before it are not padding")


def _error(
    start: int, what: str, advice: str = "bundle the code objects again and rebuild the wheel"
) -> FatbinError:
    return FatbinError(f"offload bundle at byte {start} of {SECTION}: {what}", advice=advice)
