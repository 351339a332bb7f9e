"""The compiled library in a wheel, and the device code in it."""

from wheel_builder.base.errors import ElfError, FatbinError
from wheel_builder.files.elf import section_bytes
from wheel_builder.files.fatbin import SECTION, CodeObject, read_fatbin
from wheel_builder.files.wheelfile import WheelFile

LIBRARY = "flash_attn_rocm/_C/libflash_attn_rocm.so"


def library_of(wheel: WheelFile) -> bytes:
    """Our library in a wheel; raises ``ElfError`` when there is none."""
    if LIBRARY not in wheel.files:
        message = f"there is no {LIBRARY}"
        raise ElfError(message, advice="the wheel's build hook did not run: see the wheel stage's log")
    return wheel.files[LIBRARY]


def device_code(wheel: WheelFile) -> tuple[CodeObject, ...]:
    """The code objects in a wheel's library, one at least; raises ``ElfError`` or ``FatbinError``."""
    if not (found := code_objects(library_of(wheel))):
        message = f"{LIBRARY} has no section {SECTION} with device code"
        raise FatbinError(message, advice="device code was not linked in: see the wheel stage's log")
    return found


def code_objects(library: bytes) -> tuple[CodeObject, ...]:
    """The code objects in any ELF file; none when it has no section for them."""
    section = section_bytes(library, SECTION)
    return () if section is None else read_fatbin(section)
