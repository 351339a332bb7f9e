"""The C interface of the core: structures and functions as core/capi.cpp has them."""

import ctypes
from array import array
from collections.abc import Sequence
from pathlib import Path

from wheel_builder.base.errors import EmulatorBuildError, EmulatorError

# Must equal the number in core/capi.cpp.
INTERFACE = 6

Waves = tuple[Sequence[int], ...]  # words recorded by a run, by wave


class BufferRow(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("readonly", ctypes.c_uint32),
        ("initialised", ctypes.c_uint32),
    )


class LaunchRow(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("dynamic_lds", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("checks", ctypes.c_uint32),
        ("quantum", ctypes.c_uint32),
        ("trace", ctypes.c_uint32),
        ("record", ctypes.c_uint32),
        ("buffer_count", ctypes.c_uint32),
        ("kernarg_size", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("max_instructions", ctypes.c_uint64),
        ("max_seconds", ctypes.c_double),
        ("only_group", ctypes.c_int64),
        ("kernarg", ctypes.c_void_p),
        ("buffers", ctypes.POINTER(BufferRow)),
    )


class Core:
    """The loaded library. Every function returns text or a handle and never raises."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._declare("emu_interface", ctypes.c_uint32)
        self._declare("emu_load", ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_char_p)
        self._declare("emu_free", None, ctypes.c_void_p)
        self._declare("emu_describe", ctypes.c_char_p, ctypes.c_void_p)
        self._declare("emu_run", ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(LaunchRow))
        size = ctypes.POINTER(ctypes.c_uint64)
        self._declare("emu_recorded", ctypes.POINTER(ctypes.c_uint32), ctypes.c_uint32, ctypes.c_uint32, size)
        self._declare("emu_program", ctypes.c_char_p, ctypes.c_void_p)
        self._declare("emu_text", ctypes.c_char_p)
        self._declare("emu_missing", ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p)
        self._declare("emu_mnemonics", ctypes.c_char_p)
        if (found := self._library.emu_interface()) != INTERFACE:
            message = f"{path}: has interface {found}, expected {INTERFACE}"
            raise EmulatorBuildError(message, advice="binding.py and core/capi.cpp differ; change both")

    def load(self, code_object: bytes, disassembly: str) -> int:
        """A handle, or 0 for an error described by ``text``."""
        handle = self._library.emu_load(code_object, len(code_object), disassembly.encode())
        return int(handle or 0)

    def free(self, handle: int) -> None:
        self._library.emu_free(handle)

    def describe(self, handle: int) -> str:
        return self._text(self._library.emu_describe(handle))

    def run(self, handle: int, launch: LaunchRow) -> str:
        return self._text(self._library.emu_run(handle, ctypes.byref(launch)))

    def recorded(self) -> Waves:
        """Instructions executed by each wave of the last recorded run: index | active lanes << 24."""
        return self._recorded(0)

    def recorded_lds(self) -> Waves:
        """The LDS instructions of each wave of the last recorded run, as ``Record`` in core/run/wave.hpp has
        them.
        """
        return self._recorded(1)

    def _recorded(self, part: int) -> Waves:
        waves: list[Sequence[int]] = []
        size = ctypes.c_uint64()
        while data := self._library.emu_recorded(len(waves), part, ctypes.byref(size)):
            waves.append(array("I", ctypes.string_at(data, 4 * size.value)))
        return tuple(waves)

    def program(self, handle: int) -> str:
        """Address (hexadecimal) and text of every instruction, a line each, by index."""
        return self._text(self._library.emu_program(handle))

    def text(self) -> str:
        return self._text(self._library.emu_text())

    def missing(self, arch: str, disassembly: str) -> tuple[str, ...]:
        """``mnemonic: place: instruction`` for every unimplemented instruction in the text."""
        found = self._library.emu_missing(arch.encode(), disassembly.encode())
        if found is None:
            raise EmulatorError(
                self.text(), advice="the text of a code object for one of these archs is needed"
            )
        return tuple(self._text(found).splitlines())

    def mnemonics(self) -> dict[str, str]:
        """The class of every implemented mnemonic (valu, lds, vmem, ...)."""
        return dict(line.split() for line in self._text(self._library.emu_mnemonics()).splitlines())

    def _declare(self, name: str, result: type | None, *arguments: type) -> None:
        function = getattr(self._library, name)
        function.restype = result
        function.argtypes = arguments

    @staticmethod
    def _text(raw: bytes) -> str:
        return raw.decode("utf-8", errors="replace")
