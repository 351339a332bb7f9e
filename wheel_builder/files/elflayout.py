"""Whether an ELF file of 64 bits is laid out so that loading it does what its section headers say.

A loader follows program headers and the dynamic table; ``elf`` reads section headers.  Where the two differ,
what was checked is not what is loaded.  Input is untrusted, and nothing is read outside of it; pure.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

EM_X86_64, EM_AMDGPU = 62, 224
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_TAG = struct.Struct("<QQ")
_IDENT = b"\x7fELF\x02\x01\x01"  # 64 bits, little endian, version 1
ET_DYN = 3
PAGE = 4096
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_GNU_STACK = 1, 2, 3, 0x6474E551
PF_X, PF_W = 1, 2
SHT_DYNAMIC, SHT_NOBITS, SHT_DYNSYM = 6, 8, 11
DT_NULL, DT_STRTAB, DT_SYMTAB = 0, 5, 6


@dataclass(frozen=True)
class _Segment:
    kind: int
    flags: int
    offset: int
    address: int
    file_bytes: int
    memory_bytes: int


@dataclass(frozen=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int


def elf_layout_problems(data: bytes, machine: int) -> tuple[str, ...]:
    """Why ``data`` is no shared object for ``machine`` (an EM_ number) that loads as it reads."""
    if len(data) < _HEADER.size or not data.startswith(_IDENT):
        return ("its header is not that of a little-endian ELF file of 64 bits",)
    header = _HEADER.unpack_from(data)
    kind, made_for, segment_bytes, segment_count = header[1], header[2], header[9], header[10]
    problems = []
    if kind != ET_DYN:
        problems.append(f"its type is {kind}, expected {ET_DYN} (a shared object)")
    if made_for != machine:
        problems.append(f"its machine is {made_for}, expected {machine}")
    segments = _table(data, header[5], segment_bytes, segment_count, _SEGMENT)
    sections = _table(data, header[6], header[11], header[12], _SECTION)
    if not segments:
        problems.append(f"its {segment_count} program headers at byte {header[5]} are not in the file")
    if not sections or header[13] >= len(sections):
        problems.append(f"its {header[12]} section headers at byte {header[6]} are not in the file")
    if not segments or not sections:
        return tuple(problems)
    # Of a segment: p_type, p_flags, p_offset, p_vaddr, p_filesz, p_memsz; of a section the like.
    parts = [_Segment(s[0], s[1], s[2], s[3], s[5], s[6]) for s in segments]
    held = [_Section(s[1], s[4], s[5], s[6]) for s in sections]
    bounds = [*_segment_problems(parts, len(data)), *_section_problems(held, len(data))]
    return (*problems, *bounds, *(() if bounds else _dynamic_problems(data, parts, held)))


def _table(
    data: bytes, start: int, entry_bytes: int, count: int, form: struct.Struct
) -> list[tuple[int, ...]]:
    """The rows of a table of headers; none when it is not in the file."""
    if entry_bytes != form.size or start + entry_bytes * count > len(data):
        return []
    return [form.unpack_from(data, start + entry_bytes * number) for number in range(count)]


def _segment_problems(segments: Sequence[_Segment], size: int) -> Iterator[str]:
    for number, one in enumerate(segments):
        if one.offset + one.file_bytes > size or one.file_bytes > one.memory_bytes:
            yield f"segment {number} has {one.file_bytes} bytes at {one.offset}, which are not in the file"
        if one.kind == PT_LOAD and one.flags & PF_W and one.flags & PF_X:
            yield f"segment {number} is loaded writable and executable"
        if one.kind == PT_INTERP:
            yield f"segment {number} names a program interpreter"
    loads = [one for one in segments if one.kind == PT_LOAD]
    for before, one in pairwise(loads):
        if (before.address + max(before.memory_bytes, 1) - 1) // PAGE >= one.address // PAGE:
            yield f"what is loaded at {one.address:#x} lies over what is loaded at {before.address:#x}"
    stacks = [one for one in segments if one.kind == PT_GNU_STACK]
    if len(stacks) != 1:
        yield f"it has {len(stacks)} PT_GNU_STACK, expected one: without it the stack may be executable"
    elif stacks[0].flags & PF_X:
        yield "it asks for an executable stack"


def _section_problems(sections: Sequence[_Section], size: int) -> Iterator[str]:
    for number, one in enumerate(sections):
        if one.kind != SHT_NOBITS and one.offset + one.size > size:
            yield f"section {number} has {one.size} bytes at {one.offset}, which are not in the file"


def _dynamic_problems(
    data: bytes, segments: Sequence[_Segment], sections: Sequence[_Section]
) -> Iterator[str]:
    """In what the dynamic table that is loaded differs from the sections that were read."""
    loaded = [(one.offset, one.file_bytes) for one in segments if one.kind == PT_DYNAMIC]
    read = [(one.offset, one.size) for one in sections if one.kind == SHT_DYNAMIC]
    if len(loaded) != 1 or loaded != read:
        yield f"its dynamic tables are loaded from {loaded} and read from {read}, expected one place"
        return
    [(start, size)] = loaded
    symbols = [one for one in sections if one.kind == SHT_DYNSYM]
    if len(symbols) != 1 or symbols[0].link >= len(sections):
        yield f"it has {len(symbols)} tables of dynamic symbols, expected one, linked with its strings"
        return
    expected = {DT_SYMTAB: symbols[0].offset, DT_STRTAB: sections[symbols[0].link].offset}
    for tag, offset in expected.items():
        found = [_file_offset(address, segments) for kind, address in _tags(data, start, size) if kind == tag]
        if found != [offset]:
            name = "symbols" if tag == DT_SYMTAB else "strings"
            yield f"its dynamic {name} are loaded from {found} and read from [{offset}], expected one place"


def _tags(data: bytes, start: int, size: int) -> Iterator[tuple[int, int]]:
    for at in range(start, start + size - _TAG.size + 1, _TAG.size):
        kind, value = _TAG.unpack_from(data, at)
        if kind == DT_NULL:
            return
        yield kind, value


def _file_offset(address: int, segments: Sequence[_Segment]) -> int | None:
    for one in segments:
        if one.kind == PT_LOAD and one.address <= address < one.address + one.file_bytes:
            return one.offset + address - one.address
    return None
