"""Device memory and kernel arguments as bytes."""

import struct

from wheel_builder.machine_code.emulator.memory import (
    ALIGNMENT,
    Memory,
    Scalar,
    f32,
    i32,
    memories,
    pack_arguments,
)


def test_memory_is_aligned_unless_it_is_skewed():
    assert Memory(8, "m").address % ALIGNMENT == 0
    assert Memory(8, "m", skew=6).address % ALIGNMENT == 6


def test_an_output_holds_no_zeros():
    assert Memory.output(4, "m").read() == b"\xa5" * 4


def test_arguments_are_aligned_as_the_compiler_does():
    memory = Memory.of(b"\1\2\3\4", "m")
    packed = pack_arguments([i32(1), memory, f32(2.0), Scalar("q", 3), b"struct"])
    assert packed == struct.pack("<i4xQf4xq6s", 1, memory.address, 2.0, 3, b"struct")
    assert memories([i32(1), memory]) == (memory,)
