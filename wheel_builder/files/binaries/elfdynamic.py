"""The dynamic table of an ELF file and everything it points to, found as glibc's loader finds it.

The loader follows PT_DYNAMIC and addresses, never section headers. Names come from the DT_STRTAB table. The
number of symbols follows from the hash tables and relocations.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from wheel_builder.files.binaries.elfimage import PT_DYNAMIC, Image, Names, refuse

DT_NULL, DT_NEEDED, DT_PLTRELSZ, DT_PLTGOT, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA = range(8)
DT_RELASZ, DT_RELAENT, DT_STRSZ, DT_SYMENT, DT_SONAME, DT_RPATH = 8, 9, 10, 11, 14, 15
DT_PLTREL, DT_JMPREL, DT_INIT_ARRAY, DT_FINI_ARRAY, DT_INIT_ARRAYSZ, DT_FINI_ARRAYSZ = 20, 23, 25, 26, 27, 28
DT_RUNPATH, DT_FLAGS = 29, 30
DT_GNU_HASH, DT_VERSYM, DT_RELACOUNT, DT_FLAGS_1 = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFF9, 0x6FFFFFFB
DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
TAG_BYTES, SYMBOL_BYTES, RELOCATION_BYTES, VERSION_RECORD_BYTES = 16, 24, 24, 16
VERSION_INDEX_MASK = 0x7FFF
MOST_SYMBOLS, MOST_RELOCATIONS = 1 << 20, 1 << 21  # more than torch's libraries have
STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2

_TAG, _SYMBOL, _RELOCATION = struct.Struct("<QQ"), struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
_NEED, _VERSION = struct.Struct("<HHIII"), struct.Struct("<IHHII")


class Symbol(NamedTuple):
    """A row of a symbol table. ``section`` is its index, 0 for an undefined symbol."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def bind(self) -> int:
        return self.info >> 4

    @property
    def type(self) -> int:
        return self.info & 15

    @property
    def visibility(self) -> int:
        return self.other & 3


class Relocation(NamedTuple):
    """A row of DT_RELA or DT_JMPREL."""

    address: int
    type: int
    symbol: int
    addend: int


class Version(NamedTuple):
    """A required version of ``file``. ``places`` are the addresses of both its records."""

    file: str
    name: str
    number: int
    digest: int
    flags: int
    places: tuple[int, int]


@dataclass(frozen=True)
class Dynamic:
    """The tags read by the loader, except DT_NEEDED. A missing tag is 0.

    ``symbol_versions`` has an entry for each symbol, or is empty.
    """

    tags: Mapping[int, int]
    needed: tuple[str, ...]
    names: Names
    symbols: tuple[Symbol, ...]
    symbol_versions: tuple[int, ...]
    versions: tuple[Version, ...]
    relocations: tuple[Relocation, ...]
    plt_relocations: tuple[Relocation, ...]

    def text(self, tag: int) -> str:
        """The text of a tag, empty without the tag."""
        return self.names.at(self.tags[tag], f"the text of tag {tag:#x}") if tag in self.tags else ""


def read_dynamic(image: Image) -> Dynamic | None:
    """The dynamic table of ``image``, None without one. Raises ``ElfError``."""
    places = image.of_kind(PT_DYNAMIC)
    if not places:
        return None
    if len(places) > 1:
        refuse(f"it has {len(places)} dynamic tables")
    rows = list(_rows(image.at(places[0].address, places[0].file_bytes, "the dynamic table")))
    tags = dict(row for row in rows if row[0] != DT_NEEDED)
    if len(tags) + sum(kind == DT_NEEDED for kind, _ in rows) != len(rows):
        refuse("a tag is twice in its dynamic table")
    names = Names(image.at(tags.get(DT_STRTAB, 0), tags.get(DT_STRSZ, 0), "the names (DT_STRTAB)"))
    relocations = tuple(_relocations(image, tags.get(DT_RELA, 0), tags.get(DT_RELASZ, 0)))
    plt = tuple(_relocations(image, tags.get(DT_JMPREL, 0), tags.get(DT_PLTRELSZ, 0)))
    reached = max((1 + each.symbol for each in (*relocations, *plt)), default=0)
    if (count := max(reached, _hashed(image, tags))) > MOST_SYMBOLS:
        refuse(f"it has {count} symbols, more than {MOST_SYMBOLS}")
    return Dynamic(
        tags=tags,
        needed=tuple(names.at(value, "a needed library") for kind, value in rows if kind == DT_NEEDED),
        names=names,
        symbols=tuple(read_symbols(image.at(tags.get(DT_SYMTAB, 0), count * SYMBOL_BYTES, "symbols"), names)),
        symbol_versions=_symbol_versions(image, tags, count),
        versions=tuple(_versions(image, tags, names)),
        relocations=relocations,
        plt_relocations=plt,
    )  # fmt: skip


def read_symbols(table: bytes, names: Names) -> Iterator[Symbol]:
    """The rows of a symbol table. Raises ``ElfError``."""
    for name, info, other, section, value, size in _SYMBOL.iter_unpack(table):
        yield Symbol(names.at(name, "a symbol's name"), info, other, section, value, size)


def _rows(table: bytes) -> Iterator[tuple[int, int]]:
    for at in range(0, len(table) - TAG_BYTES + 1, TAG_BYTES):
        kind, value = _TAG.unpack_from(table, at)
        if kind == DT_NULL:
            return
        yield kind, value
    refuse("its dynamic table has no end")


def _relocations(image: Image, address: int, size: int) -> Iterator[Relocation]:
    if size % RELOCATION_BYTES:
        refuse(f"its relocations have {size} bytes, each {RELOCATION_BYTES}")
    if size > MOST_RELOCATIONS * RELOCATION_BYTES:
        refuse(f"it has {size // RELOCATION_BYTES} relocations, more than {MOST_RELOCATIONS}")
    if not size:
        return
    for at, info, addend in _RELOCATION.iter_unpack(image.at(address, size, "relocations")):
        yield Relocation(at, info & 0xFFFFFFFF, info >> 32, addend)


def _hashed(image: Image, tags: Mapping[int, int]) -> int:
    """The number of symbols reached by lookups by name."""
    old = _words(image, tags[DT_HASH], 2)[1] if DT_HASH in tags else 0
    if DT_GNU_HASH not in tags:
        return old
    start = tags[DT_GNU_HASH]
    buckets, first, blooms, _ = _words(image, start, 4)
    chains = start + 16 + 8 * blooms + 4 * buckets
    last = max(_words(image, chains - 4 * buckets, buckets), default=0)
    if last < first:
        return max(old, first)
    return max(old, last + _chain(image, chains + 4 * (last - first)))


def _chain(image: Image, address: int) -> int:
    """The number of symbols in the chain at ``address``. The last one's hash is odd."""
    load = image.load_of(address, 4)
    size = max(load.file_end - address, 0) & ~3 if load else 0
    words = struct.iter_unpack("<I", image.at(address, size, "a hash table"))
    if (count := next((number for number, (word,) in enumerate(words, start=1) if word & 1), 0)) == 0:
        refuse("a hash table has no end")
    return count


def _words(image: Image, address: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}I", image.at(address, 4 * count, "a hash table"))


def _symbol_versions(image: Image, tags: Mapping[int, int], count: int) -> tuple[int, ...]:
    if DT_VERSYM not in tags:
        return ()
    table = image.at(tags[DT_VERSYM], 2 * count, "the versions of symbols")
    return tuple(index & VERSION_INDEX_MASK for index in struct.unpack(f"<{count}H", table))


def _versions(image: Image, tags: Mapping[int, int], names: Names) -> Iterator[Version]:
    """All of DT_VERNEED. Its lists end at their end marks. Their counts are ignored."""
    if DT_VERNEED not in tags:
        return
    # Each record needs 16 bytes. If more of them are read than fit into the file, they overlap.
    left = len(image.data) // VERSION_RECORD_BYTES
    for place, file, start in _needs(image, tags[DT_VERNEED], names):
        at, following = start, 1
        while following:
            if (left := left - 1) < 0:
                refuse("its version records overlap")
            record = image.at(at, VERSION_RECORD_BYTES, "a version record")
            digest, flags, index, name, following = _VERSION.unpack(record)
            yield Version(
                file, names.at(name, "a version"), index & VERSION_INDEX_MASK, digest, flags, (place, at)
            )
            at += following


def _needs(image: Image, at: int, names: Names) -> Iterator[tuple[int, str, int]]:
    """For each file with versions: its record's address, its name, the address of its first version."""
    following, left = 1, len(image.data) // VERSION_RECORD_BYTES
    while following:
        if (left := left - 1) < 0:
            refuse("its version records overlap")
        _, count, file, first, following = _NEED.unpack(
            image.at(at, VERSION_RECORD_BYTES, "a version record")
        )
        if count:
            yield at, names.at(file, "a library with versions"), at + first
        at += following
