"""Every shared object that a loader could load differently from our reading, or refuse, is refused."""

import lzma

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import CHECKOUT
from tests.tools.made.elves import EM_AMDGPU, EM_X86_64, Edit
from tests.tools.made.wheels import GOOD_LIBRARY, code_object, library
from wheel_builder.files.binaries.elflayout import elf_layout_problems
from wheel_builder.files.device.fatbin import read_fatbin

LOAD, DYNAMIC, INTERP, NOTE, PHDR, TLS = 1, 2, 3, 4, 6, 7
STACK, RELRO = 0x6474E551, 0x6474E552
CODE, DATA = 1, 2  # numbers of PT_LOADs
SONAME = 14
STRANGE_TAGS = {
    "AUXILIARY": 0x7FFFFFFD,
    "FILTER": 0x7FFFFFFF,
    "AUDIT": 0x6FFFFEFC,
    "DEPAUDIT": 0x6FFFFEFB,
    "CONFIG": 0x6FFFFEFA,
    "TEXTREL": 22,
    "INIT": 12,
    "FINI": 13,
    "PREINIT_ARRAY": 32,
    "SYMBOLIC": 16,
    "REL": 17,
    "RELR": 36,
    "GNU_PRELINKED": 0x6FFFFDF5,
    "VERDEF": 0x6FFFFFFC,
    "unknown": 0x12345678,
}
FLAGS = {"ORIGIN": 1, "SYMBOLIC": 2, "TEXTREL": 4, "STATIC_TLS": 16}
FLAGS_1 = {
    "GLOBAL": 2,
    "NODELETE": 8,
    "LOADFLTR": 0x10,
    "INITFIRST": 0x20,
    "ORIGIN": 0x80,
    "INTERPOSE": 0x400,
    "NODEFLIB": 0x800,
    "PIE": 0x8000000,
}


def refused(edit, words, machine=EM_X86_64):
    found = elf_layout_problems(edit.data, machine)
    assert any(words in problem for problem in found), found


@pytest.fixture
def edit():
    return Edit(GOOD_LIBRARY.data)


def test_good_files_load_as_they_read():
    assert elf_layout_problems(GOOD_LIBRARY.data, EM_X86_64) == ()
    assert elf_layout_problems(code_object("gfx942", ["a", "b"]), EM_AMDGPU) == ()


@pytest.mark.parametrize("kind", STRANGE_TAGS.values(), ids=STRANGE_TAGS)
def test_a_tag_that_is_not_known_to_be_harmless(edit, kind):
    refused(edit.tag(SONAME, kind=kind), f"its dynamic table has tag {kind:#x}, which is not known to be")


@pytest.mark.parametrize("flag", FLAGS.values(), ids=FLAGS)
def test_a_flag_that_is_not_known_to_be_harmless(edit, flag):
    refused(edit.tag(30, value=8 | flag), f"has {8 | flag:#x} for tag 0x1e, expected 0x8")


@pytest.mark.parametrize("flag", FLAGS_1.values(), ids=FLAGS_1)
def test_a_flag_of_the_second_kind_that_is_not_known_to_be_harmless(edit, flag):
    refused(edit.tag(0x6FFFFFFB, value=1 | flag), f"has {1 | flag:#x} for tag 0x6ffffffb, expected 0x1")


TAGS = {
    "a tag twice": ({"kind": 11}, "a tag is twice"),
    "a table of calls without its size": (
        {"kind": 23, "value": 0},
        "has only some of the tags 0x2, 0x3, 0x14",
    ),
    "no end": (None, "its dynamic table has no end"),
}


@pytest.mark.parametrize(("change", "words"), TAGS.values(), ids=TAGS)
def test_a_dynamic_table_that_is_not_whole(edit, change, words):
    refused(edit.tag(0, kind=14) if change is None else edit.tag(SONAME, **change), words)


def test_something_behind_the_end_of_the_dynamic_table(edit):
    refused(edit.tag(0x6FFFFFFF, kind=0), "there is something behind the end of its dynamic table")


@pytest.mark.parametrize("tag", [5, 6, 10, 11, 0x6FFFFEF5, 30, 0x6FFFFFFB])
def test_a_tag_that_is_missing(edit, tag):
    """Without DT_FLAGS the loader would bind late, and the table of functions would stay writable."""
    found = elf_layout_problems(edit.tag(tag, kind=SONAME).tag(SONAME, kind=15).data, EM_X86_64)
    assert found


# Changes of the header or of a segment, and the expected messages.
HEADERS = {
    "no program": (lambda e: e.header(kind=2), "its type is 2, expected 3 (a shared object)"),
    "another machine": (lambda e: e.header(machine=183), "its machine is 183, expected 62"),
    "another version": (lambda e: e.header(version=2), "expected version 1, no entry, 64 bytes"),
    "an entry": (lambda e: e.header(entry=64), "its header has version 1, entry 0x40, 64 bytes"),
    "flags": (lambda e: e.header(flags=1), "its header has flags 0x1, expected none"),
    "another system": (lambda e: Edit(e.data[:7] + b"\3" + e.data[8:]), "its header names another system"),
    "no segments": (lambda e: e.header(segment_count=0), "it has 0 PT_LOAD, expected 1 to 16"),
    "too many segments": (lambda e: e.header(segment_count=129), "it has 129 program headers, more than 128"),
    "segments of another size": (lambda e: e.header(segment_bytes=64), "its 7 program headers at byte 64"),
    "segments elsewhere": (lambda e: e.header(segments_at=1 << 63), "its 7 program headers at byte 922"),
    "no sections": (lambda e: e.header(section_count=0), "it has 0 sections, expected 1 to 128"),
    "sections elsewhere": (lambda e: e.header(sections_at=1 << 40), "its 10 section headers at byte 1099"),
    "names elsewhere": (lambda e: e.header(names_index=10), "its names are in section 10, and it has 10"),
    "an interpreter": (lambda e: e.segment(PHDR, kind=INTERP), "it has a segment of kind 0x3, expected only"),
    "a note": (lambda e: e.segment(PHDR, kind=NOTE), "it has a segment of kind 0x4, expected only"),
    "two dynamic tables": (lambda e: e.segment(PHDR, kind=DYNAMIC), "it has 2 PT_DYNAMIC, expected 1"),
    "no RELRO": (lambda e: e.segment(RELRO, kind=PHDR), "it has 0 PT_GNU_RELRO, expected 1"),
    "an executable stack": (lambda e: e.segment(STACK, flags=7), "it asks for an executable stack"),
    "a stack with a size": (
        lambda e: e.segment(STACK, memory_bytes=1),
        "PT_GNU_STACK is more than a request",
    ),
    "code that is written": (
        lambda e: e.segment(LOAD, CODE, flags=7),
        "segment 2 is loaded writable and exec",
    ),
    "code that cannot be read": (
        lambda e: e.segment(LOAD, CODE, flags=1),
        "segment 2 is loaded with flags 0x1",
    ),
    "data that is code": (lambda e: e.segment(LOAD, DATA, flags=5), "PT_GNU_RELRO at "),
    "a memory of fewer bytes": (lambda e: e.segment(LOAD, CODE, memory_bytes=1), "segment 2 has "),
    "bytes behind the file": (
        lambda e: e.segment(LOAD, 0, file_bytes=1 << 30),
        "segment 1 has 1073741824 bytes",
    ),
    "a wrapped offset": (
        lambda e: e.segment(LOAD, 1, offset=2**64 - 4096),
        "at 18446744073709547520, which are",
    ),
    "a wrapped address": (
        lambda e: e.segment(LOAD, DATA, address=2**64 - 4096, physical=2**64 - 4096),
        "it takes 18446744073709",
    ),
    "wrapped memory": (
        lambda e: e.segment(LOAD, DATA, memory_bytes=2**64 - 1),
        "bytes more of addresses than",
    ),
    "too much memory": (
        lambda e: e.segment(LOAD, DATA, memory_bytes=1 << 32),
        "at most 16777216 are allowed",
    ),
    "not by pages": (
        lambda e: e.segment(LOAD, CODE, alignment=3),
        "segment 2 is aligned to 3, expected 4096",
    ),
    "by large pages": (lambda e: e.segment(LOAD, CODE, alignment=1 << 21), "is aligned to 2097152, expected"),
    "an odd place": (
        lambda e: e.segment(LOAD, CODE, address=17),
        "segment 2 is aligned to 4096, expected 4096",
    ),
    "a physical address": (lambda e: e.segment(LOAD, CODE, physical=17), "has the physical address 0x11"),
    "a first segment elsewhere": (
        lambda e: e.segment(LOAD, 0, address=1 << 20, physical=1 << 20),
        "what is loaded first is not the beginning of the file, at address 0",
    ),
    "headers that are not loaded": (
        lambda e: e.segment(LOAD, 0, file_bytes=100),
        "its program headers are not loaded",
    ),
    "overlapping segments": (
        lambda e: e.segment(LOAD, 0, memory_bytes=1 << 17),
        "lies over what is loaded at 0x0",
    ),
    "zeros behind what is only read": (
        lambda e: e.segment(LOAD, CODE, memory_bytes=64),
        "segment 2 has zeros behind its bytes from the file",
    ),
    "memory behind the dynamic table": (
        lambda e: e.segment(DYNAMIC, memory_bytes=4096),
        "(PT_DYNAMIC) has 4096 bytes of memory",
    ),
    "half of RELRO": (lambda e: e.segment(RELRO, memory_bytes=16), "does not protect a writable PT_LOAD"),
    "RELRO of code": (
        lambda e: e.segment(RELRO, address=4096, physical=4096),
        "PT_GNU_RELRO at 0x1000 does not protect a writable PT_LOAD",
    ),
    "a dynamic table elsewhere": (
        lambda e: e.segment(DYNAMIC, address=64, physical=64),
        "(PT_DYNAMIC) is not loaded from where it lies",
    ),
    "a dynamic table read elsewhere": (
        lambda e: e.segment(DYNAMIC, offset=64),
        "(PT_DYNAMIC) is not loaded from where it lies",
    ),
    "headers elsewhere": (
        lambda e: e.segment(PHDR, file_bytes=56, memory_bytes=56),
        "PT_PHDR is not the table",
    ),
    "variables of threads": (
        lambda e: e.segment(PHDR, kind=TLS),
        "sections of variables of threads, and 1 PT_TLS",
    ),
    "threads without bytes": (
        lambda e: e.segment(PHDR, kind=TLS, file_bytes=0, memory_bytes=0),
        "PT_TLS has 0 bytes, expected 1 to 1048576",
    ),
    "threads at odd places": (
        lambda e: e.segment(PHDR, kind=TLS, alignment=3),
        "is aligned to 3, expected a power of two up to 64",
    ),
}


@pytest.mark.parametrize(("change", "words"), HEADERS.values(), ids=HEADERS)
def test_a_header_that_is_not_a_linkers(edit, change, words):
    refused(change(edit), words)


SECTIONS = {
    "loaded from elsewhere": (
        lambda e: e.section(".hip_fatbin", offset=e.of_section(".hip_fatbin")["offset"] - 8),
        "section .hip_fatbin is at byte ",
    ),
    "a clean copy": (
        lambda e: e.section(".hip_fatbin", address=1 << 24),
        "section .hip_fatbin is not loaded: no PT_LOAD has ",
    ),
    "not loaded": (lambda e: e.section(".hip_fatbin", flags=0), "section .hip_fatbin has the address "),
    "zeros": (lambda e: e.section(".hip_fatbin", kind=8), "section .hip_fatbin is not zeros"),
    "writable": (
        lambda e: e.section(".text", flags=7),
        "section .text is loaded with other rights than its flags",
    ),
    "beyond the file": (lambda e: e.section(".text", size=1 << 40), "which are not in the file"),
    "over another": (
        lambda e: e.section(".hip_fatbin", size=1 << 13),
        "bytes between section .hip_fatbin and",
    ),
    "over the next": (
        lambda e: e.section(".dynstr", size=e.of_section(".dynstr")["size"] + 64),
        "section .hip_fatbin lies over section .dynstr",
    ),
    "of an unknown kind": (
        lambda e: e.section(".text", kind=0x60000000),
        "section .text is of kind 0x60000000",
    ),
    "a first one": (lambda e: e.section("", size=1), "section 0 is not empty"),
    "names of another table": (
        lambda e: e.section(".dynamic", link=6),
        "its dynamic table is linked with section 6, and use another when loaded",
    ),
    "symbols' names of another table": (
        lambda e: e.section(".dynsym", link=9),
        "its table of symbols is linked with section 9, and use another when loaded",
    ),
    "versions' names of another table": (
        lambda e: e.section(".gnu.version_r", link=6),
        "its table of needed versions is linked with section 6",
    ),
    "versions of other symbols": (
        lambda e: e.section(".gnu.version", link=3),
        "its table of symbols' versions is linked",
    ),
    "hashes of other symbols": (
        lambda e: e.section(".gnu.hash", link=0),
        "its GNU hash table is linked with",
    ),
    "a link to nowhere": (lambda e: e.section(".gnu.hash", link=99), "is linked with section 99"),
    "fewer names": (lambda e: e.tag(10, value=e.of_section(".dynstr")["size"] - 1), "or has no end"),
    "more names": (
        lambda e: e.tag(10, value=e.of_section(".dynstr")["size"] + 1),
        "its table of names has 220 bytes",
    ),
    "another number of versions": (
        lambda e: e.section(".gnu.version_r", info=2),
        "it needs versions of 1 librar",
    ),
    "another number of loaded versions": (lambda e: e.tag(0x6FFFFFFF, value=2), "and counts 1"),
    "a second table of relocations": (
        lambda e: e.section(".hip_fatbin", kind=4),
        "is a table that is not loaded",
    ),
}


@pytest.mark.parametrize(("change", "words"), SECTIONS.values(), ids=SECTIONS)
def test_a_section_that_is_not_what_is_loaded(edit, change, words):
    refused(change(edit), words)


@pytest.mark.parametrize(("name", "tag"), [(".dynstr", 5), (".dynsym", 6), (".gnu.hash", 0x6FFFFEF5)])
def test_a_table_that_is_loaded_from_a_copy_of_its_section(name, tag):
    place = Edit(GOOD_LIBRARY.data).of_section(name)
    copy = GOOD_LIBRARY.data[place["offset"] :][: place["size"]]
    edit = Edit(library(sections={".rodata": copy}))
    address = edit.of_section(".rodata")["address"]
    refused(edit.tag(tag, value=address), f"loaded from {address:#x}, where no section of that kind begins")


def test_two_sections_of_one_name():
    data = library(sections={".one": b"1", ".two": b"2"}).replace(b".two\0", b".one\0")
    refused(Edit(data), "2 sections are called .one")


def test_something_behind_the_last_part(edit):
    refused(Edit(edit.data + b"payload"), "7 bytes follow the section headers, the last part of the file")


def test_something_between_two_sections():
    edit = Edit(library(sections={".rodata": b"12345"}))
    place = edit.of_section(".rodata")
    edit.bytes[place["offset"] + 6] = 1
    refused(edit, "the 3 bytes between section .rodata and section .text are not padding")


CODE_OBJECT = code_object("gfx942", ["a", "b"])
CODE_OBJECTS = {
    "needs a library": (lambda e: e.tag(11, kind=1, value=0), "it needs "),
    "flags of a library": (lambda e: e.tag(11, kind=30), "has tag 0x1e, which is not known to be harmless"),
    "another system": (lambda e: Edit(e.data[:7] + b"\0" + e.data[8:]), "its header names another system"),
    "an old version": (lambda e: Edit(e.data[:8] + b"\1" + e.data[9:]), "its header names another system"),
    "no note": (lambda e: e.segment(NOTE, kind=PHDR), "it has 0 PT_NOTE, expected 1"),
    "another note": (lambda e: e.segment(NOTE, file_bytes=4, memory_bytes=4), "is not the section .note"),
    "writable code": (lambda e: e.segment(LOAD, CODE, flags=7), "is loaded writable and executable"),
}


@pytest.mark.parametrize(("change", "words"), CODE_OBJECTS.values(), ids=CODE_OBJECTS)
def test_a_code_object_that_is_not_a_linkers(change, words):
    refused(change(Edit(CODE_OBJECT)), words, EM_AMDGPU)


REAL = CHECKOUT / "tests/data/fatbin/two_instances.xz"


def symbol_of_people(name, **fields):
    """Change the named symbol in .symtab. An empty name means the first local one."""

    def change(edit):
        place = edit.of_section(".strtab")
        names = edit.data[place["offset"] :][: place["size"]]
        for at in edit.rows(".symtab", Edit.SYMBOL)[1:]:
            found = names[edit.read(at, Edit.SYMBOL)["name_at"] :].split(b"\0")[0]
            if not name or found == name:
                return edit.write(at, Edit.SYMBOL, **fields)
        raise KeyError(name)

    return change


FOR_PEOPLE = {
    "two tables": (lambda e: e.section(".comment", kind=2), "it has 2 tables of symbols for people"),
    "no names": (lambda e: e.section(".symtab", link=1), "its symbols for people have no names"),
    "another size": (
        symbol_of_people(b"fa_fwd_bf16_d64", size=4),
        "its symbols for people are not those that are loaded",
    ),
    "a name for data in code": (symbol_of_people(b"", section=7, info=1), "which would hide code"),
}


@pytest.mark.parametrize(("change", "words"), FOR_PEOPLE.values(), ids=FOR_PEOPLE)
def test_what_a_disassembler_reads_is_what_is_loaded(change, words):
    """The static checks read a disassembly, which omits instructions at a data symbol."""
    code = read_fatbin(lzma.decompress(REAL.read_bytes()))[0].data
    assert elf_layout_problems(code, EM_AMDGPU) == ()
    refused(change(Edit(code)), words, EM_AMDGPU)


@settings(deadline=None)
@given(
    st.sampled_from([(GOOD_LIBRARY.data, EM_X86_64), (CODE_OBJECT, EM_AMDGPU)]),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_damaged_bytes_give_an_answer(file, changes):
    data, machine = bytearray(file[0]), file[1]
    for place, value in changes:
        data[int(place * len(data))] = value
    assert all(isinstance(problem, str) for problem in elf_layout_problems(bytes(data), machine))
