"""Compressed bundles, made here in the format of released wheels (zstd, versions 2 and 3)."""

import struct
import time
import zlib
from contextlib import suppress

import pytest
import zstandard

from tests.conftest import CHECKOUT
from tests.tools.made.wheels import ARCHS, KERNELS, code_object, fatbin, of_each, padded, uncompressed
from wheel_builder.base.errors import FatbinError
from wheel_builder.files.device.compressed import (
    BASE_HASH,
    HEADERS,
    MAX_ARCH,
    MAX_MIB,
    compressed_bundles,
    content_hash,
    expand,
    packed_bundles,
    read_packed,
    zstd_prefix,
)
from wheel_builder.files.device.fatbin import read_fatbin
from wheel_builder.files.device.packing import packed as packed_by_name

BUNDLE = uncompressed()
METHODS = {0: zlib.compress, 1: zstandard.compress}


def compressed(content=BUNDLE, version=3, method=1, size=None, total=None, packed=None):
    packed = METHODS[method](content) if packed is None else packed
    size = len(content) if size is None else size
    whole = struct.calcsize(HEADERS[version]) + len(packed) if total is None else total
    sizes = (size,) if version == 1 else (whole, size)
    return struct.pack(HEADERS[version], b"CCOB", version, method, *sizes, 0) + packed


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("version", HEADERS)
def test_a_compressed_bundle_holds_what_was_compressed(version, method):
    one = compressed(version=version, method=method)
    assert read_fatbin(expand(one)) == read_fatbin(BUNDLE)
    assert read_fatbin(expand(padded(one) + one)) == 2 * read_fatbin(BUNDLE)
    assert read_fatbin(expand(padded(one) + BUNDLE)) == 2 * read_fatbin(BUNDLE)


def test_what_is_not_compressed_stays():
    assert expand(BUNDLE) == BUNDLE


GOOD = compressed()
SUMMED = zstandard.ZstdCompressor(write_checksum=True).compress(BUNDLE)
BAD = {
    "version 9 is not one of 1, 2, 3": b"CCOB\x09\x00" + GOOD[6:],
    "its header is cut off": GOOD[:20],
    f"it claims {len(GOOD) + 1} bytes of {len(GOOD)}": compressed(total=len(GOOD) + 1),
    f"it claims 3 bytes of {len(GOOD)}": compressed(total=3),
    f"more than the {MAX_MIB << 20} allowed": compressed(size=1 << 40),
    "7 bytes follow its content": compressed(packed=METHODS[1](BUNDLE) + b"garbage"),
    "after it are not padding": GOOD + b"\1",
    f"it holds {len(BUNDLE)} bytes, its header says 5": compressed(size=5),
    "it holds 6 bytes or more, its header says 5": compressed(method=0, size=5),
    "it holds 3 bytes or more, its header says 5": compressed(b"abc", method=0, size=5),
    "it cannot be decompressed": compressed(packed=b"nonsense"),
    "it cannot be decompressed: Error -3": compressed(method=0, packed=b"nonsense"),
    "its compressed data is cut off behind the content": compressed(packed=SUMMED[:-4]),
    "is cut off behind the content": compressed(method=0, packed=zlib.compress(BUNDLE)[:-4]),
    "its compression method 7 is neither zlib (0) nor zstd (1)": GOOD[:6] + b"\x07" + GOOD[7:],
}


@pytest.mark.parametrize("words", BAD)
def test_a_bundle_that_lies_is_refused_in_words(words):
    with pytest.raises(FatbinError) as caught:
        expand(BAD[words])
    assert "compressed offload bundle at byte 0 of .hip_fatbin: " in str(caught.value)
    assert words in str(caught.value)


def test_many_small_bundles_stay_within_one_limit():
    one = padded(compressed(bytes(900 << 10)))
    assert len(expand(one + one, max_mib=2)) >= 2 * (900 << 10)
    with pytest.raises(FatbinError, match=r"it claims to hold 921600 bytes, more than the 253952 allowed"):
        expand(3 * one, max_mib=2)


OWN = fatbin()
NOT_OWN = {
    "at byte 0 of .hip_fatbin: it is not compressed": BUNDLE,
    f"at byte {len(OWN)} of .hip_fatbin: it is not compressed": OWN + BUNDLE,
    "it has version 2 and method 1, expected 3 and 1 or 2 (zstd)": compressed(version=2),
    "it has version 3 and method 0, expected 3 and 1 or 2 (zstd)": compressed(method=0),
    "its content has not the hash 0x0 of its header": GOOD,
}


@pytest.mark.parametrize("words", NOT_OWN)
def test_our_library_has_nothing_but_what_its_loader_unpacks(words):
    with pytest.raises(FatbinError) as caught:
        packed_bundles(NOT_OWN[words])
    assert words in str(caught.value)
    assert "next: build the wheel again" in str(caught.value)


FIRST = padded(packed_by_name("gfx942", {name: code_object("gfx942", [name]) for name in KERNELS}))


def based_on(first):
    """A bundle whose base is the last one of ``first``."""
    codes = {name: code_object("gfx942", [name]) for name in KERNELS}
    return padded(packed_by_name("gfx950", codes, packed_bundles(first)[-1].content))


SECOND = based_on(FIRST)


def test_a_bundle_is_read_with_the_one_that_it_is_packed_based_on():
    one, other = packed_bundles(FIRST + SECOND)
    assert other.end - other.start < (one.end - one.start) / 4
    assert [code.arch for code in read_packed(FIRST + SECOND)] == ["gfx942"] * 2 + ["gfx950"] * 2
    assert [code.data for code in read_packed(FIRST + SECOND)] == 2 * [c.data for c in read_packed(FIRST)]
    assert packed_bundles(SECOND + FIRST)[0].content == other.content


REFUSED = {
    "alone": SECOND,
    "itself": SECOND + SECOND,
    "another one": fatbin(["gfx908"]) + SECOND,
    "a base with a base": FIRST + SECOND + based_on(FIRST + SECOND),
}


def test_a_bundle_cut_off_in_the_hash_of_its_base_is_refused():
    cut = SECOND[:8] + struct.pack("<Q", 39) + SECOND[16:39]
    with pytest.raises(FatbinError, match="its header is cut off"):
        packed_bundles(FIRST + cut)


def test_a_base_is_of_our_own_bundles_only():
    with pytest.raises(FatbinError, match=r"its compression method 2 is neither zlib \(0\) nor zstd \(1\)"):
        expand(compressed(version=2, packed=SECOND[32:], method=1).replace(b"\2\0\1\0", b"\2\0\2\0", 1))


@pytest.mark.parametrize("case", REFUSED)
def test_a_bundle_without_its_base_is_refused(case):
    words = (
        r"its base, the content with hash 0x\w+, is missing\n  next: name the library or the wheel with both"
    )
    with pytest.raises(FatbinError, match=words):
        packed_bundles(REFUSED[case])


def with_base(content, base, hashed):
    frame = zstandard.ZstdCompressor(dict_data=zstd_prefix(base)).compress(content)
    return padded(compressed(content, packed=BASE_HASH.pack(hashed) + frame, method=2))


def test_many_bundles_of_one_base_share_its_copy():
    """A copy of the base for each would take 40 ms."""
    base = bytes(MAX_ARCH)
    many = 500 * with_base(b"abc", base, content_hash(base))
    begin = time.process_time()
    found = compressed_bundles(padded(compressed(base)) + many)
    assert time.process_time() - begin < 5
    assert [each.content for each in found[1:]] == 500 * [b"abc"]


def test_of_two_contents_with_one_hash_the_first_is_the_base(monkeypatch):
    """As for the library, which searches the bundles in their order."""
    monkeypatch.setattr(f"{compressed_bundles.__module__}.content_hash", lambda _: 7)
    one, other = bytes(range(200)), bytes(reversed(range(200)))
    first, last, small = padded(compressed(one)), padded(compressed(other)), with_base(one, one, 7)
    assert compressed_bundles(first + last + small)[2].content == one
    assert compressed_bundles(last + first + small)[2].content == other


def test_a_changed_bit_of_both_bundles_is_found_or_changes_nothing_unpacked():
    data = FIRST + SECOND
    for at in range(0, len(data), 7):
        changed = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        with suppress(FatbinError):
            assert read_packed(changed) == read_packed(data)


def test_the_limits_are_the_librarys():
    source = (CHECKOUT / "kernels/host/registry/unpack.cpp").read_text(encoding="utf-8")
    assert f"kMost = {MAX_ARCH >> 20} << 20;" in source
    with pytest.raises(FatbinError, match=f"it holds {MAX_ARCH + 1} bytes, the library unpacks {MAX_ARCH}"):
        packed_bundles(compressed(bytes(MAX_ARCH + 1)))


def test_a_bundle_is_for_one_arch():
    found = read_packed(OWN)
    assert [code.arch for code in found] == [arch for arch in ARCHS for _ in KERNELS]
    assert [code.data for code in found] == [code_object(arch, [name]) for arch in ARCHS for name in KERNELS]
    assert read_packed(b"") == read_packed(bytes(4096)) == ()


@pytest.mark.parametrize("bit", [1, 16, 128])
def test_a_changed_bit_anywhere_is_found_or_changes_nothing_unpacked(bit):
    """zstd has several ways to write few bytes of content, and one unused bit."""
    data = of_each({"gfx908": code_object("gfx908", ["one"])})
    unchanged = 0
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
        with suppress(FatbinError):
            assert read_packed(changed) == read_packed(data)
            unchanged += 1
    assert unchanged < len(data) / 400
