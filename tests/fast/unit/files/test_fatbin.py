import lzma
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools.made.elves import E_FLAGS
from tests.tools.made.wheels import ARCHS, KERNELS, bundle, code_object, library, padded, uncompressed
from wheel_builder.base.errors import FatbinError
from wheel_builder.files.binaries.elf import read_elf
from wheel_builder.files.device.fatbin import MAGIC, gfx_of, kernels, machine_arch, read_fatbin

REAL = Path(__file__).parents[3] / "data" / "fatbin" / "two_instances.xz"
GOOD = uncompressed()


def test_a_section_made_by_the_compiler():
    found = [
        (c.arch, machine_arch(e), kernels(e))
        for c in read_fatbin(lzma.decompress(REAL.read_bytes()))
        for e in [read_elf(c.data)]
    ]
    assert found == [(arch, arch, {kernel}) for kernel in KERNELS for arch in ARCHS]


def test_our_test_bundles_read_alike():
    found = [(c.arch, machine_arch(e), kernels(e)) for c in read_fatbin(GOOD) for e in [read_elf(c.data)]]
    assert found == [(arch, arch, {kernel}) for kernel in KERNELS for arch in ARCHS]


def test_contents_are_cut_out_exactly():
    (one, other) = read_fatbin(bundle({"gfx908": b"a" * 5000, "gfx942": b"b"}))
    assert (one.data, other.data) == (b"a" * 5000, b"b")


@pytest.mark.parametrize("data", [b"", bytes(8192)])
def test_nothing_but_padding_holds_nothing(data):
    assert read_fatbin(data) == ()


def test_padding_after_the_last_bundle_is_allowed():
    assert len(read_fatbin(GOOD + bytes(4096 + 17))) == len(read_fatbin(GOOD))


def test_an_arch_keeps_its_features():
    (code,) = read_fatbin(bundle({"gfx90a:xnack+": b"x"}))
    assert code.arch == "gfx90a:xnack+"
    assert code.gfx == "gfx90a"
    assert [gfx_of(name) for name in ("gfx942:sramecc+:xnack-", "gfx942", "")] == ["gfx942", "gfx942", ""]


def test_machine_arch_of_others():
    assert machine_arch(read_elf(library())) == "EM_X86_64"
    odd = read_elf(code_object("gfx908", ["k"], flags=0x5EE))
    assert machine_arch(odd) == "unknown AMDGPU machine 0xee"


@pytest.mark.parametrize("arch", ARCHS)
def test_machine_arch(arch):
    assert machine_arch(read_elf(code_object(arch, ["k"], flags=E_FLAGS[arch]))) == arch


def header(*entries, count=None):
    table = MAGIC + struct.pack("<Q", len(entries) if count is None else count)
    for offset, size, name in entries:
        table += struct.pack("<QQQ", offset, size, len(name)) + name
    return table


GFX908, GFX942 = b"hipv4-amdgcn-amd-amdhsa--gfx908", b"hipv4-amdgcn-amd-amdhsa--gfx942"


BETWEEN = header((200, 20, GFX908), (300, 20, GFX942)).ljust(240, b"\0") + b"hidden"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            b"CCOB" + bytes(100),
            r"at byte 0 of \.hip_fatbin: it is compressed\n  next: put compressed bundles in front",
        ),
        (b"not a bundle at all, really", "it begins with b'not a bundle at all, rea', expected"),
        (MAGIC, "its table of entries is cut off at byte 24"),
        (padded(header(count=0)), "it claims 0 entries"),
        (padded(header(count=1 << 60)), "it claims 1152921504606846976 entries"),
        (header((0, 0, GFX908))[:-5], "an id of 31 bytes does not fit"),
        (padded(header((4096, 1, GFX908))), f"entry {GFX908.decode()} ends at byte 4097 of 4096"),
        (padded(header((1 << 63, 1 << 63, GFX908))), "ends at byte 18446744073709551616 of 4096"),
        (padded(header((0, 24, GFX908))), "the table of entries and .*gfx908 overlap"),
        (padded(header((500, 20, GFX908), (510, 20, GFX908))), "gfx908 and .*gfx908 overlap"),
        (padded(header((0, 0, b"\xff\xfe"))), r"the id b'\\xff\\xfe' is not text"),
        (padded(header((0, 0, b"gfx\n908"))), "is not text"),
        (padded(header((0, 0, b"cuda-nvptx--sm_90"))), "entry 'cuda-nvptx--sm_90' is not for an AMD GPU"),
        (padded(header((0, 0, b"hipv4-amdgcn-amd-amdhsa--"))), "is not for an AMD GPU"),
        (padded(header((0, 0, GFX908)))[:-1] + b"!", "the bytes 87 to 4096 before it are not padding"),
        (GOOD + b"rubbish", "it begins with b'rubbish'"),
        (padded(header((3000, 20, GFX908)) + b"hidden"), "the bytes 87 to 3000 before it are not padding"),
        (padded(BETWEEN), "the bytes 220 to 300 before it are not padding"),
        (padded(header((200, 20, b"host-x86_64-"))), "host-x86_64- has 20 bytes, expected none"),
    ],
)
def test_each_bad_number_is_refused_in_words(data, words):
    with pytest.raises(FatbinError, match=words):
        read_fatbin(data)


@settings(deadline=None)
@given(st.binary(max_size=600))
def test_any_bytes_give_an_answer_or_an_error(tail):
    for data in (tail, MAGIC + tail):
        check(data)


SMALL = bundle({"gfx908": b"x" * 40, "gfx942": b"y" * 40})


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, len(SMALL)),
)
def test_a_damaged_bundle_gives_an_answer_or_an_error(changes, length):
    data = bytearray(SMALL)
    for position, value in changes:
        data[position] = value
    check(bytes(data))
    check(bytes(data[:length]))


def check(data):
    """Results lie inside ``data``. Unreadable data raise our error with a message, and no other error."""
    with suppress(FatbinError):
        assert sum(len(code.data) for code in read_fatbin(data)) <= len(data)
