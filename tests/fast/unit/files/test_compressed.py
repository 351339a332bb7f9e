"""Compressed bundles, made here in the format of released wheels (zstd, versions 2 and 3)."""

import struct
import zlib

import pytest
import zstandard

from tests.tools.made.wheels import fatbin
from wheel_builder.base.errors import FatbinError
from wheel_builder.files.device.compressed import HEADERS, MAX_MIB, expand
from wheel_builder.files.device.fatbin import read_fatbin

BUNDLE = fatbin()
METHODS = {0: zlib.compress, 1: zstandard.compress}


def compressed(content=BUNDLE, version=3, method=1, size=None, total=None, packed=None):
    packed = METHODS[method](content) if packed is None else packed
    size = len(content) if size is None else size
    whole = struct.calcsize(HEADERS[version]) + len(packed) if total is None else total
    sizes = (size,) if version == 1 else (whole, size)
    return struct.pack(HEADERS[version], b"CCOB", version, method, *sizes, 0) + packed


def padded(data):
    return data + bytes(-len(data) % 4096)


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
BAD = {
    "version 9 is not one of 1, 2, 3": b"CCOB\x09\x00" + GOOD[6:],
    "its header is cut off": GOOD[:20],
    f"it claims {len(GOOD) + 1} bytes of {len(GOOD)}": compressed(total=len(GOOD) + 1),
    f"it claims 3 bytes of {len(GOOD)}": compressed(total=3),
    f"more than {MAX_MIB} MiB": compressed(size=1 << 40),
    f"it holds {len(BUNDLE)} bytes, its header says 5": compressed(size=5),
    "it holds 6 bytes or more, its header says 5": compressed(method=0, size=5),
    "it holds 3 bytes or more, its header says 5": compressed(b"abc", method=0, size=5),
    "it cannot be decompressed": compressed(packed=b"nonsense"),
    "it cannot be decompressed: Error -3": compressed(method=0, packed=b"nonsense"),
    "its compression method 7 is neither zlib (0) nor zstd (1)": GOOD[:6] + b"\x07" + GOOD[7:],
}


@pytest.mark.parametrize("words", BAD)
def test_a_bundle_that_lies_is_refused_in_words(words):
    with pytest.raises(FatbinError) as caught:
        expand(BAD[words])
    assert "compressed offload bundle at byte 0 of .hip_fatbin: " in str(caught.value)
    assert words in str(caught.value)
