"""Rules for the dynamic table: only harmless tags, each table also a section, sound versions and hashes."""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from wheel_builder.files.binaries import elfdynamic as d
from wheel_builder.files.binaries.elfdynamic import Dynamic
from wheel_builder.files.binaries.elfimage import (
    EM_AMDGPU,
    EM_X86_64,
    PT_DYNAMIC,
    PT_GNU_RELRO,
    SHT_DYNAMIC,
    SHT_DYNSYM,
    SHT_FINI_ARRAY,
    SHT_GNU_HASH,
    SHT_HASH,
    SHT_INIT_ARRAY,
    SHT_RELA,
    SHT_STRTAB,
    SHT_VERNEED,
    SHT_VERSYM,
    Image,
    Section,
)

DF_BIND_NOW, DF_1_NOW = 8, 1
GOT = ".got.plt"
MOST_NAMES = 1 << 20
# All other tags are refused. Some load other libraries (DT_AUXILIARY, DT_FILTER, DT_AUDIT, DT_DEPAUDIT,
# DT_CONFIG), some run other code (DT_INIT, DT_FINI, DT_PREINIT_ARRAY), one makes code writable (DT_TEXTREL).
# DT_NEEDED, DT_SONAME, DT_RPATH and DT_RUNPATH have their own rules.
REQUIRED = {
    EM_X86_64: {d.DT_STRTAB, d.DT_STRSZ, d.DT_SYMTAB, d.DT_SYMENT, d.DT_GNU_HASH, d.DT_FLAGS, d.DT_FLAGS_1},
    EM_AMDGPU: {d.DT_STRTAB, d.DT_STRSZ, d.DT_SYMTAB, d.DT_SYMENT, d.DT_GNU_HASH},
}
# Groups of tags: all of a group or none.
TOGETHER = (
    {d.DT_RELA, d.DT_RELASZ, d.DT_RELAENT},
    {d.DT_JMPREL, d.DT_PLTRELSZ, d.DT_PLTREL, d.DT_PLTGOT},
    {d.DT_INIT_ARRAY, d.DT_INIT_ARRAYSZ},
    {d.DT_FINI_ARRAY, d.DT_FINI_ARRAYSZ},
    {d.DT_VERSYM, d.DT_VERNEED, d.DT_VERNEEDNUM},
)
ALLOWED = {
    EM_X86_64: REQUIRED[EM_X86_64].union(
        {d.DT_SONAME, d.DT_RPATH, d.DT_RUNPATH, d.DT_HASH, d.DT_RELACOUNT}, *TOGETHER
    ),
    EM_AMDGPU: REQUIRED[EM_AMDGPU] | {d.DT_HASH},
}
VALUES = {
    d.DT_SYMENT: d.SYMBOL_BYTES, d.DT_RELAENT: d.RELOCATION_BYTES, d.DT_PLTREL: d.DT_RELA,
    d.DT_FLAGS: DF_BIND_NOW, d.DT_FLAGS_1: DF_1_NOW,
}  # fmt: skip


class _Table(NamedTuple):
    """A table and its tag. ``link`` is the kind of the section named by its sh_link."""

    what: str
    kind: int
    address: int
    size: int
    link: int | None


def table_problems(image: Image, dynamic: Dynamic) -> tuple[str, ...]:
    """Forbidden requests in the dynamic table, and differences from the section headers."""
    if found := tuple(_tag_problems(image, dynamic)):
        return found
    tables = tuple(_tables(image, dynamic))
    return (
        *(problem for table in tables for problem in _section_problems(image, table, tables)),
        *_other_sections(image, tables),
        *_protection_problems(image, dynamic),
        *_version_problems(image, dynamic),
        *_hash_problems(image, dynamic),
    )


def _tag_problems(image: Image, dynamic: Dynamic) -> Iterator[str]:
    machine, tags = image.header.machine, dynamic.tags
    for tag in sorted(tags.keys() - ALLOWED[machine]):
        yield f"its dynamic table has tag {tag:#x}, which is not known to be harmless"
    for tag in sorted(REQUIRED[machine] - tags.keys()):
        yield f"its dynamic table has no tag {tag:#x}"
    for tag in sorted(VALUES.keys() & tags.keys()):
        if tags[tag] != VALUES[tag]:
            yield f"its dynamic table has {tags[tag]:#x} for tag {tag:#x}, expected {VALUES[tag]:#x}"
    for group in TOGETHER:
        if group & tags.keys() not in (set(), group):
            yield f"its dynamic table has only some of the tags {', '.join(map(hex, sorted(group)))}"
    if tags.get(d.DT_STRSZ, 0) > MOST_NAMES:
        yield f"its names have {tags[d.DT_STRSZ]} bytes, at most {MOST_NAMES} are allowed"
    if machine == EM_AMDGPU and dynamic.needed:
        yield f"it needs {', '.join(dynamic.needed)}, and a code object needs nothing"
    [place] = image.of_kind(PT_DYNAMIC)
    count = len(tags) + len(dynamic.needed)
    if any(image.at(place.address, place.file_bytes, "the dynamic table")[d.TAG_BYTES * count :]):
        yield "there is something behind the end of its dynamic table"


def _tables(image: Image, dynamic: Dynamic) -> Iterator[_Table]:
    tags, symbols = dynamic.tags, len(dynamic.symbols)
    [place] = image.of_kind(PT_DYNAMIC)
    yield _Table("dynamic table", SHT_DYNAMIC, place.address, place.file_bytes, SHT_STRTAB)
    sizes = {
        d.DT_SYMTAB: ("table of symbols", SHT_DYNSYM, d.SYMBOL_BYTES * symbols, SHT_STRTAB),
        d.DT_STRTAB: ("table of names", SHT_STRTAB, tags[d.DT_STRSZ], None),
        d.DT_VERSYM: ("table of symbols' versions", SHT_VERSYM, 2 * symbols, SHT_DYNSYM),
        d.DT_VERNEED: ("table of needed versions", SHT_VERNEED, _version_bytes(dynamic), SHT_STRTAB),
        d.DT_GNU_HASH: ("GNU hash table", SHT_GNU_HASH, _gnu_hash_bytes(image, dynamic), SHT_DYNSYM),
        d.DT_HASH: ("hash table", SHT_HASH, _hash_bytes(image, dynamic), SHT_DYNSYM),
        d.DT_RELA: ("table of relocations", SHT_RELA, tags.get(d.DT_RELASZ, 0), SHT_DYNSYM),
        d.DT_JMPREL: ("table of calls' relocations", SHT_RELA, tags.get(d.DT_PLTRELSZ, 0), SHT_DYNSYM),
        d.DT_INIT_ARRAY: ("table of initializers", SHT_INIT_ARRAY, tags.get(d.DT_INIT_ARRAYSZ, 0), None),
        d.DT_FINI_ARRAY: ("table of finalizers", SHT_FINI_ARRAY, tags.get(d.DT_FINI_ARRAYSZ, 0), None),
    }
    for tag, (what, kind, size, link) in sizes.items():
        if tag in tags:
            yield _Table(what, kind, tags[tag], size, link)


def _section_of(image: Image, kind: int, address: int) -> Section | None:
    found = [s for s in image.sections if s.in_memory and (s.kind, s.address) == (kind, address)]
    return found[0] if len(found) == 1 else None


def _section_problems(image: Image, table: _Table, tables: Sequence[_Table]) -> Iterator[str]:
    section = _section_of(image, table.kind, table.address)
    if section is None:
        yield f"its {table.what} is loaded from {table.address:#x}, where no section of that kind begins"
        return
    if section.size != table.size:
        yield f"its {table.what} has {table.size} bytes when loaded, and {section.size} in the section"
    if table.link is None:
        return
    [link] = [other.address for other in tables if other.kind == table.link]
    linked = image.sections[section.link] if section.link < len(image.sections) else None
    if linked != _section_of(image, table.link, link):
        yield f"its {table.what} is linked with section {section.link}, and use another when loaded"


def _other_sections(image: Image, tables: Sequence[_Table]) -> Iterator[str]:
    """A table without a tag would be read only by programs other than the loader."""
    used = {(table.kind, table.address) for table in tables}
    kinds = {table.kind for table in tables} | {
        SHT_VERNEED, SHT_VERSYM, SHT_HASH, SHT_RELA, SHT_INIT_ARRAY, SHT_FINI_ARRAY,
    }  # fmt: skip
    for name, section in zip(image.names, image.sections, strict=True):
        is_table = section.kind in kinds and (section.in_memory or section.kind != SHT_STRTAB)
        if is_table and (section.kind, section.address) not in used:
            yield f"section {name} is a table that is not loaded"


def _protection_problems(image: Image, dynamic: Dynamic) -> Iterator[str]:
    """Function pointers used by the loader are read-only after loading."""
    [relro] = image.of_kind(PT_GNU_RELRO)
    if d.DT_PLTGOT in dynamic.tags and [s.address for s in image.named(GOT)] != [dynamic.tags[d.DT_PLTGOT]]:
        yield f"its addresses of called functions are at {dynamic.tags[d.DT_PLTGOT]:#x}, and not in {GOT}"
    for tag, what in (
        (d.DT_PLTGOT, "addresses of called functions"),
        (d.DT_INIT_ARRAY, "initializers"),
        (d.DT_FINI_ARRAY, "finalizers"),
    ):
        if tag in dynamic.tags and not relro.holds(dynamic.tags[tag], 8):
            yield f"its {what} are at {dynamic.tags[tag]:#x}, outside of PT_GNU_RELRO"


def _version_bytes(dynamic: Dynamic) -> int:
    files = {version.places[0] for version in dynamic.versions}
    return d.VERSION_RECORD_BYTES * (len(files) + len(dynamic.versions))


def _version_problems(image: Image, dynamic: Dynamic) -> Iterator[str]:
    if d.DT_VERNEED not in dynamic.tags:
        return
    section = _section_of(image, SHT_VERNEED, dynamic.tags[d.DT_VERNEED])
    places = {place for version in dynamic.versions for place in version.places}
    files = len({version.places[0] for version in dynamic.versions})
    if section is None or any(not 0 <= place - section.address < section.size for place in places):
        yield "a needed version is outside of its section"
    elif {files} != {section.info, dynamic.tags[d.DT_VERNEEDNUM]}:
        yield f"it needs versions of {files} libraries, and counts {section.info}"
    indices = [version.number for version in dynamic.versions]
    if len(set(indices)) != len(indices) or {0, 1} & set(indices):
        yield "two needed versions have one number"
    for version in dynamic.versions:
        if version.file not in dynamic.needed:
            yield f"it needs {version.name} of {version.file}, which it does not need"
        if version.flags or version.digest != elf_hash(version.name):
            yield f"its record of {version.name} is damaged: flags {version.flags}, hash {version.digest:#x}"
    for index in sorted(set(dynamic.symbol_versions) - {0, 1, *indices}):
        yield f"a symbol has version {index}, which is not there"


def elf_hash(name: str) -> int:
    """The hash of System V's hash tables, also used in version records."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ (value >> 24 & 0xF0)) & 0x0FFFFFFF
    return value


def gnu_hash(name: str) -> int:
    """The hash of DT_GNU_HASH."""
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def _gnu_hash_header(image: Image, dynamic: Dynamic) -> tuple[int, ...]:
    return struct.unpack("<4I", image.at(dynamic.tags[d.DT_GNU_HASH], 16, "a hash table"))


def _gnu_hash_bytes(image: Image, dynamic: Dynamic) -> int:
    buckets, first, blooms, _ = _gnu_hash_header(image, dynamic)
    return 16 + 8 * blooms + 4 * buckets + 4 * max(len(dynamic.symbols) - first, 0)


def _hash_bytes(image: Image, dynamic: Dynamic) -> int:
    if d.DT_HASH not in dynamic.tags:
        return 0
    buckets, chains = struct.unpack("<2I", image.at(dynamic.tags[d.DT_HASH], 8, "a hash table"))
    return 4 * (2 + buckets + chains) if chains == len(dynamic.symbols) and buckets else 0


def _hash_problems(image: Image, dynamic: Dynamic) -> Iterator[str]:
    """A broken table makes the loader miss a symbol, find another one, or loop forever."""
    buckets, first, blooms, shift = _gnu_hash_header(image, dynamic)
    size = _gnu_hash_bytes(image, dynamic)
    if (
        not buckets
        or not blooms
        or blooms & (blooms - 1)
        or shift > 31
        or not 0 < first <= len(dynamic.symbols)
    ):
        yield f"its GNU hash table has {buckets} buckets, {blooms} filters, symbols from {first}"
        return
    hashes = [gnu_hash(symbol.name) for symbol in dynamic.symbols[first:]]
    expected = _gnu_hash_table(hashes, buckets, first, blooms, shift)
    if image.at(dynamic.tags[d.DT_GNU_HASH], size, "a hash table") != expected:
        yield "its GNU hash table does not lead to its symbols"
    for symbol in dynamic.symbols[1:first]:
        if symbol.section and symbol.bind != d.STB_LOCAL:
            yield f"its GNU hash table leaves out {symbol.name}"


def _gnu_hash_table(hashes: Sequence[int], buckets: int, first: int, blooms: int, shift: int) -> bytes:
    """The expected table for symbols sorted by bucket, from the symbol ``first`` on."""
    words, starts, chains = [0] * blooms, [0] * buckets, []
    for number, value in enumerate(hashes):
        words[value // 64 % blooms] |= 1 << value % 64 | 1 << (value >> shift) % 64
        starts[value % buckets] = starts[value % buckets] or first + number
        is_last = number + 1 == len(hashes) or hashes[number + 1] % buckets != value % buckets
        chains.append(value & ~1 | is_last)
    return struct.pack(
        f"<4I{blooms}Q{buckets}I{len(chains)}I", buckets, first, blooms, shift, *words, *starts, *chains
    )
