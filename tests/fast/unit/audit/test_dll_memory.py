"""What Windows' loader changes, maps and calls: DLLs with one such difference from a good one.

The audit accepted each of them when it read imports, exports and sections only.
"""

import random
import struct

import pytest

from tests.tools.made import pes
from tests.tools.made.pes import BASE, HEADERS, IMPORTS, OPTIONAL_AT, PE_AT, READ, Dll, relocation_blocks
from tests.tools.made.pes import changed as with_number
from wheel_builder.audit.dll import dll_problems
from wheel_builder.audit.dll_memory import NAMED
from wheel_builder.base.errors import PeError
from wheel_builder.files.binaries.pe import read_pe
from wheel_builder.files.binaries.pememory import relocations, thread_storage

GOOD = Dll().data
READ_GOOD = read_pe(GOOD)
FIELDS = tuple(relocations(READ_GOOD))
STORAGE = thread_storage(READ_GOOD)
SECTIONS = {section.name: section for section in READ_GOOD.sections}
NUMBERS = {section.name: number for number, section in enumerate(READ_GOOD.sections)}
FLAGS = {name: section.flags for name, section in SECTIONS.items()}
FAT, TEXT, PDATA = (SECTIONS[name].address for name in (".hip_fat", ".text", ".pdata"))
TLS, IAT = READ_GOOD.places["tls"][0], READ_GOOD.places["import address"][0]
DISCARDABLE, SHARED, NOT_CACHED, WRITE = 0x2000000, 0x10000000, 0x4000000, 0x80000000


def problems(data):
    """The audit's problems, including those of an unreadable file."""
    try:
        return list(dll_problems(read_pe(data), IMPORTS["torch_cpu.dll"]))
    except PeError as error:
        return [error.message]


def in_file(address):
    [section] = [each for each in READ_GOOD.sections if each.address <= address < each.end]
    return section.file_at + address - section.address


def at(address, form, value):
    """The good DLL with a number at an address in memory."""
    return with_number(GOOD, in_file(address), form, value)


def header(offset, form, value):
    return with_number(GOOD, OPTIONAL_AT + offset, form, value)


def table(number, address=None, size=None, data=GOOD):
    """The DLL with a moved directory."""
    found = pes.DIRECTORIES_AT + 8 * number
    for where, value in ((found, address), (found + 4, size)):
        data = data if value is None else with_number(data, where, "<I", value)
    return data


def section(name, offset, value):
    return with_number(GOOD, pes.SECTIONS_AT + 40 * NUMBERS[name] + offset, "<I", value)


def relocated(fields=FIELDS, blocks=None, data=GOOD):
    """With other base relocations, which fill .reloc as before."""
    found = relocation_blocks(list(fields)) if blocks is None else blocks
    own = SECTIONS[".reloc"]
    data = data[: own.file_at] + found.ljust(own.file_size, b"\0") + data[own.file_at + own.file_size :]
    data = with_number(data, pes.SECTIONS_AT + 40 * NUMBERS[".reloc"] + 8, "<I", len(found))
    return table(5, size=len(found), data=data)


def without(field):
    return relocated([each for each in FIELDS if each != field])


def block(*entries, page=0x2000, size=None):
    words = struct.pack(f"<{len(entries)}H", *entries)
    return struct.pack("<II", page, 8 + len(words) if size is None else size) + words


def huge(name):
    """A section of 2 GiB of zeros in place of the last one."""
    data = with_number(GOOD, pes.SECTIONS_AT + 40 * NUMBERS[name] + 8, "<I", 1 << 31)
    return with_number(data, OPTIONAL_AT + 56, "<I", SECTIONS[name].address + (1 << 31))


def more_callbacks(count):
    """The list of callbacks elsewhere, with one callback repeated. All of it is relocated."""
    place = SECTIONS[".data"].address + 8
    data = at(TLS + 24, "<Q", BASE + place)
    for number in range(count):
        data = with_number(data, in_file(place + 8 * number), "<Q", BASE + TEXT)
    return relocated(sorted({*FIELDS, *(place + 8 * number for number in range(count))}), data=data)


def first_import(offset):
    return READ_GOOD.places["import"][0] + offset


ODD = {
    # Base relocations: changed and unchanged places.
    "device code is changed": (relocated([*FIELDS, FAT]), f"a base relocation changes {FAT:#x} in .hip_fat"),
    "code is changed": (relocated([TEXT, *FIELDS]), "a base relocation changes 0x1000 in .text"),
    "exceptions are changed": (relocated([*FIELDS, PDATA]), "in .pdata; expected .data, .rdata"),
    "storage is changed": (relocated([*FIELDS, SECTIONS[".tls"].address]), "in .tls; expected .data, .rdata"),
    "relocations are changed": (
        relocated([*FIELDS, SECTIONS[".reloc"].address]), "in .reloc; expected .data, .rdata",
    ),
    "an import address is changed": (relocated(sorted([*FIELDS, IAT])), "which is part of a table"),
    "an import's name is changed": (relocated(sorted([*FIELDS, first_import(12)])), "is part of a table"),
    "half an import address is changed": (relocated(sorted([*FIELDS, IAT - 4])), "which is part of a table"),
    "an export is changed": (
        relocated(sorted([*FIELDS, READ_GOOD.places["export"][0] + 24])), "which is part of a table",
    ),
    "headers are changed": (
        relocated(blocks=block(10 << 12 | 0x30, 0, page=0)), "a relocated field at 0x30 is at 0x30, where no",
    ),
    "what is outside is changed": (
        relocated(blocks=block(10 << 12, 0, page=0x70000000)), "is at 0x70000000, where no section maps",
    ),
    "32 bits are changed": (relocated(blocks=block(3 << 12, 0)), "of type 3; expected 10 (DIR64)"),
    "16 bits are changed": (relocated(blocks=block(1 << 12, 0)), "of type 1; expected 10 (DIR64)"),
    "a thumb's instruction": (relocated(blocks=block(7 << 12, 0)), "of type 7; expected 10 (DIR64)"),
    "filling in the middle": (relocated(blocks=block(0, 10 << 12)), "of type 0; expected 10 (DIR64)"),
    "a field twice": (
        relocated(blocks=block(10 << 12 | FIELDS[0] & 4095, 10 << 12 | FIELDS[0] & 4095)),
        "overlaps the one before it",
    ),
    "fields that overlap": (
        relocated(sorted([*FIELDS, FIELDS[0] + 4])), "overlaps the one before it",
    ),
    "a block of no size": (relocated(blocks=block(size=0)), "for page 0x2000 and has 0 bytes"),
    "a block that is too long": (relocated(blocks=block(0, 0, size=64)), "and has 64 bytes"),
    "half a page": (relocated(blocks=block(10 << 12, 0, page=0x2008)), "is for page 0x2008"),
    "none": (table(5, 0, 0), "it has no base relocations; expected them"),
    "none that the loader may use": (
        with_number(GOOD, PE_AT + 22, "<H", 0x2023), "it has the characteristics 0x1, too; expected 0x2022",
    ),
    "less than the section": (
        table(5, size=struct.unpack_from("<I", GOOD, SECTIONS[".reloc"].file_at + 4)[0]),
        "; expected all of .reloc",
    ),
    "a class lacks one": (without(FIELDS[-3]), ".rdata has an address of the image at"),
    "data lacks one": (
        without(SECTIONS[".data"].address), ".data has an address of the image at",
    ),
    "a callback lacks one": (without(STORAGE.fields[4]), "without a base relocation"),
    "storage lacks one": (without(TLS), "thread-local storage has a pointer at"),
    # Targets of pointers.
    "a pointer out of the image": (at(FIELDS[-2], "<Q", BASE + 0x900000), "is into no section; expected "),
    "a pointer before the image": (at(FIELDS[-2], "<Q", 0x1000), "is into no section; expected .data, "),
    "a pointer to device code": (at(FIELDS[-2], "<Q", BASE + FAT), "is into .hip_fat; expected .data, "),
    "a pointer into a header": (at(FIELDS[-2], "<Q", BASE + 0x80), "is into no section; expected"),
    "a pointer between functions": (at(FIELDS[-4], "<Q", BASE + 0x100F), "in .text, where no function"),
    # The header.
    **{
        f"image base {base:#x}": (header(24, "<Q", base), f"image base {base:#x}; expected 0x180000000")
        for base in (0, 0x10000, 0x140000000, BASE + 0x10000, 1 << 47)
    },
    "the entry point is in device code": (header(16, "<I", FAT), f"its entry point is {FAT:#x}, where no"),
    "the entry point is within a function": (header(16, "<I", 0x1002), "its entry point is 0x1002"),
    "the entry point is a table": (header(16, "<I", IAT), "its entry point is "),
    "no entry point": (header(16, "<I", 0), "its entry point is 0x0, where no function begins"),
    **{
        f"header: {name}": (header(offset, form, value), f"its header says {name} {value:#x}; expected")
        for name, offset, form, value in (
            ("subsystem", 68, "<H", 1), ("subsystem", 68, "<H", 3), ("subsystem", 68, "<H", 10),
            ("version", 52, "<I", 0x0A000), ("loader flags", 104, "<I", 1), ("checksum", 64, "<I", 7),
            ("stack", 72, "<Q", 1 << 40), ("committed stack", 80, "<Q", 1 << 30), ("heap", 88, "<Q", 1 << 40),
            ("committed heap", 96, "<Q", 1 << 30), ("system major", 40, "<H", 99),
            ("subsystem major", 48, "<H", 99), ("subsystem minor", 50, "<H", 9), ("code base", 20, "<I", FAT),
            ("image major", 44, "<H", 1), ("linker major", 2, "<B", 2), ("zero bytes", 12, "<I", 1 << 20),
        )
    },
    # Thread-local storage.
    "a callback in device code": (at(STORAGE.fields[4], "<Q", BASE + FAT), f"a callback is {FAT:#x}, where"),
    "a callback in data": (at(STORAGE.fields[4], "<Q", BASE + IAT), f"a callback is {IAT:#x}, where no"),
    "a callback within a function": (at(STORAGE.fields[4], "<Q", BASE + 0x1002), "a callback is 0x1002"),
    "three callbacks": (more_callbacks(3), "it has 3 callbacks; expected 2 at most, MinGW's own"),
    "the index is device code": (at(TLS + 16, "<Q", BASE + FAT), "the index of thread-local storage is at"),
    "the index is an import": (at(TLS + 16, "<Q", BASE + IAT), "the index of thread-local storage is at"),
    "the index is a pointer": (
        at(TLS + 16, "<Q", BASE + SECTIONS[".data"].address + 4), "overlaps a pointer",
    ),
    "the index is not aligned": (
        at(TLS + 16, "<Q", BASE + SECTIONS[".data"].address + 33), "the index of thread-local storage is at",
    ),
    "the index is behind data": (
        at(TLS + 16, "<Q", BASE + SECTIONS[".data"].memory_end - 2), "the index of thread-local storage is",
    ),
    "storage of device code": (at(TLS, "<Q", BASE + FAT), "thread-local storage is from"),
    "storage without end": (at(TLS + 8, "<Q", BASE + SECTIONS[".reloc"].address), "; expected .tls"),
    "storage of 2 GiB": (at(TLS + 32, "<I", 1 << 31), "thread-local storage has 2147483648 zeros"),
    "storage with flags": (at(TLS + 36, "<I", 1), ", flags 0x1; expected none"),
    "callbacks in the headers": (at(TLS + 24, "<Q", BASE + 0x80), "the list of callbacks is at 0x80"),
    "half a table of storage": (table(9, size=20), "the table of thread-local storage has 20 bytes"),
    # Imports.
    "import addresses in device code": (
        table(12, FAT, 24), "the import address table is in section .hip_fat; expected it in .rdata",
    ),
    "fewer import addresses": (table(12, size=8), "the table of import addresses has 8 bytes"),
    "more import addresses": (table(12, size=256), "the table of import addresses has 256 bytes"),
    "no table of import addresses": (table(12, 0, 0), "the table of import addresses has 0 bytes"),
    "bound imports": (at(first_import(4), "<I", 0xFFFFFFFF), "are bound to addresses beforehand"),
    "forwarded imports": (at(first_import(8), "<I", 1), "are bound to addresses beforehand"),
    "one list for both": (
        at(first_import(0), "<I", struct.unpack_from("<I", GOOD, in_file(first_import(16)))[0]),
        "expected them apart",
    ),
    # Sections.
    **{
        f"{name} with flags {flags:#x}": (section(name, 36, flags), words)
        for name, flags, words in (
            (".hip_fat", FLAGS[".hip_fat"] | DISCARDABLE, "section .hip_fat has flags 0x42000040"),
            (".hip_fat", FLAGS[".hip_fat"] | SHARED, "the flags 0x10000000"),
            (".hip_fat", FLAGS[".hip_fat"] & ~READ, "section .hip_fat has flags 0x40; expected 0x40000040"),
            (".rdata", FLAGS[".rdata"] | WRITE, "section .rdata has flags 0xc0000040; expected 0x40000040"),
            (".rdata", FLAGS[".rdata"] | DISCARDABLE, "section .rdata has flags 0x42000040"),
            (".text", FLAGS[".text"] & ~0x20000000, "section .text has flags 0x40000020; expected 0x6000"),
            (".text", FLAGS[".text"] & ~READ, "section .text has flags 0x20000020; expected 0x60000020"),
            (".text", FLAGS[".text"] | DISCARDABLE, "section .text has flags 0x62000020"),
            (".data", FLAGS[".data"] & ~WRITE, "section .data has flags 0x40000040; expected 0xc0000040"),
            (".data", FLAGS[".data"] | NOT_CACHED, "section .data has the flags 0x4000000;"),
            (".pdata", FLAGS[".pdata"] | WRITE, "section .pdata has flags 0xc0000040"),
            (".tls", FLAGS[".tls"] & ~WRITE, "section .tls has flags 0x40000040; expected 0xc0000040"),
            (".reloc", FLAGS[".reloc"] & ~DISCARDABLE, "section .reloc has flags 0x40000040"),
            (".reloc", FLAGS[".reloc"] | WRITE, "section .reloc has flags 0xc2000040"),
        )
    },
    "2 GiB of zeros": (huge(".reloc"), "that the file has not; expected at most 0"),
    "zeros behind device code": (section(".hip_fat", 8, 4096), "that the file has not; expected at most 0"),
    "lines of an object file": (section(".text", 28, FAT), "section 0 names relocations or line numbers"),
    # Bytes outside all tables and sections.
    "a payload in the stub": (GOOD[:0x40] + b"\xcc" * 16 + GOOD[0x50:], "bytes are before its header"),
    "another header of DOS": (with_number(GOOD, 2, "<H", 7), "bytes are before its header; expected the 120"),
    "a payload behind the headers": (
        GOOD[: HEADERS - 16] + b"payload" + GOOD[HEADERS - 9 :], "bytes follow its section headers",
    ),
    "a payload behind code": (
        with_number(GOOD, SECTIONS[".text"].file_at + 64, "<Q", 0x9090), "follow section .text; expected",
    ),
    "a payload behind data": (
        with_number(GOOD, SECTIONS[".data"].file_at + 128, "<I", 1), "follow section .data; expected what",
    ),
    # Exceptions and debug data.
    "a function in device code": (at(PDATA + 28, "<I", FAT + 8), "the exception table has a function from"),
    "functions out of order": (at(PDATA, "<I", 0x1006), "the exception table has a function from 0x1006"),
    "half an entry": (table(3, size=20), "the exception table has 20 bytes"),
    "unwinding by device code": (at(PDATA + 8, "<I", FAT), "what unwinds a function "),
    "a path for debuggers": (
        table(6, SECTIONS[".data"].address, 28), "the debug table is in section .data; expected it in",
    ),
}  # fmt: skip


def test_the_good_one_is_good():
    assert problems(GOOD) == []
    assert sorted(FIELDS) == [*FIELDS]
    assert len(STORAGE.callbacks) == 2


@pytest.mark.parametrize(("data", "words"), ODD.values(), ids=ODD)
def test_an_odd_one_is_refused_in_words(data, words):
    found = problems(data)
    assert any(words in problem for problem in found), found


def test_a_handler_of_exceptions_is_a_function():
    unwind = READ_GOOD.sections[1].address + READ_GOOD.sections[1].size
    [place] = {struct.unpack_from("<I", GOOD, in_file(PDATA + 12 * n + 8))[0] for n in range(3)}
    assert place < unwind
    data = at(place, "<I", 1 | 3 << 3)
    assert any("the handler of a function is" in problem for problem in problems(data))


def test_many_problems_of_a_kind_are_counted():
    fields = [FAT + 8 * number for number in range(NAMED + 2)]
    found = problems(relocated([*FIELDS, *fields], data=with_fat(8 * len(fields))))
    assert "2 more of these" in found


def with_fat(size):
    return Dll(extra=((".hip_fat", struct.pack("<Q", BASE) * (size // 8), 0x40000040),)).data


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_tables_are_the_answer_is_problems_or_none(seed):
    """Random bytes of relocations, storage and exceptions give problems or none, and no other error."""
    rng, found = random.Random(seed), 0
    for _ in range(100):
        mutant = bytearray(GOOD)
        name = rng.choice((".reloc", ".pdata", ".rdata", ".data"))
        own = SECTIONS[name]
        mutant[own.file_at + rng.randrange(own.size)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        found += bool(problems(bytes(mutant)))
    assert found > 30
