"""Rules for a DLL's memory after loading by Windows, in addition to those of audit/dll.py.

The loader writes to relocated fields, import lists and the index of thread-local storage. It calls the entry
point and callbacks. All of these must be where the linker puts them. Then the device code in memory equals
that in the file, for any load address.
"""

import struct
from collections.abc import Collection, Iterator, Mapping

from wheel_builder.files.binaries import pe
from wheel_builder.files.binaries.pe import Pe, Section
from wheel_builder.files.binaries.pememory import (
    ALIGNMENT,
    POINTER,
    Functions,
    Tls,
    debug_entry,
    functions,
    relocations,
    thread_storage,
)
from wheel_builder.files.device.library import WINDOWS_SECTION

# lld's bytes before the PE header: a program for DOS that prints a message.
STUB = (
    b"MZx\0\1\0\0\0\4".ljust(24, b"\0") + b"@".ljust(36, b"\0") + b"x\0\0\0"
    b"\x0e\x1f\xba\x0e\0\xb4\x09\xcd!\xb8\1L\xcd!This program cannot be run in DOS mode.$\0\0"
)  # fmt: skip
# Fields of the optional header chosen by the linker, here lld for a MinGW DLL.
HEADER = {
    "linker major": 14, "linker minor": 0, "zero bytes": 0, "code base": 0x1000, "image base": 0x180000000,
    "system major": 6, "system minor": 0, "image major": 0, "image minor": 0, "subsystem major": 6,
    "subsystem minor": 0, "version": 0, "checksum": 0, "subsystem": pe.WINDOWS_GUI, "stack": 1 << 20,
    "committed stack": 4096, "heap": 1 << 20, "committed heap": 4096, "loader flags": 0, "directories": 16,
}  # fmt: skip
# Sections that may hold pointers, and may be their targets besides functions.
POINTERS = frozenset({".rdata", ".data"})
POINTED_TO = frozenset({".rdata", ".data", ".tls"})
CODE, RELOCATIONS, STORAGE, DATA, READ_ONLY = ".text", ".reloc", ".tls", ".data", ".rdata"
# Size of .data in memory beyond its bytes in the file. Today's library has 7 KiB.
MOST_ZEROS = 1 << 16
MOST_CALLBACKS = 2  # MinGW's: one creates a thread's variables, one destroys them
REPRODUCIBLE = (16, 0, 0, 0)  # a debug table that marks the time stamp as a hash
FILLED = {CODE: b"\xcc", ".fa_bund": b"\xcc"}  # others with zeros
NAMED = 5


def memory_problems(dll: Pe) -> Iterator[str]:
    """Differences of a DLL from the linker's output in memory that the loader would change, map or call.

    Raises ``PeError`` for tables that cannot be read.
    """
    yield from _header_problems(dll)
    for section in dll.sections:
        yield from _size_problems(dll, section)
    fields, known, storage = relocations(dll), functions(dll), thread_storage(dll)
    # Begin and end of thread-local storage are checked together, as the end may be its section's.
    ends = storage.fields[:2] if storage else ()
    yield from _some(_relocation_problems(dll, fields, known))
    pointers = {field: target for field, target in fields.items() if field not in ends}
    yield from _some(_target_problems(dll, pointers, known))
    yield from _some(_dropped(dll, fields))
    yield from _some(_code_problems(dll, known))
    yield from _import_problems(dll)
    if storage:
        yield from _storage_problems(dll, storage, fields, known)
    if (found := debug_entry(dll)) not in ((), REPRODUCIBLE):
        yield f"its debug table has {found}; expected {REPRODUCIBLE}, which names nothing"


def _header_problems(dll: Pe) -> Iterator[str]:
    for name, expected in HEADER.items():
        if (found := dll.header[name]) != expected:
            yield f"its header says {name} {found:#x}; expected {expected:#x}"
    if dll.stub != STUB:
        yield f"{len(dll.stub)} bytes are before its header; expected the {len(STUB)} that lld writes"
    if any(dll.rest):
        yield "bytes follow its section headers; expected zeros up to the first section"


def _size_problems(dll: Pe, section: Section) -> Iterator[str]:
    zeros = section.size - section.file_size
    if zeros > (most := MOST_ZEROS if section.name == DATA else 0):
        yield f"section {section.name} has {zeros} bytes that the file has not; expected at most {most}"
    behind = dll.data[section.file_at + section.size : section.file_at + section.file_size]
    if behind.strip(FILLED.get(section.name, b"\0")):
        yield f"bytes that no size names follow section {section.name}; expected what fills it up"


def _relocation_problems(dll: Pe, fields: Mapping[int, int], known: Functions) -> Iterator[str]:
    place, size = dll.places.get("relocation", (0, 0))
    if not fields:
        yield "it has no base relocations; expected them, as it is loaded anywhere"
        return
    own = [(each.address, each.size) for each in dll.sections if each.name == RELOCATIONS]
    if own != [(place, size)]:
        yield f"its base relocations have {size} bytes at {place:#x}; expected all of {RELOCATIONS}"
    tables = (*dll.read, *dll.written, *known.unwind)
    read = {address for span in tables for address in span}
    for field in fields:
        if (section := dll.section_at(field)) not in POINTERS:
            yield f"a base relocation changes {field:#x} in {section}; expected {_listed(POINTERS)}"
        elif not read.isdisjoint(range(field, field + POINTER)):
            yield f"a base relocation changes {field:#x}, which is part of a table"


def _target_problems(dll: Pe, pointers: Mapping[int, int], known: Functions) -> Iterator[str]:
    for field, target in pointers.items():
        section = dll.section_at(target)
        if section == CODE and target not in known.begins:
            yield f"the pointer at {field:#x} is to {target:#x} in {CODE}, where no function begins"
        elif section not in POINTED_TO | {CODE} and target:  # 0: the image itself
            expected = _listed(POINTED_TO | {CODE})
            yield f"the pointer at {field:#x} is into {section or 'no section'}; expected {expected}"


def _dropped(dll: Pe, fields: Mapping[int, int]) -> Iterator[str]:
    """Data fields that hold an address of the image and lack a relocation.

    By chance it is impossible: half of the field would be 1, the other in the image's range.
    """
    base, end = dll.header["image base"], dll.sections[-1].memory_end
    for section in dll.sections:
        if section.name in (CODE, WINDOWS_SECTION):
            continue
        held = dll.section_bytes(section.name) or b""
        words = struct.unpack(f"<{len(held) // 4}I", held[: len(held) // 4 * 4])
        for number, high in enumerate(words[1:]):
            field, target = section.address + 4 * number, (high << 32 | words[number]) - base
            if dll.sections[0].address <= target < end and field not in fields:
                yield f"{section.name} has an address of the image at {field:#x} without a base relocation"


def _code_problems(dll: Pe, known: Functions) -> Iterator[str]:
    for begin, end in known.begins.items():
        if (dll.section_at(begin), dll.section_at(end - 1)) != (CODE, CODE):
            yield f"the exception table has a function from {begin:#x} to {end:#x}; expected {CODE}"
    for data in known.unwind:
        if (section := dll.section_at(data.start)) != READ_ONLY or data.start % 4:
            yield f"what unwinds a function is at {data.start:#x} in {section}; expected {READ_ONLY}"
    entry = ("its entry point", dll.header["entry"])
    exports = ((f"the export {name}", at) for name, at in zip(dll.exports, dll.exported, strict=True))
    handlers = (("the handler of a function", handler) for handler in known.handlers)
    yield from _no_functions([entry, *exports, *handlers], known)


def _no_functions(called: Collection[tuple[str, int]], known: Functions) -> Iterator[str]:
    for what, address in dict.fromkeys(called):
        if address not in known.begins:
            yield f"{what} is {address:#x}, where no function begins"


def _import_problems(dll: Pe) -> Iterator[str]:
    place, size = dll.places.get("import address", (0, 0))
    if [address for span in dll.written for address in span] != [*range(place, place + size)]:
        yield f"the table of import addresses has {size} bytes at {place:#x}; expected all lists and no more"
    filled = range(place, place + size)
    if any(span.start < filled.stop and filled.start < span.stop for span in dll.read):
        yield "the loader fills addresses in where it reads names of imports or exports; expected them apart"


def _storage_problems(dll: Pe, storage: Tls, fields: Mapping[int, int], known: Functions) -> Iterator[str]:
    own = next((each for each in dll.sections if each.name == STORAGE), None)
    if own is None or storage.start != own.address or not own.address <= storage.end <= own.memory_end:
        yield f"thread-local storage is from {storage.start:#x} to {storage.end:#x}; expected {STORAGE}"
    if storage.zeros or storage.alignment & ~ALIGNMENT:
        yield f"thread-local storage has {storage.zeros} zeros, flags {storage.alignment:#x}; expected none"
    places = range(storage.index, storage.index + 4)
    if dll.section_at(storage.index) != DATA or dll.section_at(places[-1]) != DATA or storage.index % 4:
        yield f"the index of thread-local storage is at {storage.index:#x}; expected {DATA}"
    if any(field in fields for field in range(storage.index - POINTER + 1, places.stop)):
        yield f"the index of thread-local storage at {storage.index:#x} overlaps a pointer"
    if len(storage.callbacks) > MOST_CALLBACKS:
        yield f"it has {len(storage.callbacks)} callbacks; expected {MOST_CALLBACKS} at most, MinGW's own"
    yield from _no_functions([("a callback", callback) for callback in storage.callbacks], known)
    for field in storage.fields:
        if field not in fields:
            yield f"thread-local storage has a pointer at {field:#x} without a base relocation"


def _some(problems: Iterator[str]) -> Iterator[str]:
    """The first few: one wrong table can have thousands."""
    found = list(problems)
    yield from found[:NAMED]
    if more := len(found[NAMED:]):
        yield f"{more} more of these"


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
