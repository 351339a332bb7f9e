"""The memory of a DLL changed or called by Windows' loader: relocations, thread-local storage, functions.

With ASLR the loader adds the distance from the preferred base to every field named by a base relocation.
Memory therefore depends on the file and on its relocations. Input is untrusted: the answer is a value or a
``PeError``.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from wheel_builder.base.errors import PeError
from wheel_builder.files.binaries.pe import Pe

ABSOLUTE, DIR64 = 0, 10
PAGE, POINTER = 4096, 8
BLOCK, FUNCTION, TLS = struct.Struct("<II"), struct.Struct("<III"), struct.Struct("<QQQQII")
DEBUG = struct.Struct("<IIHHIIII")
UNWIND_VERSION, HANDLERS = 1, 0x3
ALIGNMENT = 0xF00000  # the allowed characteristics of thread-local storage
MOST_CALLBACKS = 64


@dataclass(frozen=True)
class Tls:
    """The table of thread-local storage. All places are relative to the image.

    ``fields`` are its four pointers and the pointers in the list of callbacks. All of them must be relocated.
    """

    start: int
    end: int
    index: int
    callbacks: tuple[int, ...]
    zeros: int
    alignment: int
    fields: tuple[int, ...]


@dataclass(frozen=True)
class Functions:
    """The exception table: begin and end of functions, places of unwind data, and handlers."""

    begins: Mapping[int, int]
    unwind: tuple[range, ...]
    handlers: tuple[int, ...]


def relocations(dll: Pe) -> Mapping[int, int]:
    """The 64-bit fields changed by the loader, each with its target relative to the image.

    The target may be anywhere.
    """
    place, size = dll.places.get("relocation", (0, 0))
    found: dict[int, int] = {}
    at, page, last = 0, -PAGE, -POINTER
    while at < size:
        new, length = BLOCK.unpack(dll.at(place + at, BLOCK.size, "a block of base relocations"))
        if new % PAGE or new <= page or length <= BLOCK.size or length % 4 or at + length > size:
            _refuse(f"a block of base relocations is for page {new:#x} and has {length} bytes")
        words = dll.at(place + at + BLOCK.size, length - BLOCK.size, "a block of base relocations")
        for field in _fields(new, struct.unpack(f"<{len(words) // 2}H", words)):
            if field < last + POINTER:
                _refuse(f"the base relocation of {field:#x} overlaps the one before it")
            found[field], last = _value(dll, field, "a relocated field"), field
        page, at = new, at + length
    return found


def _fields(page: int, entries: tuple[int, ...]) -> Iterator[int]:
    for number, entry in enumerate(entries):
        if entry == ABSOLUTE and number == len(entries) - 1:
            return  # fills the block up
        if (kind := entry >> 12) != DIR64:
            _refuse(f"a base relocation of page {page:#x} is of type {kind}; expected {DIR64} (DIR64)")
        yield page + (entry & (PAGE - 1))


def thread_storage(dll: Pe) -> Tls | None:
    """The table of thread-local storage, None without one."""
    if "tls" not in dll.places:
        return None
    place, size = dll.places["tls"]
    if size != TLS.size:
        _refuse(f"the table of thread-local storage has {size} bytes; expected {TLS.size}")
    *_, zeros, flags = TLS.unpack(dll.at(place, size, "the table of thread-local storage"))
    fields = [place + POINTER * number for number in range(4)]
    start, end, index, listed = (_pointer(dll, field, "thread-local storage") for field in fields)
    callbacks: list[int] = []
    while any(dll.at(listed, POINTER, "the list of callbacks")):
        if len(callbacks) == MOST_CALLBACKS:
            _refuse(f"it has more than {MOST_CALLBACKS} callbacks of thread-local storage")
        callbacks.append(_pointer(dll, listed, "a callback"))
        fields.append(listed)
        listed += POINTER
    return Tls(start, end, index, tuple(callbacks), zeros, flags, tuple(fields))


def functions(dll: Pe) -> Functions:
    """The functions in the exception table, in order. The table may lack leaf functions."""
    place, size = dll.places.get("exception", (0, 0))
    if size % FUNCTION.size:
        _refuse(f"the exception table has {size} bytes, which is no number of entries")
    begins: dict[int, int] = {}
    unwind: list[range] = []
    handlers: list[int] = []
    last = 0
    for at in range(place, place + size, FUNCTION.size):
        begin, end, data = FUNCTION.unpack(dll.at(at, FUNCTION.size, "the exception table"))
        if not last <= begin < end:
            _refuse(f"the exception table has a function from {begin:#x} to {end:#x} behind {last:#x}")
        begins[begin] = last = end
        what, handler = _unwind(dll, data)
        unwind.append(what)
        handlers += handler
    return Functions(begins, tuple(unwind), tuple(handlers))


def _unwind(dll: Pe, data: int) -> tuple[range, tuple[int, ...]]:
    """The place of a function's unwind data, and its handler if it has one."""
    head, _, codes, _ = dll.at(data, 4, "what unwinds a function")
    if head & 7 != UNWIND_VERSION or head >> 3 & ~HANDLERS:
        _refuse(f"what unwinds a function at {data:#x} is of version {head & 7} with flags {head >> 3}")
    end = data + 4 + 2 * (codes + codes % 2)
    if not head >> 3:
        return range(data, end), ()
    return range(data, end + 4), struct.unpack("<I", dll.at(end, 4, "the handler of a function"))


def debug_entry(dll: Pe) -> tuple[int, ...]:
    """The kind, size and places of the debug directory's data, empty if there is no table."""
    if "debug" not in dll.places:
        return ()
    place, size = dll.places["debug"]
    if size != DEBUG.size:
        _refuse(f"the debug table has {size} bytes; expected one entry of {DEBUG.size}")
    return DEBUG.unpack(dll.at(place, size, "the debug table"))[4:]


def _pointer(dll: Pe, field: int, what: str) -> int:
    """The target of an absolute address in memory, relative to the image. Raises if it lies outside."""
    if not 0 <= (target := _value(dll, field, what)) < dll.header["image bytes"]:
        _refuse(f"{what} at {field:#x} points to {target:#x}, which is outside of the image")
    return target


def _value(dll: Pe, field: int, what: str) -> int:
    [value] = struct.unpack("<Q", dll.at(field, POINTER, f"{what} at {field:#x}"))
    return int(value) - dll.header["image base"]


def _refuse(problem: str) -> NoReturn:
    message = f"the library is not a DLL that can be relied on: {problem}"
    raise PeError(message, advice="link it again with the pipeline's own flags")
