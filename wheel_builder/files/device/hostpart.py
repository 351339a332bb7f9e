"""The library without its device code: the bytes in memory independent of the kernels.

The linker puts the fat binary last (kernels/build/hatch_build.py). Before it lies .fa_bundles, with a
function for each bundle that returns its address and size (kernels/build/instances/generate.py). The only
other bytes in memory that depend on the size of kernels are the fat binary's size in the program headers.
"""

import struct
from typing import NoReturn

from wheel_builder.base.errors import ElfError
from wheel_builder.files.binaries.elfimage import PF_R, PF_X, PT_LOAD, Image, Section, read_image
from wheel_builder.files.device.compressed import packed_bundles
from wheel_builder.files.device.fatbin import SECTION

FUNCTIONS = ".fa_bundles"
HEADER, SEGMENT_BYTES = 64, 56
SECTIONS_AT = slice(40, 48)  # of the header: where the section headers are
SIZES = slice(32, 48)  # of a program header: bytes in the file and in memory
SLOT = 16  # bytes of a function with its padding


def host_part(library: bytes) -> bytes:
    """All of ``library`` except bundles, the functions with their addresses, and section headers.

    In the headers, the size of the fat binary and the place of the section headers are set to zero. Raises
    ``FatbinError``, or ``ElfError`` when other parts of the library may depend on its device code.
    """
    image = read_image(library)
    functions, fatbin = (_last(image, name, back) for name, back in ((FUNCTIONS, 2), (SECTION, 1)))
    if image.content(functions) != functions_of(image.content(fatbin), functions.address, fatbin.address):
        _refuse(f"{FUNCTIONS} does not say where the bundles of {SECTION} are")
    header, end = image.header, fatbin.offset + fatbin.size
    if header.sections_at < end or header.segments_at != HEADER:
        _refuse(f"its headers are not before {SECTION} and section headers not behind it")
    before = bytearray(library[: functions.offset])
    before[SECTIONS_AT] = bytes(8)
    last = HEADER + SEGMENT_BYTES * max(n for n, one in enumerate(image.segments) if one.kind == PT_LOAD)
    before[last + SIZES.start : last + SIZES.stop] = bytes(16)
    between = library[functions.offset + functions.size : fatbin.offset]
    # The rest is padded with zeros and never loaded.
    return bytes(before) + between + library[end : header.sections_at].rstrip(b"\0")


def functions_of(fatbin: bytes, functions_at: int, fatbin_at: int) -> bytes:
    """The machine code that returns each bundle's address and size, in order, for addresses in memory."""
    code = b""
    for number, bundle in enumerate(packed_bundles(fatbin)):
        distance = fatbin_at + bundle.start - (functions_at + SLOT * number + 7)
        lea, mov, ret = b"\x48\x8d\x05", b"\xba", b"\xc3"
        size = struct.pack("<I", bundle.end - bundle.start)
        code += (lea + struct.pack("<i", distance) + mov + size + ret).ljust(SLOT, b"\xcc")
    return code


def _last(image: Image, name: str, back: int) -> Section:
    """The section of the ``back``-th last PT_LOAD, which must be the only one there."""
    found = image.named(name)
    if len(found) != 1 or len(image.loads) < back:
        _refuse(f"it has {len(found)} sections {name}, expected one")
    section, load = found[0], image.loads[-back]
    place = (section.offset, section.address, section.size, section.size)
    rights = PF_R | PF_X if name == FUNCTIONS else PF_R
    found_place = (load.offset, load.address, load.file_bytes, load.memory_bytes)
    if (found_place, load.flags) != (place, rights):
        _refuse(f"what is loaded at {load.address:#x} is not {name} alone")
    return section


def _refuse(why: str) -> NoReturn:
    message = f"the library has more than its fat binary that may depend on device code: {why}"
    raise ElfError(
        message, advice="build the wheel again: kernels/build/hatch_build.py puts device code last"
    )
