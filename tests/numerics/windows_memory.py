"""Tensors whose strides are larger than this machine's memory, on Windows, which has no mmap of POSIX.

Addresses are reserved, and memory is committed for the rows alone: what is committed counts, touched or not.
"""

import ctypes
import itertools
import weakref

import torch
from forward_cases import ALIGNED, CARRIES

MEM_COMMIT, MEM_RESERVE, MEM_RELEASE, PAGE_READWRITE = 0x1000, 0x2000, 0x8000, 4


def kernel32():
    library = ctypes.WinDLL("kernel32", use_last_error=True)
    library.VirtualAlloc.restype = ctypes.c_void_p
    library.VirtualAlloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_ulong, ctypes.c_ulong]
    library.VirtualFree.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_ulong]
    return library


def far_apart(x, steps):
    """What ``forward_cases.far_apart`` does on Linux."""
    if not x.numel():
        return x
    windows = kernel32()
    sizes, item = x.shape[:-1], x.element_size()
    offsets = [
        sum(at * step for at, step in zip(row, steps, strict=False)) * item
        for row in itertools.product(*map(range, sizes))
    ]
    last, each = max(offsets), x.shape[-1] * item
    size = last + each + CARRIES
    address = windows.VirtualAlloc(None, size, MEM_RESERVE, PAGE_READWRITE)
    if not address:
        raise ctypes.WinError(ctypes.get_last_error())
    begin = -(address + last + each // 2 // ALIGNED * ALIGNED) % CARRIES
    for offset in offsets:
        if not windows.VirtualAlloc(address + begin + offset, each, MEM_COMMIT, PAGE_READWRITE):
            raise ctypes.WinError(ctypes.get_last_error())
    memory = (ctypes.c_char * size).from_address(address)
    weakref.finalize(memory, windows.VirtualFree, address, 0, MEM_RELEASE)
    memory = torch.frombuffer(memory, dtype=torch.uint8)
    return memory[begin:].view(x.dtype).as_strided(x.shape, steps).copy_(x)
