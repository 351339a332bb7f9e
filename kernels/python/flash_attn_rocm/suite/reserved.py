"""Tensors with far more addresses than this machine has memory: only used parts cost memory."""

import contextlib
import ctypes
import functools
import mmap
import sys
import weakref

import torch

MAP_NORESERVE = 0x4000  # Linux only. Python's mmap has the name from 3.13 on.
MEM_COMMIT, MEM_RESERVE, MEM_DECOMMIT, PAGE_READWRITE = 0x1000, 0x2000, 0x4000, 4  # of Windows


def reserved(size):
    """``size`` bytes of reserved addresses as a uint8 tensor. ``use`` makes parts readable and writable."""
    if sys.platform == "win32":
        place = Place.for_bytes(size)
        memory = (ctypes.c_char * size).from_address(place.address)
        weakref.finalize(memory, place.give_back)
    else:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
        with contextlib.suppress(OSError):  # Linux kernels without huge pages refuse
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)


def use(x):
    """Makes the elements of ``x``, in reserved memory, readable and writable. Returns ``x``.

    Windows commits the memory here, Linux at first access.
    """
    if sys.platform == "win32":
        place = Place.of(x.data_ptr())
        for part in _parts(x):
            place.commit(part.data_ptr(), part.numel() * part.element_size())
    return x


class Place:
    """A range of addresses reserved on Windows.

    Freed ranges are kept for later tensors: reserving one takes milliseconds in wine, which stores a byte per
    page.
    """

    every = ()

    @classmethod
    def for_bytes(cls, size):
        """The smallest sufficient free range, or a new one."""
        free = [each for each in cls.every if each.free and each.size >= size]
        place = min(free, key=lambda each: each.size) if free else cls(size)
        place.free = False
        return place

    @classmethod
    def of(cls, address):
        return next(each for each in cls.every if 0 <= address - each.address < each.size)

    def __init__(self, size):
        self.address, self.size, self.free, self.parts = _allocated(None, size, MEM_RESERVE), size, True, []
        Place.every += (self,)

    def commit(self, address, size):
        _allocated(address, size, MEM_COMMIT)
        self.parts.append((address, size))

    def give_back(self):
        for part in self.parts:
            _kernel32().VirtualFree(*part, MEM_DECOMMIT)
        self.free, self.parts = True, []


def _parts(x):
    """The largest contiguous parts of ``x``."""
    return [x] if x.is_contiguous() else [part for each in x for part in _parts(each)]


def _allocated(address, size, how):
    found = _kernel32().VirtualAlloc(address, size, how, PAGE_READWRITE)
    if not found:
        raise ctypes.WinError(ctypes.get_last_error())
    return found


@functools.cache
def _kernel32():
    library = ctypes.WinDLL("kernel32", use_last_error=True)
    library.VirtualAlloc.restype = ctypes.c_void_p
    library.VirtualAlloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_ulong, ctypes.c_ulong]
    library.VirtualFree.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_ulong]
    return library
