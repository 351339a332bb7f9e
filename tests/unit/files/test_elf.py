import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wheels import GOOD_LIBRARY, ElfFile, Symbol, library
from wheel_builder.base.errors import ElfError
from wheel_builder.files.elf import Undefined, max_version, read_elf, section_bytes

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
    data = bytearray(library(sections={".hip_fatbin": b"code"}))
    headers = struct.unpack_from("<Q", data, 40)[0]
    struct.pack_into(
        "<Q", data, headers + 6 * 64 + 32, 1 << 40
    )  # sh_size of the last section before the names
    with pytest.raises(ElfError, match=r"section \.hip_fatbin is not in the file \(1099511627776 bytes"):
        section_bytes(bytes(data), ".hip_fatbin")


def test_version_records_that_form_a_loop_end():
    data = bytearray(DATA)
    headers = struct.unpack_from("<Q", data, 40)[0]
    struct.pack_into(
        "<I", data, headers + 4 * 64 + 44, 0xFFFFFFFF
    )  # sh_info of .gnu.version_r: number of records
    with pytest.raises(ElfError, match="its version records form a loop"):
        read_elf(bytes(data))


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
