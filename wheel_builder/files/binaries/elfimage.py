"""A 64-bit ELF file: header, segments with their mapping, section headers.

Input is untrusted: any bytes give an ``Image`` or an ``ElfError``.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, NoReturn

from wheel_builder.base.errors import ElfError

MAGIC = b"\x7fELF"
IDENT = MAGIC + b"\x02\x01\x01"  # 64 bits, little endian, version 1
MOST_SEGMENTS = 128
NAMES_ARE_READ = 4  # most reads of each byte, on average
EM_X86_64, EM_AMDGPU = 62, 224
PT_LOAD, PT_DYNAMIC, PT_NOTE, PT_PHDR, PT_TLS = 1, 2, 4, 6, 7
PT_GNU_EH_FRAME, PT_GNU_STACK, PT_GNU_RELRO = 0x6474E550, 0x6474E551, 0x6474E552
PF_X, PF_W, PF_R = 1, 2, 4
SHT_NULL, SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_HASH = 0, 1, 2, 3, 4, 5
SHT_DYNAMIC, SHT_NOTE, SHT_NOBITS, SHT_DYNSYM, SHT_INIT_ARRAY, SHT_FINI_ARRAY = 6, 7, 8, 11, 14, 15
SHT_GNU_HASH, SHT_VERNEED, SHT_VERSYM = 0x6FFFFFF6, 0x6FFFFFFE, 0x6FFFFFFF
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_TLS = 1, 2, 4, 0x400


class Names:
    """A table of names.

    Names may overlap, so a small table could yield gigabytes of text. Reads are counted and limited.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._left = NAMES_ARE_READ * len(data) + (1 << 20)

    def at(self, start: int, what: str) -> str:
        """The text from ``start`` to its zero byte. Raises ``ElfError``."""
        end = self.data.find(b"\0", start)
        if start >= len(self.data) or end < 0:
            refuse(f"{what} is at byte {start} of {len(self.data)} bytes of names, or has no end")
        if (left := self._left - (end - start)) < 0:
            refuse(f"the names that overlap in {len(self.data)} bytes are too many")
        self._left = left
        try:
            text = self.data[start:end].decode()
        except UnicodeDecodeError:
            text = "\0"
        if text and not text.isprintable():
            refuse(f"{what} is {self.data[start:end][:40]!r}, which is not text")
        return text


class Header(NamedTuple):
    """``e_ident`` and the fields after it, in their order."""

    ident: bytes
    kind: int
    machine: int
    version: int
    entry: int
    segments_at: int
    sections_at: int
    flags: int
    header_bytes: int
    segment_bytes: int
    segment_count: int
    section_bytes: int
    section_count: int
    names_index: int


class Segment(NamedTuple):
    """A program header."""

    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    file_bytes: int
    memory_bytes: int
    alignment: int

    @property
    def file_end(self) -> int:
        """The end address of the bytes from the file."""
        return self.address + self.file_bytes

    @property
    def end(self) -> int:
        """The end address in memory."""
        return self.address + self.memory_bytes

    def holds(self, address: int, size: int) -> bool:
        """Whether the segment's memory includes these bytes."""
        return self.address <= address and address + size <= self.end


class Section(NamedTuple):
    """A section header. ``name_at`` counts from the names' first byte."""

    name_at: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_bytes: int

    @property
    def in_memory(self) -> bool:
        return bool(self.flags & SHF_ALLOC)

    @property
    def file_bytes(self) -> int:
        return 0 if self.kind == SHT_NOBITS else self.size


@dataclass(frozen=True)
class Image:
    """A file and its headers. ``names`` are the sections' names."""

    data: bytes
    header: Header
    segments: tuple[Segment, ...]
    sections: tuple[Section, ...]
    names: tuple[str, ...]

    @cached_property
    def loads(self) -> tuple[Segment, ...]:
        return self.of_kind(PT_LOAD)

    def of_kind(self, kind: int) -> tuple[Segment, ...]:
        return tuple(segment for segment in self.segments if segment.kind == kind)

    def load_of(self, address: int, size: int) -> Segment | None:
        """The PT_LOAD that maps these bytes, from the file or as zeros."""
        return next((load for load in self.loads if load.holds(address, size)), None)

    def offset_of(self, address: int, size: int) -> int | None:
        """The file offset of the ``size`` bytes mapped at ``address``, None if they are not from the file."""
        for load in self.loads:
            if load.address <= address and address + size <= load.file_end:
                return load.offset + address - load.address
        return None

    def at(self, address: int, size: int, what: str) -> bytes:
        """The bytes mapped at ``address``. Raises ``ElfError`` with ``what`` if no PT_LOAD has them."""
        offset = self.offset_of(address, size)
        if offset is None or offset + size > len(self.data):
            refuse(f"no PT_LOAD maps {what}: {size} bytes at {address:#x}")
        return self.data[offset : offset + size]

    def named(self, name: str) -> list[Section]:
        return [section for section, called in zip(self.sections, self.names, strict=True) if called == name]

    def content(self, section: Section) -> bytes:
        """A section's bytes in the file. Raises ``ElfError`` when they lie outside it."""
        if section.kind == SHT_NOBITS or section.offset + section.size > len(self.data):
            name = self.names[self.sections.index(section)]
            message = (
                f"section {name} is not in the file "
                f"({section.size} bytes at {section.offset}, the file has {len(self.data)})"
            )
            raise ElfError(message, advice="build the file again; it is damaged")
        return self.data[section.offset : section.offset + section.size]


_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")


def read_image(data: bytes) -> Image:
    """The headers of ``data``. Raises ``ElfError`` unless it is a 64-bit ELF file with all of them."""
    if len(data) < _HEADER.size or not data.startswith(IDENT):
        refuse("its header is not that of a little-endian ELF file of 64 bits")
    header = Header._make(_HEADER.unpack_from(data))
    at, size, count = header.segments_at, header.segment_bytes, header.segment_count
    if count > MOST_SEGMENTS:
        refuse(f"it has {count} program headers, more than {MOST_SEGMENTS}")
    segments = tuple(map(Segment._make, _table(data, at, size, count, _SEGMENT, "program headers")))
    at, size, count = header.sections_at, header.section_bytes, header.section_count
    sections = tuple(map(Section._make, _table(data, at, size, count, _SECTION, "section headers")))
    return Image(data, header, segments, sections, tuple(_names(data, header, sections)))


def refuse(why: str) -> NoReturn:
    """Raise the error for a damaged file or one of another format."""
    message = f"not a readable ELF file ({why})"
    raise ElfError(message, advice="build the file again; it is damaged or not an ELF file")


def _table(
    data: bytes, start: int, entry_bytes: int, count: int, form: struct.Struct, what: str
) -> list[tuple[int, ...]]:
    if count and (entry_bytes != form.size or start + entry_bytes * count > len(data)):
        refuse(f"its {count} {what} at byte {start} are not in the file")
    return [form.unpack_from(data, start + entry_bytes * number) for number in range(count)]


def _names(data: bytes, header: Header, sections: tuple[Section, ...]) -> Iterator[str]:
    if not sections:
        return
    if header.names_index >= len(sections):
        refuse(f"its names are in section {header.names_index}, and it has {len(sections)} sections")
    place = sections[header.names_index]
    if place.kind == SHT_NOBITS or place.offset + place.size > len(data):
        refuse("its names of sections are not in the file")
    names = Names(data[place.offset : place.offset + place.size])
    for number, section in enumerate(sections):
        yield names.at(section.name_at, f"the name of section {number}")
