"""The host library's reader of offload bundles: it reads good ones and refuses damaged ones with a reason."""

import struct
import subprocess
from pathlib import Path

import pytest

from tests.tools.programs import CHECKOUT, compile_program

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
TARGETS = {"gfx908": b"first", "gfx90": b"second one", "gfx942": b""}


@pytest.fixture(scope="session")
def reader(builder_image, tmp_path_factory):
    sources = (
        Path(__file__).with_name("programs") / "bundles.cpp",
        CHECKOUT / "kernels/host/registry/bundle.cpp",
    )
    return compile_program(builder_image, tmp_path_factory.mktemp("bundles") / "bundles", *sources)


@pytest.fixture
def read(reader, tmp_path):
    def run(data, gfx):
        file = tmp_path / "bundle"
        file.write_bytes(data)
        done = subprocess.run([reader, file, gfx], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"the reader died: {done.returncode}"
        return done.stdout.strip()

    return run


def bundle(entries):
    """A bundle as clang-offload-bundler writes it, without alignment."""
    ids = {b"host-x86_64-unknown-linux-gnu-": b""}
    ids |= {b"hipv4-amdgcn-amd-amdhsa--" + gfx.encode(): code for gfx, code in entries.items()}
    offset = len(MAGIC) + 8 + sum(24 + len(name) for name in ids)
    head, body = MAGIC + struct.pack("<Q", len(ids)), b""
    for name, code in ids.items():
        head += struct.pack("<QQQ", offset + len(body), len(code), len(name)) + name
        body += code
    return head + body


def padded(data):
    return data + bytes(-len(data) % 4096)


@pytest.mark.parametrize(("gfx", "code"), TARGETS.items())
def test_each_arch_is_found(read, gfx, code):
    data = bundle(TARGETS)
    offset, size = map(int, read(data, gfx).split())
    assert data[offset : offset + size] == code


@pytest.mark.parametrize("gfx", ["gfx9", "gfx9420", "gfx1100", ""])
def test_an_arch_that_is_not_there(read, gfx):
    found = read(bundle(TARGETS), gfx)
    assert f"has no code object for {gfx}, which the registry names" in found
    assert "next: install the wheel again" in found


def test_a_bundle_that_is_cut_short_anywhere(read):
    data = bundle({"gfx908": b"code", "gfx942": b"more"})
    for length in range(1, len(data), 7):
        assert read(data[:length], "gfx942").startswith(
            "error: the device code in libflash_attn_rocm.so is damaged"
        )


@pytest.mark.parametrize(("field", "words"), [(0, "lies outside"), (8, "lies outside"), (16, "ends early")])
@pytest.mark.parametrize("value", [2**64 - 1, 2**63, 4096])
def test_numbers_that_point_outside(read, field, words, value):
    data = bytearray(bundle({"gfx908": b"code"}))
    entry = data.index(b"hipv4") - 24
    struct.pack_into("<Q", data, entry + field, value)
    assert words in read(bytes(data), "gfx908")


def test_more_entries_announced_than_there_are(read):
    data = bytearray(bundle(TARGETS))
    struct.pack_into("<Q", data, len(MAGIC), 2**64 - 1)
    assert read(bytes(data), "gfx1100").startswith("error: ")


def test_a_row_of_bundles_has_a_code_object_in_each(read):
    codes = [b"first", b"", b"x" * 5000, b"last"]
    row = b"".join(padded(bundle({"gfx942": code})) for code in codes[:-1])
    row += bundle({"gfx942": codes[-1]})
    places = [map(int, line.split()) for line in read(row, "gfx942").splitlines()]
    assert [row[offset : offset + size] for offset, size in places] == codes
    assert read(b"", "gfx942") == ""
    assert "has no code object for gfx908, which the registry names" in read(row, "gfx908")


def test_a_code_object_in_front_of_its_bundle(read):
    """The next bundle would be this one again."""
    data = bytearray(bundle({"gfx908": b"code"}))
    struct.pack_into("<QQ", data, data.index(b"hipv4") - 24, 0, 0)
    assert "a code object lies before its bundle's list" in read(bytes(data), "gfx908")


def test_something_else(read):
    assert "does not start with clang's mark" in read(b"\x7fELF" + bytes(100), "gfx908")
