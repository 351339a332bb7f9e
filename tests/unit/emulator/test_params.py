"""The parser of the kernels' argument structs: what it makes of declarations, and what it refuses."""

import struct

import pytest

from wheel_builder.base.errors import EmulatorError
from wheel_builder.emulator.params import HEADER, layout, parse

TEXT = """
// struct Commented { int64_t out; };
struct Inner {
  const void* from;  // a comment; with a semicolon
  int32_t count;
};
struct Outer {
  float scale;
  Inner parts[2];
  int32_t one, two;
};
"""


def test_fields_are_aligned_as_the_compiler_aligns_them():
    outer = parse(TEXT)["Outer"]
    assert (outer.size, outer.alignment) == (48, 8)
    assert [(each.name, each.kind, each.offset) for each in outer.scalars] == [
        ("scale", "f", 0),
        ("parts[0].from", "Q", 8),
        ("parts[0].count", "i", 16),
        ("parts[1].from", "Q", 24),
        ("parts[1].count", "i", 32),
        ("one", "i", 40),
        ("two", "i", 44),
    ]


def test_values_go_where_their_names_say_and_the_rest_is_zero():
    packed = parse(TEXT)["Outer"].pack({"two": -2, "parts[1].from": 7, "scale": 0.5})
    assert packed == struct.pack("<f4xQi4xQi4xii", 0.5, 0, 0, 7, 0, 0, -2)
    assert parse(TEXT)["Outer"].unpack(packed) == (0.5, 0, 0, 7, 0, 0, -2)


def test_a_name_that_is_no_field_is_refused():
    with pytest.raises(EmulatorError, match=r"Outer, of .*params.hpp, has no field three, tow") as caught:
        parse(TEXT)["Outer"].pack({"tow": 1, "three": 2})
    assert "fields: scale, parts[0].from" in caught.value.advice


@pytest.mark.parametrize(
    "declaration",
    [
        "double x;", "int x;", "int32_t x : 3;", "const char** x;", "alignas(16) int64_t x;",
        "int32_t x = 0;",
        "int32_t x[];", "int32_t x[2][2];", "union { float x; };", "int32_t x", "struct { float x; } y;",
        "static constexpr int32_t x;", "Unknown x;", "int32_t *x, y;",
    ],
)  # fmt: skip
def test_what_it_does_not_understand_it_refuses(declaration):
    with pytest.raises(EmulatorError, match=r"params.hpp declares '.*', which is not a field of int64_t"):
        parse(f"struct A {{ float before; {declaration} }};")


def test_a_struct_that_is_not_there():
    with pytest.raises(EmulatorError, match=r"no struct Fwd in params.hpp or backward_params.hpp") as caught:
        layout("Fwd")
    assert "FwdParams" in caught.value.advice


def test_a_field_that_moves_in_the_header_moves_here():
    text = HEADER.read_text()
    moved = text.replace("  float softcap;\n", "").replace(
        "  float scale;", "  float softcap;\n  float scale;"
    )
    assert moved != text
    before, after = parse(text)["FwdParams"], parse(moved)["FwdParams"]
    assert after.pack({"scale": 2.0}) == before.pack({"softcap": 2.0}) != before.pack({"scale": 2.0})
