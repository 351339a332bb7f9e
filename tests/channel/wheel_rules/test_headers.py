"""Headers against segments: glibc loads accepted files exactly as the audit reads them.

The library is a stand-in from the product's linker, with every part of the product's library. Its constructor
reports the contents of memory.

``tests/release/test_headers.py`` attacks the product's library itself.
"""

import logging
import random
from collections import Counter

import pytest

from tests.channel.wheel_rules.headers import Mutator, glibc_verdicts, make_stand_in, model
from tests.tools.made.elves import Edit
from tests.tools.made.wheels import real_bundles
from wheel_builder.files.binaries.elf import read_elf, section_bytes
from wheel_builder.files.binaries.elflayout import EM_X86_64, elf_layout_problems
from wheel_builder.files.device.fatbin import SECTION
from wheel_builder.files.device.library import unused_bundles

LOG = logging.getLogger(__name__)
SEED = 20261123
SHORT, FULL = 2000, 40000
LOAD, TLS, PHDR, EH_FRAME, STACK, RELRO = 1, 7, 6, 0x6474E550, 0x6474E551, 0x6474E552
GNU_HASH, FLAGS_1, HASH = 0x6FFFFEF5, 0x6FFFFFFB, 4
COPY, GLOB_DAT, RELATIVE, DTPMOD64, IRELATIVE = 5, 6, 8, 16, 37
S_ENDPGM = bytes.fromhex("000081bf")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("stand_in")


@pytest.fixture(scope="module")
def stand_in(folder):
    return make_stand_in(folder, [*real_bundles().values()][:2])


@pytest.fixture(scope="module")
def verdict(folder, stand_in):
    """glibc's view of the stand-in itself."""
    [found] = glibc_verdicts(folder, [stand_in])
    assert found.startswith("loaded ")
    assert " evil.so" not in found
    return found


def accepted(data, good):
    """Whether the audit accepts it and reads it like the good one."""
    if elf_layout_problems(data, EM_X86_64):
        return False
    same = read_elf(data) == read_elf(good) and section_bytes(data, SECTION) == section_bytes(good, SECTION)
    return same and not unused_bundles(data)


def test_the_stand_in_has_every_part_and_is_accepted(stand_in, verdict):
    assert accepted(stand_in, stand_in)
    edit = Edit(stand_in)
    assert all(edit.segment_places(kind) for kind in (LOAD, TLS, PHDR, EH_FRAME, STACK, RELRO))
    for name in (
        ".rela.dyn",
        ".rela.plt",
        ".init_array",
        ".tdata",
        ".tbss",
        ".data.rel.ro",
        ".bss",
        ".gnu.hash",
    ):
        assert edit.of_section(name)["size"], name


def attack(count, stand_in, verdict, folder):
    """Counts of refused and accepted mutants, by glibc's view of them."""
    mutator, found = Mutator(stand_in, random.Random(SEED)), Counter()
    while found.total() < count:
        mutants = [mutator.mutant() for _ in range(min(1000, count - found.total()))]
        verdicts = glibc_verdicts(folder, [data for data, _ in mutants])
        for (data, changes), seen in zip(mutants, verdicts, strict=True):
            is_accepted = accepted(data, stand_in)
            assert seen == verdict or not is_accepted, (changes, seen)
            loads = "as the good one" if seen == verdict else "otherwise" if seen[:6] == "loaded" else "not"
            found["accepted" if is_accepted else "refused", f"loads {loads}"] += 1
    LOG.info("%s of %s", dict(found), dict(mutator.kinds))  # shown with --log-cli-level=INFO
    return found


def check_attack(found):
    # Guards the test: some mutants must be accepted, and glibc must treat them differently.
    assert found["accepted", "loads as the good one"] > found.total() * 0.03
    assert found["refused", "loads otherwise"] > found.total() * 0.01
    assert found["refused", "loads not"] > found.total() * 0.2


def test_mutants_of_headers(stand_in, verdict, folder):
    check_attack(attack(SHORT, stand_in, verdict, folder))


@pytest.mark.full
def test_many_mutants_of_headers(stand_in, verdict, folder):
    check_attack(attack(FULL, stand_in, verdict, folder))


def evil_tag(kind):
    """A tag with the name of another library, in place of DT_HASH, which glibc ignores."""
    return lambda e: e.tag(HASH, kind=kind, value=name_at(e, b"evil.so"))


def name_at(edit, name):
    place = edit.of_section(".dynstr")
    return edit.data[place["offset"] :].index(b"\0" + name + b"\0") + 1


def names_elsewhere(edit):
    """The section is linked with other names than glibc's."""
    names = edit.of_section(".shstrtab")
    at = next(n for n in range(99) if edit.read(edit.section_place("") + 64 * n, Edit.SECTION) == names)
    return edit.tag(1, value=name_at(edit, b"evil.so")).section(".dynamic", link=at)


def clean_copy(edit):
    """Kernels that end at once are mapped where the code looks. The section has a clean copy.

    The bytes of both are in sections and loaded as these say. Only the code determines which ones it uses.
    """
    place, unused = edit.of_section(".hip_fatbin"), edit.of_section(".debug_loc")
    clean = edit.data[place["offset"] :][: place["size"]]
    edit.content(".debug_loc", 0, bytes(unused["size"])).content(".hip_fatbin", 4096, S_ENDPGM * 1024)
    edit.section(".debug_loc", flags=2, address=place["address"], offset=place["offset"], size=place["size"])
    edit.bytes += bytes(-len(edit.data) % 4096)
    offset, address = len(edit.data), 1 << 20
    edit.bytes += clean
    edit.segment(
        EH_FRAME, kind=LOAD, flags=4, offset=offset, address=address, physical=address,
        file_bytes=len(clean), memory_bytes=len(clean), alignment=4096,
    )  # fmt: skip
    return edit.section(".hip_fatbin", offset=offset, address=address)


def relocation(number, kind):
    """Another type for a relocation of data."""

    def change(edit):
        at = edit.rows(".rela.dyn", Edit.RELOCATION)[number]
        info = edit.read(at, Edit.RELOCATION)["info"]
        return edit.write(at, Edit.RELOCATION, info=info >> 32 << 32 | kind)

    return change


def first_row(edit, name, form, **fields):
    return edit.write(edit.rows(name, form)[0], form, **fields)


def first_of_type(kind, **fields):
    """Change the first relocation of a type."""

    def change(edit):
        rows = (at for at in edit.rows(".rela.dyn", Edit.RELOCATION))
        at = next(at for at in rows if edit.read(at, Edit.RELOCATION)["info"] & 0xFFFFFFFF == kind)
        return edit.write(at, Edit.RELOCATION, **fields)

    return change


def other_initializer(edit):
    """The initializer is a word of data."""
    place = edit.of_section(".init_array")["address"]
    for at in edit.rows(".rela.dyn", Edit.RELOCATION):
        if edit.read(at, Edit.RELOCATION)["address"] == place:
            return edit.write(at, Edit.RELOCATION, addend=edit.of_section(".data")["address"])
    raise KeyError(place)


def swapped(edit, kind, one, other):
    places = edit.segment_places(kind)
    rows = [edit.read(places[number], Edit.SEGMENT) for number in (one, other)]
    return edit.write(places[one], Edit.SEGMENT, **rows[1]).write(places[other], Edit.SEGMENT, **rows[0])


def protected_elsewhere(edit):
    """PT_GNU_RELRO must cover written data."""
    place = edit.read(edit.segment_places(LOAD)[3], Edit.SEGMENT)
    size = -(-(place["address"] + place["memory_bytes"]) // 4096) * 4096 - place["address"]
    same = {name: place[name] for name in ("offset", "address", "physical", "file_bytes")}
    return edit.segment(LOAD, 3, memory_bytes=size).segment(RELRO, **same, memory_bytes=size)


# glibc loads these differently, or refuses them.
ATTACKS = {
    "DT_AUXILIARY": (evil_tag(0x7FFFFFFD), "tag 0x7ffffffd, which is not known to be harmless"),
    "DT_FILTER": (evil_tag(0x7FFFFFFF), "tag 0x7fffffff, which is not known to be harmless"),
    "names elsewhere": (names_elsewhere, "its dynamic table is linked with section"),
    "DT_INIT outside": (lambda e: e.tag(HASH, kind=12, value=1 << 40), "tag 0xc, which is not known"),
    "DT_FINI outside": (lambda e: e.tag(HASH, kind=13, value=1 << 40), "tag 0xd, which is not known"),
    "no RELRO": (lambda e: e.segment(RELRO, kind=0), "it has 0 PT_GNU_RELRO, expected 1"),
    "writable code": (lambda e: e.segment(LOAD, 1, flags=7), "segment 2 is loaded writable and executable"),
    "an executable stack": (lambda e: e.segment(STACK, flags=7), "it asks for an executable stack"),
    "a wrapped address": (
        lambda e: e.segment(LOAD, 3, address=2**64 - 4096, physical=2**64 - 4096),
        "bytes more of addresses than the file has",
    ),
    "too much memory": (
        lambda e: e.segment(LOAD, 3, memory_bytes=1 << 50),
        "bytes more of addresses than the file has",
    ),
    "overlapping segments": (
        lambda e: e.segment(LOAD, 2, address=0xD1C0, physical=0xD1C0),
        "lies over what is loaded at",
    ),
    "variables of threads beyond the file": (
        lambda e: e.segment(TLS, memory_bytes=1 << 46),
        "PT_TLS has 70368744177664 bytes, expected 1 to 1048576",
    ),
    "variables of threads from elsewhere": (
        lambda e: e.segment(TLS, address=0),
        "(PT_TLS) is not loaded from where it lies",
    ),
    "a broken hash table": (lambda e: e.tag(GNU_HASH, value=1 << 40), "no PT_LOAD maps a hash table"),
    "a resolver": (relocation(0, IRELATIVE), "is of type 37, which is not allowed"),
    "code that is relocated": (
        lambda e: first_row(e, ".rela.dyn", Edit.RELOCATION, address=0xE100),
        "a relocation at 0xe100 does not write a word of data",
    ),
}
# glibc 2.36 loads these like the good one. Another process or version may differ.
REFUSED_TOO = {
    "DT_AUDIT": (evil_tag(0x6FFFFEFC), "tag 0x6ffffefc, which is not known"),
    "DT_DEPAUDIT": (evil_tag(0x6FFFFEFB), "tag 0x6ffffefb, which is not known"),
    "DT_CONFIG": (evil_tag(0x6FFFFEFA), "tag 0x6ffffefa, which is not known"),
    "DT_TEXTREL": (lambda e: e.tag(HASH, kind=22, value=0), "tag 0x16, which is not known"),
    "DF_TEXTREL": (lambda e: e.tag(30, value=8 | 4), "has 0xc for tag 0x1e, expected 0x8"),
    "DF_1_GLOBAL": (lambda e: e.tag(FLAGS_1, value=1 | 2), "has 0x3 for tag 0x6ffffffb, expected 0x1"),
    "DF_1_INTERPOSE": (
        lambda e: e.tag(FLAGS_1, value=1 | 0x400),
        "has 0x401 for tag 0x6ffffffb, expected 0x1",
    ),
    "DF_1_NODELETE": (lambda e: e.tag(FLAGS_1, value=1 | 8), "has 0x9 for tag 0x6ffffffb, expected 0x1"),
    "an address of the first symbol": (
        lambda e: first_row(e, ".dynsym", Edit.SYMBOL, value=64),
        "its first symbol is not empty",
    ),
    "too little memory": (lambda e: e.segment(LOAD, 1, memory_bytes=16), "segment 2 has "),
    "segments in another order": (
        lambda e: swapped(e, LOAD, 0, 2),
        "what is loaded first is not the beginning of the file",
    ),
    "bytes of what is not loaded": (
        lambda e: e.segment(LOAD, 3, file_bytes=12),
        "12 bytes are loaded at 0x",
    ),
    "RELRO of other data": (protected_elsewhere, "PT_GNU_RELRO does not protect the dynamic table"),
    "fewer variables of threads": (
        lambda e: e.segment(TLS, memory_bytes=9),
        "PT_TLS is not what the sections",
    ),
    "other variables of threads": (
        lambda e: e.section(".tdata", offset=e.of_section(".tdata")["offset"] + 8),
        "section .tdata is at byte",
    ),
    "called functions elsewhere": (
        lambda e: e.tag(3, value=e.of_section(".got")["address"]),
        "and not in .got.plt",
    ),
    "writable initializers": (
        lambda e: e.tag(25, value=e.of_section(".data")["address"]),
        "outside of PT_GNU_RELRO",
    ),
    "relocations in another order": (
        lambda e: e.tag(0x6FFFFFF9, value=1),
        "(DT_RELACOUNT) are not those that",
    ),
    "a written dynamic table": (
        lambda e: first_row(e, ".rela.dyn", Edit.RELOCATION, address=e.of_section(".dynamic")["address"]),
        "writes to the dynamic table",
    ),
    "an address of nothing": (
        first_of_type(RELATIVE, addend=1 << 40),
        "leads to 0x10000000000, which is not",
    ),
    "a variable of nothing": (
        first_of_type(DTPMOD64, addend=1 << 40),
        "is about a variable of threads that is",
    ),
    "bytes behind a symbol": (first_of_type(GLOB_DAT, addend=8), "leads 0x8 bytes behind "),
    "half an initializer": (lambda e: e.tag(27, value=4), "its initializers or finalizers have 4 bytes"),
    "an initializer that is no code": (other_initializer, "the initializer or finalizer at "),
    "no hash table": (
        lambda e: e.content(".gnu.hash", 0, bytes(16)),
        "its GNU hash table has 0 buckets",
    ),
    "a copy relocation": (relocation(-1, COPY), "is of type 5, which is not allowed"),
    "initializers elsewhere": (
        lambda e: e.section(".init_array", address=e.of_section(".data")["address"]),
        "section .init_array",
    ),
}


def refused_for(data, words):
    found = elf_layout_problems(data, EM_X86_64)
    assert any(words in problem for problem in found), found


@pytest.mark.parametrize(("change", "words"), ATTACKS.values(), ids=ATTACKS)
def test_an_attack_that_glibc_falls_for(change, words, stand_in, verdict, folder):
    data = change(Edit(stand_in)).data
    [seen] = glibc_verdicts(folder, [data])
    assert seen != verdict
    refused_for(data, words)


@pytest.mark.parametrize(("change", "words"), REFUSED_TOO.values(), ids=REFUSED_TOO)
def test_what_is_refused_although_glibc_takes_it_here(change, words, stand_in):
    refused_for(change(Edit(stand_in)).data, words)


def test_a_clean_copy_of_kernels_that_nothing_uses(stand_in, verdict, folder):
    data = clean_copy(Edit(stand_in)).data
    [seen] = glibc_verdicts(folder, [data])
    assert seen.startswith("loaded ")
    assert seen.split()[1] != verdict.split()[1]  # the constructor's report
    assert section_bytes(data, SECTION) == section_bytes(stand_in, SECTION)
    assert elf_layout_problems(data, EM_X86_64) == ()
    assert len(unused_bundles(data)) == 2


@pytest.mark.parametrize("name", ["DT_AUXILIARY", "DT_FILTER", "names elsewhere"])
def test_glibc_loads_the_other_library(name, stand_in, folder):
    [seen] = glibc_verdicts(folder, [ATTACKS[name][0](Edit(stand_in)).data])
    assert " evil.so " in seen


def test_the_model_and_glibc_agree(stand_in, verdict, folder):
    """For headers and dynamic table: files equal in the model get the good one's verdict from glibc."""
    mutator = Mutator(stand_in, random.Random(SEED + 1))
    mutants = [data for data, changes in (mutator.mutant() for _ in range(300)) if "hash" not in str(changes)]
    same = [data for data in mutants if accepted(data, stand_in)]
    assert len(same) > 10
    assert all(model(data) == model(stand_in) for data in same)
    assert set(glibc_verdicts(folder, same)) == {verdict}
