"""Whether a 64-bit ELF file is loaded as its tables say, and asks a loader for nothing unusual.

glibc's loader and the HIP runtime read program headers and the dynamic table. Disassemblers and the other
checks read section headers. Both must agree on every byte. Anything unknown is refused.
"""

from wheel_builder.base.errors import ElfError
from wheel_builder.files.binaries.elfdynamic import read_dynamic
from wheel_builder.files.binaries.elfimage import EM_AMDGPU, EM_X86_64, read_image
from wheel_builder.files.binaries.elfrelocations import relocation_problems
from wheel_builder.files.binaries.elfsections import section_problems
from wheel_builder.files.binaries.elfsegments import segment_problems
from wheel_builder.files.binaries.elfsymbols import symbol_problems
from wheel_builder.files.binaries.elftables import table_problems

__all__ = ["EM_AMDGPU", "EM_X86_64", "elf_layout_problems"]


def elf_layout_problems(data: bytes, machine: int) -> tuple[str, ...]:
    """Reasons to refuse ``data`` as a shared object for ``machine`` (an EM_ number)."""
    try:
        image = read_image(data)
        if found := segment_problems(image, machine) or section_problems(image):
            return found
        if (dynamic := read_dynamic(image)) is None:
            return ("it has no dynamic table",)
        return (
            *table_problems(image, dynamic),
            *symbol_problems(image, dynamic),
            *relocation_problems(image, dynamic),
        )
    except ElfError as error:
        return (error.message,)
