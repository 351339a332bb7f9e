"""Symbols, hash tables and versions that a loader would bind differently from our reading are refused."""

import struct

import pytest

from tests.fast.unit.files.test_elflayout import DATA, LOAD, RELRO, refused
from tests.tools.made.elves import EM_X86_64, Edit, ElfFile, Symbol
from tests.tools.made.wheels import GOOD_LIBRARY, library
from wheel_builder.files.binaries.elflayout import elf_layout_problems


@pytest.fixture
def edit():
    return Edit(GOOD_LIBRARY.data)


def symbols_with(**fields):
    """The good library with another first symbol."""
    edit = Edit(GOOD_LIBRARY.data)
    return edit.write(edit.rows(".dynsym", Edit.SYMBOL)[1], Edit.SYMBOL, **fields)


SYMBOLS = {
    "a resolver": ({"info": 0x1A}, "is of a kind that needs a resolver: 0x1a"),
    "a unique symbol": ({"info": 0xA1}, "is of a kind that needs a resolver: 0xa1"),
    "an address": ({"value": 64}, "is undefined and has an address"),
    "an absolute one": ({"section": 0xFFF1}, "is not in the section that it names"),
    "a name elsewhere": ({"name_at": 1 << 20}, "a symbol's name is at byte 1048576 of "),
    "another name": ({"name_at": 1, "section": 7, "value": 0xB3C8}, "its GNU hash table leaves out memcpy"),
}


@pytest.mark.parametrize(("fields", "words"), SYMBOLS.values(), ids=SYMBOLS)
def test_a_symbol_that_a_loader_would_not_bind_as_it_reads(fields, words):
    refused(symbols_with(**fields), words)


def test_a_first_symbol_that_is_not_empty(edit):
    refused(
        edit.write(edit.rows(".dynsym", Edit.SYMBOL)[0], Edit.SYMBOL, info=1), "its first symbol is not empty"
    )


HASHES = {
    "no buckets": (0, 0, "its GNU hash table has 0 buckets"),
    "many buckets": (0, 1 << 31, "no PT_LOAD maps a hash table: 8589934592 bytes"),
    "symbols from none": (4, 0, "its GNU hash table has 1 buckets, 1 filters, symbols from 0"),
    "symbols from behind them": (4, 9, "a symbol's name is at byte 131072 of "),
    "many filters": (8, 1 << 20, "no PT_LOAD maps a hash table: "),
    "a shift": (12, 40, "its GNU hash table has 1 buckets, 1 filters"),
    "another filter": (16, 1, "its GNU hash table does not lead to its symbols"),
    "another chain": (28, 1, "its GNU hash table does not lead to its symbols"),
}


@pytest.mark.parametrize(("at", "value", "words"), HASHES.values(), ids=HASHES)
def test_a_broken_hash_table(edit, at, value, words):
    refused(edit.content(".gnu.hash", at, struct.pack("<I", value)), words)


def test_hashes_of_many_symbols_are_checked():
    symbols = tuple(Symbol(f"s{number}", defined=True) for number in range(40))
    assert elf_layout_problems(ElfFile(symbols=symbols).data, EM_X86_64) == ()


VERSIONS = {
    "another hash": (16, "<I", "its record of GLIBC_2.14 is damaged"),
    "weak": (20, "<H", "its record of GLIBC_2.14 is damaged: flags 7"),
    "the number of another": (38, "<H", "two needed versions have one number"),
    "another number": (22, "<H", "a symbol has version 2, which is not there"),
}


@pytest.mark.parametrize(("at", "form", "words"), VERSIONS.values(), ids=VERSIONS)
def test_a_broken_version(edit, at, form, words):
    value = 2 if "one number" in words else 7
    refused(edit.content(".gnu.version_r", at, struct.pack(form, value)), words)


def test_a_segment_that_goes_on_behind_its_last_section(edit):
    [_, _, place] = edit.segment_places(LOAD)
    size = edit.read(place, Edit.SEGMENT)["memory_bytes"] + 4096
    edit.segment(LOAD, DATA, memory_bytes=size).segment(RELRO, memory_bytes=size)
    refused(edit, f"ends at {edit.of_section('.dynamic')['address'] + size:#x}, its last section at ")


def test_names_of_many_bytes():
    refused(Edit(library(soname="x" * (1 << 20))), "bytes, at most 1048576 are allowed")


def test_a_version_of_a_library_that_is_not_needed():
    refused(
        Edit(library(needed=("libtorch.so",))), "it needs GLIBC_2.14 of libc.so.6, which it does not need"
    )


def test_version_records_elsewhere():
    """glibc follows them from the dynamic table to any address."""
    records = Edit(GOOD_LIBRARY.data)
    place = records.of_section(".gnu.version_r")
    copy = records.data[place["offset"] :][: place["size"]]
    edit = Edit(library(sections={".rodata": copy}))
    distance = edit.of_section(".rodata")["address"] - edit.of_section(".gnu.version_r")["address"]
    refused(edit.content(".gnu.version_r", 8, struct.pack("<I", distance + 16)), "is outside of its section")
