"""Reads a DLL for 64-bit Windows as its loader does: headers, mapped sections, imports and exports.

Input is untrusted: any bytes give a ``Pe`` or a ``PeError``. The loader follows addresses in memory. Other
tools may follow places in the file. Therefore all bytes of the file must be mapped, once and in order, and
tables must lie in them. Layout: Microsoft's PE specification.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from wheel_builder.base.errors import PeError

MAGIC = b"MZ"
AMD64, PE32_PLUS, WINDOWS_CONSOLE, WINDOWS_GUI = 0x8664, 0x20B, 3, 2
# Flags of the file (Characteristics), of a DLL (DllCharacteristics) and of a section.
EXECUTABLE_IMAGE, LARGE_ADDRESS_AWARE, DLL = 0x2, 0x20, 0x2000
HIGH_ENTROPY_VA, DYNAMIC_BASE, NX_COMPAT = 0x20, 0x40, 0x100
CODE, DATA, DISCARDABLE, EXECUTE, READ, WRITE = 0x20, 0x40, 0x2000000, 0x20000000, 0x40000000, 0x80000000
DIRECTORIES = (
    "export", "import", "resource", "exception", "certificate", "relocation", "debug", "architecture",
    "global pointer", "tls", "load config", "bound import", "import address", "delay import", "clr",
    "reserved",
)  # fmt: skip
FILE_HEADER, OPTIONAL_HEADER, SECTION = (
    struct.Struct("<HHIIIHH"),
    struct.Struct("<HBBIIIIIQIIHHHHHHIIIIHHQQQQII"),
    struct.Struct("<8sIIIIIIHHI"),
)
IMPORT, EXPORT = struct.Struct("<5I"), struct.Struct("<IIHHIIIIIII")
# The optional header's fields, in their order.
FIELDS = (
    "magic", "linker major", "linker minor", "code bytes", "data bytes", "zero bytes", "entry", "code base",
    "image base", "section alignment", "file alignment", "system major", "system minor", "image major",
    "image minor", "subsystem major", "subsystem minor", "version", "image bytes", "header bytes", "checksum",
    "subsystem", "DLL characteristics", "stack", "committed stack", "heap", "committed heap", "loader flags",
    "directories",
)  # fmt: skip
MOST_SECTIONS, MOST_IMPORTS, MOST_EXPORTS, LONGEST_NAME = 32, 4096, 4096, 512
BY_ORDINAL = 1 << 63


class Section(NamedTuple):
    """A section: its place in memory (relative to the image) and in the file, both with sizes, and flags."""

    name: str
    size: int
    address: int
    file_size: int
    file_at: int
    flags: int

    @property
    def end(self) -> int:
        return self.address + max(self.size, self.file_size)

    @property
    def memory_end(self) -> int:
        """The end of the section's data. The loader maps whole pages."""
        return self.address + self.size


@dataclass(frozen=True)
class Pe:
    """``imports`` maps each DLL to the imported names, ``directories`` each table to its section's name.

    Empty tables are left out. The section of certificates is "", as they are not mapped.
    ``overlay``: the bytes after the last section in the file. ``export_name``: the DLL's own name for itself.
    ``header``: the optional header's ``FIELDS``. ``places``: each table's address and size.
    ``exported``: the addresses of exports. ``stub``: the bytes before the header. ``rest``: the bytes between
    section headers and first section. ``read``: the places of imports, exports and everything they name.
    ``written``: the address lists filled by the loader, not part of ``read``.
    """

    timestamp: int
    characteristics: int
    dll_characteristics: int
    sections: tuple[Section, ...]
    imports: Mapping[str, tuple[str, ...]]
    exports: tuple[str, ...]
    export_name: str
    directories: Mapping[str, str]
    overlay: int
    header: Mapping[str, int]
    places: Mapping[str, tuple[int, int]]
    exported: tuple[int, ...]
    read: tuple[range, ...] = field(repr=False)
    written: tuple[range, ...]
    stub: bytes = field(repr=False)
    rest: bytes = field(repr=False)
    data: bytes = field(repr=False)

    def at(self, address: int, size: int, what: str) -> bytes:
        """The bytes from the file at an address. Raises ``PeError`` unless one section has them all."""
        return _Image(self.data, self.sections).at(address, size, what)

    def section_at(self, address: int) -> str:
        """The name of the section in memory at an address, "" outside all sections."""
        return next((each.name for each in self.sections if each.address <= address < each.memory_end), "")

    def section_bytes(self, name: str) -> bytes | None:
        """A section's mapped bytes from the file, None if there is no such section."""
        for section in self.sections:
            if section.name == name:
                size = min(section.size, section.file_size)
                return self.data[section.file_at : section.file_at + size]
        return None


class _Optional(NamedTuple):
    """The fields of the optional header used here."""

    magic: int
    entry: int
    section_alignment: int
    file_alignment: int
    image_bytes: int
    header_bytes: int
    subsystem: int
    dll_characteristics: int
    directories: int


def read_pe(data: bytes) -> Pe:
    """The DLL in ``data``. Raises ``PeError`` for other files, and for unusual layouts."""
    at = _pe_offset(data)
    machine, count, timestamp, _, symbols, optional_bytes, characteristics = _unpack(
        FILE_HEADER, data, at + 4, "the file header"
    )
    if machine != AMD64:
        _refuse(f"its machine is {machine:#x}, expected {AMD64:#x} (AMD64)")
    if symbols:
        _refuse(f"it has {symbols} symbols of COFF, which no loader reads")
    optional_at = at + 4 + FILE_HEADER.size
    optional = _optional_header(data, optional_at, optional_bytes)
    sections_at = optional_at + optional_bytes
    sections = _sections(data, sections_at, count, optional)
    image = _Image(data, sections)
    places = _directories(data, optional_at, optional)
    name, exports = image.exports(places["export"]) if places["export"][0] else ("", {})
    ends = [section.file_at + section.file_size for section in sections if section.file_size]
    return Pe(
        timestamp=timestamp,
        characteristics=characteristics,
        dll_characteristics=optional.dll_characteristics,
        sections=sections,
        imports=dict(image.imports(places["import"])) if places["import"][0] else {},
        exports=tuple(exports),
        export_name=name,
        directories={kind: image.home(kind, *place) for kind, place in places.items() if any(place)},
        overlay=len(data) - max([*ends, optional.header_bytes]),
        header=dict(zip(FIELDS, _unpack(OPTIONAL_HEADER, data, optional_at, "the header"), strict=True)),
        places={kind: place for kind, place in places.items() if any(place)},
        exported=tuple(exports.values()),
        read=tuple(image.read),
        written=tuple(image.written),
        stub=data[:at],
        rest=data[sections_at + count * SECTION.size : optional.header_bytes],
        data=data,
    )


class _Image:
    """Reads bytes mapped from the file, by address."""

    def __init__(self, data: bytes, sections: tuple[Section, ...]) -> None:
        self.data, self.sections = data, sections
        self.read: list[range] = []
        self.written: list[range] = []

    def at(self, address: int, size: int, what: str) -> bytes:
        """The bytes at an address. Raises ``PeError`` unless one section has all of them from the file."""
        section = self._section(address, size, what)
        begin = section.file_at + address - section.address
        self.read.append(range(address, address + size))
        return self.data[begin : begin + size]

    def _section(self, address: int, size: int, what: str) -> Section:
        found = [
            section
            for section in self.sections
            if section.address <= address <= section.address + min(section.size, section.file_size) - size
        ]
        if not found:
            _refuse(f"{what} is at {address:#x}, where no section maps {size} bytes of the file")
        return found[0]

    def home(self, kind: str, address: int, size: int) -> str:
        """The section of a directory's table."""
        if kind == "certificate":
            return ""  # a place in the file, after all mapped bytes
        return self._section(address, max(size, 1), f"the {kind} table").name

    def text(self, address: int, what: str) -> str:
        found = bytearray()
        while (byte := self.at(address + len(found), 1, what)) != b"\0":
            found += byte
            if len(found) > LONGEST_NAME:
                _refuse(f"{what} has more than {LONGEST_NAME} characters")
        text = found.decode("latin-1")
        if not text or not text.isascii() or not text.isprintable() or " " in text:
            _refuse(f"{what} is {text[:40]!r}, which is no name")
        return text

    def imports(self, place: tuple[int, int]) -> Iterator[tuple[str, tuple[str, ...]]]:
        seen: set[str] = set()
        for number in range(MOST_IMPORTS):
            entry = IMPORT.unpack(self.at(place[0] + number * IMPORT.size, IMPORT.size, "the import table"))
            lookup, bound, forwarded, name_at, addresses = entry
            if not any(entry):
                if (number + 1) * IMPORT.size > place[1]:
                    _refuse("the import table is longer than its directory says")
                return
            name = self.text(name_at, "the name of an imported DLL")
            if name.lower() in seen:
                _refuse(f"the import table names {name} twice")
            seen.add(name.lower())
            if bound or forwarded:
                _refuse(f"the imports from {name} are bound to addresses beforehand")
            names = tuple(self._names(addresses, name, self.written))
            # The loader reads one of these lists, a debugger may show the other.
            if lookup and tuple(self._names(lookup, name)) != names:
                _refuse(f"the two lists of what is imported from {name} differ")
            yield name, names
        _refuse(f"it imports from more than {MOST_IMPORTS} DLLs")

    def _names(self, at: int, dll: str, places: list[range] | None = None) -> Iterator[str]:
        """The names in a list at an address. With ``places`` its place is noted there, not in ``read``."""
        for number in range(MOST_IMPORTS):
            [value] = struct.unpack("<Q", self.at(at + 8 * number, 8, f"the list of imports from {dll}"))
            if places is not None:
                places.append(self.read.pop())
            if not value:
                return
            if value & BY_ORDINAL:
                _refuse(f"it imports number {value & 0xFFFF} of {dll}; expected names")
            yield self.text(value + 2, f"the name of an import from {dll}")
        _refuse(f"it imports more than {MOST_IMPORTS} functions from {dll}")

    def exports(self, place: tuple[int, int]) -> tuple[str, dict[str, int]]:
        """The DLL's own name, and where each export is."""
        table = EXPORT.unpack(self.at(place[0], EXPORT.size, "the export table"))
        name_at, functions, names, functions_at, names_at, ordinals_at = table[4], *table[6:]
        if functions > MOST_EXPORTS or names != functions:
            _refuse(f"it exports {functions} functions by {names} names; expected one name for each")
        found: dict[str, int] = {}
        for number in range(names):
            [at] = struct.unpack("<I", self.at(names_at + 4 * number, 4, "the names of exports"))
            name = self.text(at, "the name of an export")
            [ordinal] = struct.unpack("<H", self.at(ordinals_at + 2 * number, 2, "the numbers of exports"))
            if ordinal >= functions:
                _refuse(f"the export {name} is number {ordinal} of {functions}")
            [target] = struct.unpack("<I", self.at(functions_at + 4 * ordinal, 4, "the exports"))
            if place[0] <= target < place[0] + place[1]:
                _refuse(f"the export {name} is forwarded to another DLL")
            self.at(target, 1, f"the export {name}")
            if found and name <= [*found][-1]:
                _refuse("the names of exports are not in order, so the loader does not find all of them")
            found[name] = target
        return self.text(name_at, "the DLL's own name"), found


def _pe_offset(data: bytes) -> int:
    if not data.startswith(MAGIC):
        _refuse("it does not begin with MZ")
    at = int(_unpack(struct.Struct("<I"), data, 0x3C, "the header of DOS")[0])
    if at < 0x40 or at % 4 or data[at : at + 4] != b"PE\0\0":
        _refuse(f"there is no PE header at {at:#x}")
    return at


def _optional_header(data: bytes, at: int, size: int) -> _Optional:
    fields = _unpack(OPTIONAL_HEADER, data, at, "the optional header")
    found = _Optional(
        fields[0],
        fields[6],
        fields[9],
        fields[10],
        fields[18],
        fields[19],
        fields[21],
        fields[22],
        fields[28],
    )
    if found.magic != PE32_PLUS:
        _refuse(f"its optional header is of kind {found.magic:#x}, expected {PE32_PLUS:#x} (64 bits)")
    if found.directories > len(DIRECTORIES) or size != OPTIONAL_HEADER.size + 8 * found.directories:
        _refuse(f"its optional header has {size} bytes and {found.directories} directories")
    if (found.section_alignment, found.file_alignment) != (4096, 512):
        _refuse(f"it aligns to {found.section_alignment} and {found.file_alignment}; expected 4096 and 512")
    return found


def _directories(data: bytes, at: int, optional: _Optional) -> dict[str, tuple[int, int]]:
    start, found = at + OPTIONAL_HEADER.size, dict.fromkeys(DIRECTORIES, (0, 0))
    for number in range(optional.directories):
        address, size = _unpack(struct.Struct("<II"), data, start + 8 * number, "the directories")
        found[DIRECTORIES[number]] = (address, size)
    return found


def _sections(data: bytes, at: int, count: int, optional: _Optional) -> tuple[Section, ...]:
    """Sections, in order of memory and file, with no gap or overlap."""
    if not 0 < count <= MOST_SECTIONS:
        _refuse(f"it has {count} sections; expected 1 to {MOST_SECTIONS}")
    if at + count * SECTION.size > optional.header_bytes or optional.header_bytes > len(data):
        _refuse("its section headers are not in what the loader maps of the headers")
    found: list[Section] = []
    address, place = _aligned(optional.header_bytes, optional.section_alignment), optional.header_bytes
    for number in range(count):
        raw, size, own, file_size, file_at, *coff, flags = _unpack(
            SECTION, data, at + number * SECTION.size, "a section header"
        )
        if any(coff):
            _refuse(f"section {number} names relocations or line numbers, which only object files have")
        name = raw.rstrip(b"\0").decode("latin-1")
        section = Section(name, size, own, file_size, file_at, flags)
        if not name.isascii() or not name.isprintable() or name in {each.name for each in found}:
            _refuse(f"the name of section {number} is {name!r}: no text, or there twice")
        if own != address or not size:
            _refuse(f"section {name} is at {own:#x} with {size} bytes; expected it at {address:#x}")
        if file_size and (
            file_at != place or file_size % optional.file_alignment or file_at + file_size > len(data)
        ):
            _refuse(f"section {name} has {file_size} bytes of the file at {file_at:#x}; expected {place:#x}")
        if file_size >= _aligned(size, optional.file_alignment) + optional.file_alignment:
            _refuse(f"section {name} has {file_size} bytes in the file, and the loader maps {size} of them")
        found.append(section)
        address, place = _aligned(own + size, optional.section_alignment), place + file_size
    if optional.image_bytes != address:
        _refuse(f"the image has {optional.image_bytes:#x} bytes, and its sections end at {address:#x}")
    return tuple(found)


def _aligned(value: int, to: int) -> int:
    return -(-value // to) * to


def _unpack(form: struct.Struct, data: bytes, at: int, what: str) -> tuple[Any, ...]:
    if at + form.size > len(data):
        _refuse(f"{what} is cut off")
    return form.unpack_from(data, at)


def _refuse(problem: str) -> NoReturn:
    message = f"the library is not a DLL that can be relied on: {problem}"
    raise PeError(message, advice="link it again with the pipeline's own flags")
