import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools.made.elves import Edit, ElfFile, Symbol
from tests.tools.made.wheels import GOOD_LIBRARY, library
from wheel_builder.base.errors import ElfError
from wheel_builder.files.binaries import elfdynamic
from wheel_builder.files.binaries.elf import Undefined, max_version, read_elf, section_bytes

DATA = GOOD_LIBRARY.data


def test_reads_what_a_library_needs_and_asks_for():
    elf = read_elf(DATA)

    assert elf.machine == "EM_X86_64"
    assert elf.soname == "libflash_attn_rocm.so"
    assert elf.needed == ("libtorch.so", "libc.so.6", "ld-linux-x86-64.so.2")
    assert Undefined("memcpy", "GLIBC_2.14", weak=False) in elf.undefined
    assert Undefined("hipModuleLoadData", "", weak=True) in elf.undefined
    assert elf.runpath == ()


def test_exported_are_the_defined_symbols_that_others_see():
    symbols = (
        Symbol("shown", defined=True),
        Symbol("weakly", defined=True, weak=True),
        Symbol("protected", defined=True, visibility=3),
        Symbol("internal", defined=True, visibility=1),
        Symbol("hidden", defined=True, visibility=2),
        Symbol("wanted"),
    )
    assert read_elf(ElfFile(symbols=symbols).data).exported == ("protected", "shown", "weakly")


@pytest.mark.parametrize("kind", ["rpath", "runpath"])
def test_runpath_is_either_kind(kind):
    assert read_elf(library(**{kind: "/opt/rocm/lib"})).runpath == ("/opt/rocm/lib",)


def test_max_version_compares_numbers_not_text():
    symbols = (
        Symbol("a", version="GLIBC_2.9"),
        Symbol("b", version="GLIBC_2.28"),
        Symbol("c", version="GCC_3.0"),
    )
    elf = read_elf(ElfFile(symbols=symbols).data)

    assert max_version(elf, "GLIBC") == (2, 28)
    assert max_version(elf, "CXXABI") == ()


def test_a_private_glibc_symbol_is_newer_than_every_release():
    elf = read_elf(ElfFile(symbols=(Symbol("a", version="GLIBC_PRIVATE"),)).data)
    assert max_version(elf, "GLIBC") > (2, 99)


def test_section_bytes():
    assert section_bytes(library(sections={".hip_fatbin": b"code"}), ".hip_fatbin") == b"code"
    assert section_bytes(DATA, ".nothing") is None


def test_two_sections_of_one_name_are_refused():
    data = bytearray(library(sections={".one": b"1", ".two": b"2"}))
    at = data.index(b".two\0")
    data[at : at + 4] = b".one"
    with pytest.raises(ElfError, match=r"2 sections are called \.one\n  next: link the file again"):
        section_bytes(bytes(data), ".one")


def test_a_section_beyond_the_file_is_refused():
    data = Edit(library(sections={".hip_fatbin": b"code"})).section(".hip_fatbin", size=1 << 40).data
    with pytest.raises(ElfError, match=r"section \.hip_fatbin is not in the file \(1099511627776 bytes"):
        section_bytes(data, ".hip_fatbin")


@pytest.mark.parametrize(
    ("change", "place"), [({"offset": 64}, r"byte \d+"), ({"address": 1 << 40}, "nowhere")]
)
def test_a_section_that_is_loaded_from_elsewhere_is_refused(change, place):
    """The audit read clean kernels, but the mapped ones ended at once (s_endpgm)."""
    data = Edit(library(sections={".hip_fatbin": b"code"})).section(".hip_fatbin", **change).data
    with pytest.raises(
        ElfError, match=rf"section \.hip_fatbin is at byte \d+ of the file, and loaded from {place}"
    ):
        section_bytes(data, ".hip_fatbin")


def test_version_records_that_overlap_are_not_followed_for_ever():
    # Each word says that the next record begins four bytes later.
    data = library(sections={".rodata": struct.pack("<I", 4) * 1000})
    edit = Edit(data)
    place, target = edit.of_section(".gnu.version_r"), edit.of_section(".rodata")
    edit.content(".gnu.version_r", 8, struct.pack("<I", target["address"] - place["address"]))
    with pytest.raises(ElfError, match="its version records overlap"):
        read_elf(edit.data)


def test_names_that_overlap_are_not_read_for_ever():
    """A small file could have gigabytes of names."""
    symbols = tuple(Symbol(f"s{number}", defined=True) for number in range(500))
    edit = Edit(ElfFile(symbols=symbols, soname="x" * 60000).data)
    for at in edit.rows(".dynsym", Edit.SYMBOL)[1:]:
        edit.write(at, Edit.SYMBOL, name_at=edit.of_section(".dynstr")["size"] - 60001)
    with pytest.raises(ElfError, match=r"the names that overlap in 6\d+ bytes are too many"):
        read_elf(edit.data)


@pytest.mark.parametrize("tag", [8, 4])
def test_a_table_that_would_fill_the_memory_is_not_read(tag, monkeypatch):
    """Tables of relocations (DT_RELASZ) and of symbols (the count in DT_HASH)."""
    monkeypatch.setattr(elfdynamic, "MOST_RELOCATIONS", 10)
    monkeypatch.setattr(elfdynamic, "MOST_SYMBOLS", 10)
    edit = Edit(library(sections={".rodata": struct.pack("<I", 11) * 100}))
    value = 11 * 24 if tag == 8 else edit.of_section(".rodata")["address"]
    what = "relocations" if tag == 8 else "symbols"
    with pytest.raises(ElfError, match=f"it has 11 {what}, more than 10"):
        read_elf(edit.tag(14, kind=tag, value=value).data)


RODATA = ".rodata"
BROKEN = {
    "two dynamic tables": (lambda e: e.segment(6, kind=2), "it has 2 dynamic tables"),
    "half a relocation": (lambda e: e.tag(14, kind=8, value=25), "its relocations have 25 bytes, each 24"),
    "no text": (lambda e: e.content(".dynstr", 1, b"\xff"), "a symbol's name is b'.xff.*, which is not text"),
    "a sign of control": (lambda e: e.content(".dynstr", 1, b"\x1b"), "which is not text"),
    "sections without names": (
        lambda e: e.section(".shstrtab", size=1 << 40),
        "its names of sections are not in",
    ),
    "a chain without an end": (
        lambda e: e.content(RODATA, 0, struct.pack("<4IQ2I", 1, 1, 1, 26, 0, 1, 0)).tag(
            0x6FFFFEF5, value=e.of_section(RODATA)["address"]
        ),
        "a hash table has no end",
    ),
    "libraries with versions that overlap": (
        lambda e: e.content(RODATA, 0, struct.pack("<I", 4) * 1000).content(
            ".gnu.version_r",
            12,
            struct.pack("<I", e.of_section(RODATA)["address"] - e.of_section(".gnu.version_r")["address"]),
        ),
        "its version records overlap",
    ),
}


@pytest.mark.parametrize(("change", "words"), BROKEN.values(), ids=BROKEN)
def test_tables_that_cannot_be_read(change, words):
    edit = Edit(library(sections={RODATA: bytes(28) if "hash" in words else bytes(4000)}))
    with pytest.raises(ElfError, match=words):
        read_elf(change(edit).data)


def test_names_are_those_of_the_table_that_the_loader_uses():
    """sh_link named another table: the audit read libdl.so.2, and glibc looked for evil1.so.2."""
    names = DATA[(place := Edit(DATA).of_section(".dynstr"))["offset"] :][: place["size"]]
    other = library(sections={".other": names.replace(b"libc.so.6", b"evil.so.1")})
    number = 1 + Edit(other).of_section(".dynamic")["link"]
    assert "evil.so.1" not in read_elf(Edit(other).section(".dynamic", link=number).data).needed
    moved = Edit(other).tag(5, value=Edit(other).of_section(".other")["address"]).data
    assert read_elf(moved).needed == ("libtorch.so", "evil.so.1", "ld-linux-x86-64.so.2")


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF", DATA[:100]])
def test_what_is_no_elf_file_is_refused_in_words(data):
    with pytest.raises(ElfError, match=r"not a readable ELF file .*\n  next: build the file again"):
        read_elf(data)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(DATA) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_damaged_bytes_give_an_answer_or_an_error(changes):
    data = bytearray(DATA)
    for position, value in changes:
        data[position] = value
    for read in (read_elf, lambda d: section_bytes(d, ".hip_fatbin")):
        with suppress(ElfError):
            read(bytes(data))
