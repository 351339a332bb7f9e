"""The compiled library in a wheel, its device code, and the addresses of device code in its machine code."""

import re
import struct
from collections.abc import Sequence

from wheel_builder.base.errors import ElfError, FatbinError
from wheel_builder.files.binaries.elf import section_bytes
from wheel_builder.files.binaries.elfimage import PF_X, read_image
from wheel_builder.files.binaries.pe import EXECUTE, Pe, read_pe
from wheel_builder.files.device.compressed import expand, packed_bundles, read_packed
from wheel_builder.files.device.fatbin import SECTION, CodeObject, read_fatbin
from wheel_builder.files.wheels.wheelfile import WheelFile

LIBRARY = "flash_attn_rocm/_C/libflash_attn_rocm.so"
WINDOWS_LIBRARY = "flash_attn_rocm/_C/flash_attn_rocm.dll"
# The name of .hip_fatbin in a DLL, where names have 8 characters.
WINDOWS_SECTION = SECTION[:8]
# lea r64, [rip + disp32]: how x86-64 code takes the address of a hidden symbol such as fa_bundle_<arch>.
LEA = re.compile(rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](?=(.{4}))", re.DOTALL)


def library_of(wheel: WheelFile, name: str = LIBRARY) -> bytes:
    """Our library in a wheel. Raises ``ElfError`` when there is none."""
    if name not in wheel.files:
        message = f"there is no {name}"
        raise ElfError(message, advice="the wheel's build hook did not run: see the wheel stage's log")
    return wheel.files[name]


def for_windows(wheel: WheelFile) -> bool:
    """Whether a wheel has a library for Windows only."""
    return WINDOWS_LIBRARY in wheel.files and LIBRARY not in wheel.files


def device_code(wheel: WheelFile) -> tuple[CodeObject, ...]:
    """The code objects in a wheel's library, at least one.

    Raises ``ElfError``, ``PeError`` or ``FatbinError``.
    """
    if for_windows(wheel):
        return dll_code_objects(read_pe(library_of(wheel, WINDOWS_LIBRARY)))
    section = section_bytes(library_of(wheel), SECTION)
    if not (found := read_packed(section or b"")):
        message = f"{LIBRARY} has no section {SECTION} with device code"
        raise FatbinError(message, advice="device code was not linked in: see the wheel stage's log")
    return found


def dll_code_objects(dll: Pe) -> tuple[CodeObject, ...]:
    """The code objects in a library for Windows, at least one. Raises ``FatbinError``."""
    if not (found := read_packed(dll.section_bytes(WINDOWS_SECTION) or b"")):
        message = f"{WINDOWS_LIBRARY} has no section {WINDOWS_SECTION} with device code"
        raise FatbinError(message, advice="device code was not linked in: see the wheel stage's log")
    return found


def code_objects(library: bytes) -> tuple[CodeObject, ...]:
    """The code objects in any ELF file, ours or another's, empty if it has no section for them."""
    section = section_bytes(library, SECTION)
    return () if section is None else read_fatbin(expand(section))


def unused_bundles(library: bytes) -> tuple[int, ...]:
    """Addresses of bundles in the section that the library's code never refers to.

    The library finds its bundles by address (kernels/host/registry/registry.cpp). With a wrong section
    address, checks would read other code than the library launches.
    """
    image = read_image(library)
    [section] = image.named(SECTION)
    code = [
        (load.address, library[load.offset : load.offset + load.file_bytes])
        for load in image.loads
        if load.flags & PF_X
    ]
    return _not_taken(section.address, image.content(section), code)


def unused_dll_bundles(dll: Pe) -> tuple[int, ...]:
    """Addresses of unused bundles in a library for Windows, whose loader uses the section for bundles."""
    [section] = [each for each in dll.sections if each.name == WINDOWS_SECTION]
    code = [
        (each.address, dll.section_bytes(each.name) or b"") for each in dll.sections if each.flags & EXECUTE
    ]
    return _not_taken(section.address, dll.section_bytes(section.name) or b"", code)


def _not_taken(address: int, fatbin: bytes, code: Sequence[tuple[int, bytes]]) -> tuple[int, ...]:
    """Bundles of the fat binary at ``address`` that no code refers to. ``code`` has pairs of address and
    bytes."""
    taken: set[int] = set()
    for begin, instructions in code:
        for match in LEA.finditer(instructions):
            [distance] = struct.unpack("<i", match[1])
            taken.add(begin + match.end() + 4 + distance)
    starts = (address + bundle.start for bundle in packed_bundles(fatbin))
    return tuple(start for start in starts if start not in taken)
