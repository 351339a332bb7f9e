"""DLLs for Windows, read as their loader does: good ones, ones changed at one place, and random changes."""

import random
import struct
from dataclasses import replace

import pytest

from tests.tools.made.pes import DATA, HEADERS, IMPORTS, OPTIONAL_AT, PE_AT, READ, SECTIONS_AT, Dll, changed
from wheel_builder.base.errors import PeError
from wheel_builder.files.binaries.pe import read_pe

EXPORTS = ("fa_gpus", "fa_limits")
GOOD = Dll(exports=EXPORTS, bare=True).data
# Offsets of numbers in the headers.
COUNT, SYMBOLS, OPTIONAL_BYTES = PE_AT + 6, PE_AT + 16, PE_AT + 20
FILE_ALIGNMENT, IMAGE_BYTES, HEADER_BYTES = OPTIONAL_AT + 36, OPTIONAL_AT + 56, OPTIONAL_AT + 60
DIRECTORY_COUNT, EXPORT, IMPORT = OPTIONAL_AT + 108, OPTIONAL_AT + 112, OPTIONAL_AT + 120
RDATA = HEADERS + 512  # file offset, at 0x2000 in memory
SIZE, ADDRESS, FILE_SIZE, FILE_AT = (SECTIONS_AT + 40 + at for at in (8, 12, 16, 20))


def exports_at(data=GOOD):
    return RDATA + struct.unpack_from("<I", data, EXPORT)[0] - 0x2000


def number(at, data=GOOD):
    return struct.unpack_from("<I", data, at)[0]


def in_file(address):
    return RDATA + address - 0x2000


def test_a_dll_is_read():
    found = read_pe(GOOD)
    assert found.imports == IMPORTS
    assert (found.exports, found.export_name) == (EXPORTS, "flash_attn_rocm.dll")
    assert [section.name for section in found.sections] == [".text", ".rdata", ".hip_fat"]
    assert found.section_bytes(".hip_fat") == b"__CLANG_OFFLOAD_BUNDLE__"
    assert found.section_bytes(".data") is None
    assert found.directories == {"export": ".rdata", "import": ".rdata"}
    assert (found.overlay, read_pe(Dll(overlay=b"behind").data).overlay) == (0, 6)


def test_a_section_without_bytes_in_the_file_is_only_memory():
    data = Dll(extra=((".bss", b"\0" * 8, DATA | READ), (".hip_fat", b"x", DATA | READ)), bare=True).data
    bss = SECTIONS_AT + 80
    for at, value in ((16, 0), (20, 0)):
        data = changed(data, bss + at, "<I", value)
    data = changed(data, bss + 40 + 20, "<I", number(bss + 60, data) - 512)
    found = read_pe(data[:-1024] + data[-512:])
    assert [(s.name, s.size, s.file_size) for s in found.sections][2] == (".bss", 8, 0)
    assert found.section_bytes(".hip_fat") == b"x"


MUTANTS = {
    "an ELF file": (lambda d: b"\x7fELF" + d[4:], "it does not begin with MZ"),
    "no PE header": (lambda d: changed(d, 0x3C, "<I", 0x90), "there is no PE header at 0x90"),
    "headers that overlap": (lambda d: changed(d, 0x3C, "<I", 4), "there is no PE header at 0x4"),
    "another machine": (
        lambda d: changed(d, PE_AT + 4, "<H", 0xAA64),
        "its machine is 0xaa64, expected 0x8664",
    ),
    "symbols": (lambda d: changed(d, SYMBOLS, "<I", 3), "it has 3 symbols of COFF"),
    "32 bits": (lambda d: changed(d, OPTIONAL_AT, "<H", 0x10B), "its optional header is of kind 0x10b"),
    "a longer header": (
        lambda d: changed(d, OPTIONAL_BYTES, "<H", 248),
        "its optional header has 248 bytes and 16 directories",
    ),
    "fewer directories": (
        lambda d: changed(d, DIRECTORY_COUNT, "<I", 2),
        "its optional header has 240 bytes and 2 directories",
    ),
    "small alignment": (lambda d: changed(d, FILE_ALIGNMENT, "<I", 16), "it aligns to 4096 and 16"),
    "no section": (lambda d: changed(d, COUNT, "<H", 0), "it has 0 sections; expected 1 to 32"),
    "many sections": (lambda d: changed(d, COUNT, "<H", 33), "it has 33 sections; expected 1 to 32"),
    "a section less": (lambda d: changed(d, COUNT, "<H", 2), "and its sections end at 0x3000"),
    "headers that are not mapped": (
        lambda d: changed(d, HEADER_BYTES, "<I", SECTIONS_AT),
        "not in what the loader maps of the headers",
    ),
    "a larger image": (lambda d: changed(d, IMAGE_BYTES, "<I", 0x9000), "the image has 0x9000 bytes"),
    "a gap in memory": (lambda d: changed(d, ADDRESS, "<I", 0x3000), "section .rdata is at 0x3000"),
    "a section over another": (lambda d: changed(d, ADDRESS, "<I", 0x1000), "section .rdata is at 0x1000"),
    "an empty section": (lambda d: changed(d, SIZE, "<I", 0), "section .rdata is at 0x2000 with 0 bytes"),
    "bytes used twice": (lambda d: changed(d, FILE_AT, "<I", HEADERS), "at 0x400; expected 0x600"),
    "a gap in the file": (lambda d: changed(d, FILE_AT, "<I", RDATA + 512), "at 0x800; expected 0x600"),
    "half a sector": (lambda d: changed(d, FILE_SIZE, "<I", 700), "section .rdata has 700 bytes of the file"),
    "bytes that are not mapped": (
        lambda d: changed(d, SIZE, "<I", 16),
        "section .rdata has 1024 bytes in the file, and the loader maps 16",
    ),
    "a section that is cut off": (lambda d: d[:-512], "section .hip_fat has 512 bytes of the file"),
    "two sections of one name": (
        lambda d: d[:SECTIONS_AT] + b".hip_fat" + d[SECTIONS_AT + 8 :],
        "the name of section 2 is '.hip_fat'",
    ),
    "imports in the headers": (lambda d: changed(d, IMPORT, "<I", 0x80), "the import table is at 0x80"),
    "a table for exceptions outside": (
        lambda d: changed(d, IMPORT + 16, "<I", 0x9000),
        "the exception table is at 0x9000, where no section maps 1 bytes of the file",
    ),
    "a table for exceptions without place": (
        lambda d: changed(d, IMPORT + 20, "<I", 12),
        "the exception table is at 0x0",
    ),
    "imports outside": (lambda d: changed(d, IMPORT, "<I", 0x9000), "the import table is at 0x9000"),
    "more imports than said": (lambda d: changed(d, IMPORT + 4, "<I", 40), "longer than its directory says"),
    "an import by number": (
        lambda d: changed(d, in_file(number(RDATA)), "<Q", 1 << 63 | 7),
        "it imports number 7 of torch_cpu.dll",
    ),
    "another list for the loader": (
        lambda d: changed(d, in_file(number(RDATA + 16)), "<Q", number(in_file(number(RDATA)) + 8)),
        "the two lists of what is imported from torch_cpu.dll differ",
    ),
    "a DLL twice": (
        lambda d: changed(d, RDATA + 20 + 12, "<I", number(RDATA + 12)),
        "the import table names torch_cpu.dll twice",
    ),
    "a name with a path": (
        lambda d: d.replace(b"KERNEL32.dll", b"K\\RN L32.dll"),
        "the name of an imported DLL is",
    ),
    "an export without a name": (
        lambda d: changed(d, exports_at(d) + 20, "<I", 3),
        "it exports 3 functions by 2",
    ),
    "many exports": (lambda d: changed(d, exports_at(d) + 20, "<I", 1 << 30), "functions by 2 names"),
    "a forwarded export": (
        lambda d: changed(d, in_file(number(exports_at(d) + 28)), "<I", number(EXPORT)),
        "the export fa_gpus is forwarded to another DLL",
    ),
    "an export nowhere": (
        lambda d: changed(d, in_file(number(exports_at(d) + 28)), "<I", 0x9000),
        "the export fa_gpus is at 0x9000",
    ),
    "a number that is no export": (
        lambda d: changed(d, in_file(number(exports_at(d) + 36)), "<H", 9),
        "the export fa_gpus is number 9 of 2",
    ),
    "exports out of order": (
        lambda d: Dll(exports=EXPORTS[::-1]).data,
        "the names of exports are not in order",
    ),
}


@pytest.mark.parametrize(("change", "words"), MUTANTS.values(), ids=MUTANTS.keys())
def test_what_a_loader_and_a_reader_could_see_differently_is_refused(change, words):
    with pytest.raises(PeError) as caught:
        read_pe(change(GOOD))
    assert words in caught.value.message
    assert caught.value.advice == "link it again with the pipeline's own flags"


@pytest.mark.parametrize("length", range(0, len(GOOD), 97))
def test_a_file_that_is_cut_off_is_refused(length):
    with pytest.raises(PeError):
        read_pe(GOOD[:length])


def test_whatever_the_bytes_are_the_answer_is_a_dll_or_an_error():
    chance = random.Random(32)
    for _ in range(3000):
        data = bytearray(GOOD)
        for _ in range(chance.randrange(1, 5)):
            at = chance.choice((chance.randrange(HEADERS), chance.randrange(len(data))))
            data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        try:
            found = read_pe(bytes(data))
        except PeError:
            continue
        assert sum(section.file_size for section in found.sections) + HEADERS + found.overlay == len(data)


def test_names_without_end_take_no_time():
    with pytest.raises(PeError, match="more than 512 characters"):
        read_pe(replace(Dll(), name="x" * 4000).data)
