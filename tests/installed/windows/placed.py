"""A DLL of this process in memory, compared with its file: its address, and the loader's changes.

This reads headers independently, as a check of the reader in wheel_builder/files.
"""

import ctypes
import struct
from pathlib import Path

BASE = 0x180000000  # the linker's base for DLLs. wine uses it if there is room
RESERVE, NO_ACCESS, WRITABLE = 0x2000, 0x1, 0x80000000
DIR64 = 10


def kernel32():
    found = ctypes.WinDLL("kernel32", use_last_error=True)
    found.VirtualAlloc.restype = found.GetModuleHandleW.restype = ctypes.c_void_p
    found.VirtualAlloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint32]
    found.GetModuleHandleW.argtypes = [ctypes.c_wchar_p]
    return found


def take_preferred_place():
    """Reserve memory at BASE, unless another DLL is there already: the next one is loaded elsewhere."""
    kernel32().VirtualAlloc(BASE, 1 << 16, RESERVE, NO_ACCESS)


def place_of(name):
    """The address of a DLL of this process."""
    return kernel32().GetModuleHandleW(name)


def sections(data):
    """Each section's name, address, bytes in the file and flags, by the headers of a file."""
    at = struct.unpack_from("<I", data, 0x3C)[0]
    count, size = struct.unpack_from("<H", data, at + 6)[0], struct.unpack_from("<H", data, at + 20)[0]
    for number in range(count):
        row = at + 24 + size + 40 * number
        name, length, address, held, place = struct.unpack_from("<8sIIII", data, row)
        flags = struct.unpack_from("<I", data, row + 36)[0]
        yield name.rstrip(b"\0").decode(), address, data[place : place + min(length, held)], flags


def relocated(blocks):
    """The addresses of the 64-bit fields named by base relocations."""
    at = 0
    while at < len(blocks):
        page, size = struct.unpack_from("<II", blocks, at)
        for entry in struct.unpack_from(f"<{(size - 8) // 2}H", blocks, at + 8):
            if entry >> 12 == DIR64:
                yield page + (entry & 0xFFF)
        at += size


def differences(path, base):
    """Read-only and executable sections whose memory differs from the file, relocated to ``base``.

    The loader fills in the addresses of imports in .rdata, so only its pointers are compared. .reloc may be
    gone.  Returns the number of different bytes or pointers of each.
    """
    data = Path(path).read_bytes()
    held = {name: (address, content, flags) for name, address, content, flags in sections(data)}
    fields = set(relocated(held[".reloc"][1]))
    found = {}
    for name, (address, content, flags) in held.items():
        if flags & WRITABLE or name == ".reloc":
            continue
        memory = ctypes.string_at(base + address, len(content))
        if name == ".rdata":
            inside = [field - address for field in fields if address <= field < address + len(content)]
            was, now = (
                [struct.unpack_from("<Q", part, at)[0] - start for at in inside]
                for part, start in ((content, BASE), (memory, base))
            )
        else:
            was, now = content, memory
        found[name] = 0 if was == now else sum(one != other for one, other in zip(was, now, strict=True))
    return found
