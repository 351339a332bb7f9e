"""Inputs of the fuzz target: a call, a code object and its disassembly, as input.hpp has them."""

import struct
from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class Call:
    """The start of a kernel. ``pointers`` arguments of eight bytes point to memory open to it."""

    kernel: int = 0
    grid: tuple[int, int, int] = (2, 1, 1)
    block: tuple[int, int, int] = (64, 1, 1)
    dynamic_lds: int = 256
    checks: int = 0
    pointers: int = 2
    seed: int = 1
    only_group: int = -1


def packed(call, elf, text):
    """The bytes of one input."""
    kernel, grid, block, *rest = astuple(call)
    return struct.pack("<12Iq", len(elf), kernel, *grid, *block, *rest) + elf + text.encode()
