"""The layout of the kernels' argument structs."""

import struct

import pytest

from wheel_builder.base.errors import EmulatorError
from wheel_builder.machine_code.emulator.params import layout, layouts
from wheel_builder.tables.calls import parse_calls

TEXT = """
expected = {}
calls = {}
makers = {}
[structs.Inner]
from = "const void*"
count = "int32_t"
[structs.Outer]
scale = "float"
parts = "Inner[2]"
one = "int32_t"
two = "int32_t"
"""


@pytest.fixture
def outer():
    return layouts(parse_calls(TEXT).structs)["Outer"]


def test_fields_are_aligned_as_the_compiler_aligns_them(outer):
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


def test_values_go_where_their_names_say_and_the_rest_is_zero(outer):
    packed = outer.pack({"two": -2, "parts[1].from": 7, "scale": 0.5})
    assert packed == struct.pack("<f4xQi4xQi4xii", 0.5, 0, 0, 7, 0, 0, -2)
    assert outer.unpack(packed) == (0.5, 0, 0, 7, 0, 0, -2)


def test_a_name_that_is_no_field_is_an_error(outer):
    with pytest.raises(EmulatorError, match=r"Outer, of .*calls.toml, has no field three, tow") as caught:
        outer.pack({"tow": 1, "three": 2})
    assert "fields: scale, parts[0].from" in caught.value.advice


def test_a_struct_that_is_not_there():
    with pytest.raises(EmulatorError, match=r"no struct Fwd in kernels/tables/calls.toml") as caught:
        layout("Fwd")
    assert "FwdParams" in caught.value.advice
