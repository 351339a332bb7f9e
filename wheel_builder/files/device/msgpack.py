"""The part of MessagePack used in code objects' metadata: maps by text, lists, text, integers, bool, nil.

Input is untrusted: every byte is read once. Unknown types, repeated keys and deep nesting are refused.
"""

import struct
from typing import NoReturn, TypeAlias

from wheel_builder.base.errors import FatbinError

Value: TypeAlias = dict[str, "Value"] | list["Value"] | str | int | None
DEEPEST = 8
CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
INTEGERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
# How the number of elements, or of bytes, is written after the first byte.
TEXTS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
LISTS = {0xDC: ">H", 0xDD: ">I"}
MAPS = {0xDE: ">H", 0xDF: ">I"}


def read_msgpack(data: bytes) -> Value:
    """The one value in ``data``. Raises ``FatbinError``."""
    reader = _Reader(data)
    value = reader.value(DEEPEST)
    if reader.position != len(data):
        _refuse(f"{len(data) - reader.position} bytes follow the value")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self.position = data, 0

    def value(self, deepest: int) -> Value:
        first = self._take(1)[0]
        if deepest == 0:
            _refuse(f"it is nested more than {DEEPEST} times")
        if first < 0x80 or first >= 0xE0:
            return first if first < 0x80 else first - 0x100
        if first in CONSTANTS or first in INTEGERS:
            return CONSTANTS[first] if first in CONSTANTS else self._number(INTEGERS[first])
        if 0xA0 <= first < 0xC0 or first in TEXTS:
            return self._text(self._count(first, 0x1F, TEXTS))
        if 0x90 <= first < 0xA0 or first in LISTS:
            return [self.value(deepest - 1) for _ in range(self._count(first, 0x0F, LISTS))]
        if first >= 0x90 and first not in MAPS:
            _refuse(f"a value of kind {first:#x} at byte {self.position - 1}")
        return self._map(self._count(first, 0x0F, MAPS), deepest - 1)

    def _map(self, count: int, deepest: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for _ in range(count):
            key = self.value(1)
            if not isinstance(key, str) or key in found:
                _refuse(f"a key that is no text, or twice, before byte {self.position}")
            found[key] = self.value(deepest)
        return found

    def _count(self, first: int, mask: int, forms: dict[int, str]) -> int:
        return self._number(forms[first]) if first in forms else first & mask

    def _number(self, form: str) -> int:
        return int(struct.unpack(form, self._take(struct.calcsize(form)))[0])

    def _text(self, size: int) -> str:
        text = self._take(size)
        if not text.isascii():
            _refuse(f"text before byte {self.position} is not ASCII")
        return text.decode()

    def _take(self, size: int) -> bytes:
        taken = self._data[self.position : self.position + size]
        if len(taken) != size:
            _refuse(f"it ends at byte {len(self._data)}, within a value")
        self.position += size
        return taken


def _refuse(what: str) -> NoReturn:
    message = f"not readable as MessagePack: {what}"
    raise FatbinError(message, advice="compile the code object again")
