"""Device memory: host bytes between guard zones, which reveal an access one byte too far."""

import ctypes
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Guard zones stay unregistered: an access there is out of bounds, independent of neighbouring allocations.
GUARD = 1 << 16
ALIGNMENT = 256  # of hipMalloc


class Memory:
    """``size`` bytes of device memory, 256-aligned.

    ``readonly``: a store of the kernel is an error.  ``initialised``: the kernel may read it before writing
    it.  ``skew`` moves the start off its alignment, in bytes.
    """

    def __init__(
        self, size: int, name: str, *, readonly: bool = False, initialised: bool = True, skew: int = 0
    ) -> None:
        self.name, self.size, self.readonly, self.initialised = name, size, readonly, initialised
        self._store = (ctypes.c_char * (size + 2 * GUARD + ALIGNMENT + skew))()
        begin = ctypes.addressof(self._store) + GUARD
        self.address = begin + -begin % ALIGNMENT + skew

    @classmethod
    def of(cls, data: bytes, name: str, *, readonly: bool = False, skew: int = 0) -> "Memory":
        """Memory with the content ``data``."""
        memory = cls(len(data), name, readonly=readonly, skew=skew)
        ctypes.memmove(memory.address, data, len(data))
        return memory

    @classmethod
    def output(cls, size: int, name: str) -> "Memory":
        """Unwritten memory: filled with 0xA5, and reading it is an error."""
        memory = cls(size, name, initialised=False)
        ctypes.memset(memory.address, 0xA5, size)
        return memory

    def read(self) -> bytes:
        return ctypes.string_at(self.address, self.size)

    def values(self, kind: str) -> tuple[float, ...]:
        """The content as numbers of a ``struct`` format character."""
        return struct.unpack(f"<{self.size // struct.calcsize(kind)}{kind}", self.read())


@dataclass(frozen=True)
class Scalar:
    """A kernel argument passed by value: ``struct`` format character and value."""

    kind: str
    value: float


Argument = Memory | Scalar | bytes


def i32(value: int) -> Scalar:
    return Scalar("i", value)


def f32(value: float) -> Scalar:
    return Scalar("f", value)


def pack_arguments(arguments: Iterable[Argument]) -> bytes:
    """Kernel argument bytes: memory as its address, scalars naturally aligned, bytes (a struct) 8-aligned."""
    out = bytearray()
    for argument in arguments:
        raw = _raw(argument)
        alignment = len(raw) if isinstance(argument, Scalar) else 8
        out += b"\0" * (-len(out) % alignment) + raw
    return bytes(out)


def memories(arguments: Sequence[Argument]) -> tuple[Memory, ...]:
    """The memory among the arguments."""
    return tuple(argument for argument in arguments if isinstance(argument, Memory))


def _raw(argument: Argument) -> bytes:
    if isinstance(argument, Memory):
        return struct.pack("<Q", argument.address)
    if isinstance(argument, Scalar):
        return struct.pack(f"<{argument.kind}", argument.value)
    return argument
