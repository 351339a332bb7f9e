"""A code object's facts about itself, and false ones that would affect the HIP runtime or a GPU."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.made import elves
from tests.tools.made.elves import E_FLAGS, Edit, metadata_of, packed
from tests.tools.made.wheels import ARCHS, code_object
from wheel_builder.base.errors import FatbinError
from wheel_builder.files.device.codeobject import code_object_problems
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.files.device.msgpack import read_msgpack

NAMES = ["a", "b"]


def problems(data, arch="gfx942"):
    return list(code_object_problems(CodeObject(arch, data)))


@pytest.mark.parametrize("arch", ARCHS)
def test_a_good_one(arch):
    assert problems(code_object(arch, NAMES), arch) == []


@pytest.mark.parametrize(
    ("arch", "flags"),
    [("gfx942", 0x64C), ("gfx942", 0x74C), ("gfx942", 0x4C), ("gfx1030", 0x536), ("gfx908", 0xC30)],
)
def test_features_in_the_header(arch, flags):
    """Code for xnack+ fails on a GPU without it, so the bundle's name must name the feature."""
    expected = f"its header has flags {flags:#x}, expected {E_FLAGS[arch]:#x} of {arch}"
    assert problems(code_object(arch, NAMES, flags=flags), arch) == [expected]


def test_where_the_host_library_writes_another_gpus_name_there_is_one_place():
    place = b"\xadamdhsa.target\xbaamdgcn-amd-amdhsa--gfx1030"
    assert problems(elves.code_object("gfx1030", NAMES, noise=place), "gfx1030") == [
        "its metadata says 2 times that it is for gfx1030, expected once: others run it too"
    ]
    alone = place.replace(b"gfx1030", b"gfx1151")
    assert problems(elves.code_object("gfx1151", NAMES, noise=alone), "gfx1151") == []


def changed(**fields):
    said = metadata_of("gfx942", NAMES)
    return code_object(
        "gfx942", NAMES, metadata=said | {f"amdhsa.{name}": value for name, value in fields.items()}
    )


def with_row(**fields):
    [row, other] = metadata_of("gfx942", NAMES)["amdhsa.kernels"]
    return changed(kernels=[row | {f".{name}": value for name, value in fields.items()}, other])


LIES = {
    "another GPU": (
        changed(target="amdgcn-amd-amdhsa--gfx90a"),
        "its metadata is for 'amdgcn-amd-amdhsa--gfx90a'",
    ),
    "features": (
        changed(target="amdgcn-amd-amdhsa--gfx942:xnack+"),
        "its metadata is for 'amdgcn-amd-amdhsa--gfx9",
    ),
    "no GPU": (changed(target=942), "its metadata is for 942, expected amdgcn-amd-amdhsa--gfx942"),
    "another version": (changed(version=[1, 1]), "its metadata has version [1, 1], expected [1, 2]"),
    "no kernel": (changed(kernels=[]), "its metadata names the kernels none, and it has a, b"),
    "not a list": (changed(kernels="ab"), "its metadata names the kernels none, and it has a, b"),
    "another kernel": (with_row(name="c"), "its metadata names the kernels b, c, and it has a, b"),
    "another descriptor": (
        with_row(symbol="b.kd"),
        "the metadata of a has 'b.kd' for .symbol, and its descriptor",
    ),
    "less LDS": (
        with_row(group_segment_fixed_size=0),
        "has 0 for .group_segment_fixed_size, and its descriptor 10",
    ),
    "more scratch": (
        with_row(private_segment_fixed_size=4),
        "has 4 for .private_segment_fixed_size, and its desc",
    ),
    "no arguments": (
        with_row(kernarg_segment_size=0),
        "has 0 for .kernarg_segment_size, and its descriptor 64",
    ),
    "a kernel for the module's start": (
        with_row(kind="init"),
        "the metadata of a has .kind, which is not known",
    ),
    "half a wave": (with_row(wavefront_size=32), "has 32 for .wavefront_size, and its descriptor 64"),
    "further keys": (
        changed(printf=[]),
        "its metadata does not have the keys amdhsa.kernels, amdhsa.target, amdh",
    ),
}


@pytest.mark.parametrize(("data", "words"), LIES.values(), ids=LIES)
def test_metadata_that_lies(data, words):
    found = problems(data)
    assert any(words in problem for problem in found), found


NOTE = Edit(code_object("gfx942", NAMES)).of_section(".note")
NOTES = {
    "zeros": (0, bytes(NOTE["size"]), "are not one note with AMDGPU metadata"),
    "zeroed metadata": (20, bytes(NOTE["size"] - 20), "not readable as MessagePack: "),
    "another owner": (12, b"OTHERS", "are not one note with AMDGPU metadata"),
    "another kind": (8, b"\1", "are not one note with AMDGPU metadata"),
    "fewer bytes": (4, struct.pack("<I", NOTE["size"] - 60), "are not one note with AMDGPU metadata"),
    "more bytes": (4, struct.pack("<I", 1 << 31), "are not one note with AMDGPU metadata"),
}


@pytest.mark.parametrize(("at", "content", "words"), NOTES.values(), ids=NOTES)
def test_notes_that_are_no_metadata(at, content, words):
    data = Edit(code_object("gfx942", NAMES)).content(".note", at, content).data
    (found,) = problems(data)
    assert words in found


@pytest.mark.parametrize(
    ("at", "words"),
    [(16, "the descriptor of a starts "), (0, "for .group_segment_fixed_size"), (57, "for .wavefront_size")],
)
def test_a_descriptor_of_another_kernel(at, words):
    data = Edit(code_object("gfx942", NAMES)).content(".rodata", at, b"\4").data
    assert any(words in problem for problem in problems(data))


def test_a_descriptor_in_code():
    edit = Edit(code_object("gfx942", NAMES))
    for row in edit.rows(".dynsym", Edit.SYMBOL):
        if edit.read(row, Edit.SYMBOL)["size"] == 64:
            edit.write(row, Edit.SYMBOL, value=edit.of_section(".text")["address"])
    found = problems(edit.data)
    assert "the descriptor of a is not 64 bytes of constant data" in found


def test_bytes_that_are_no_elf_file():
    (found,) = problems(b"text")
    assert found.startswith("not a readable ELF file")


VALUES = [{"a": [1, "x" * 40], "b": {"c": 0}}, [], {}, 0, 127, 70000, "", "x" * 300]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_messagepack_is_read_back(value):
    assert read_msgpack(packed(value)) == value


def test_short_forms_of_messagepack():
    """As compilers write them."""
    assert read_msgpack(bytes.fromhex("83a161c3a162c0a16393ffd1ff7fc2")) == {
        "a": True,
        "b": None,
        "c": [-1, -129, False],
    }


BROKEN = {
    "nothing": (b"", "it ends at byte 0, within a value"),
    "half a text": (b"\xa5abc", "it ends at byte 4, within a value"),
    "a long list": (b"\xdd\xff\xff\xff\xff\x00", "it ends at byte 6, within a value"),
    "two values": (b"\x00\x00", "1 bytes follow the value"),
    "a key twice": (b"\x82\xa1a\x00\xa1a\x00", "a key that is no text, or twice, before byte 6"),
    "a list as a key": (b"\x81\x90\x00", "a key that is no text, or twice, before byte 2"),
    "deep": (b"\x91" * 1000, "it is nested more than 8 times"),
    "a number with a fraction": (b"\xcb" + bytes(8), "a value of kind 0xcb at byte 0"),
    "not text": (b"\xa1\xff", "text before byte 2 is not ASCII"),
}


@pytest.mark.parametrize(("data", "words"), BROKEN.values(), ids=BROKEN)
def test_messagepack_that_is_refused(data, words):
    with pytest.raises(FatbinError, match=words):
        read_msgpack(data)


@given(st.binary(max_size=80), st.integers(0, 400))
def test_any_metadata_gives_an_answer(noise, at):
    edit = Edit(code_object("gfx942", NAMES))
    assert isinstance(problems(edit.content(".note", at % (NOTE["size"] - len(noise)), noise).data), list)
