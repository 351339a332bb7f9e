"""What the library of a wheel for Windows may be: the counterpart of the rules for an ELF library.

Signed or hand-edited files, code in writable memory and tables that the library has no use for are refused.
"""

from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

from wheel_builder.files import pe
from wheel_builder.files.library import WINDOWS_LIBRARY, WINDOWS_SECTION
from wheel_builder.files.pe import Pe, Section

TORCH_DLL, SYSTEM_DLL, C_RUNTIME = "torch_cpu.dll", "KERNEL32.dll", "api-ms-win-crt-"
# ASLR with 64 bits and no execution of data.
PROTECTIONS = {
    pe.HIGH_ENTROPY_VA: "HIGH_ENTROPY_VA",
    pe.DYNAMIC_BASE: "DYNAMIC_BASE",
    pe.NX_COMPAT: "NX_COMPAT",
}
# Thread-local storage is mingw's: its runtime brings two callbacks.
DIRECTORIES = frozenset(
    {"export", "import", "exception", "relocation", "debug", "tls", "import address", "load config"}
)
DEVICE_CODE = WINDOWS_SECTION
# The compiler's, and the functions that say where bundles are.
CODE = frozenset({".text", ".fa_bund"})
SECTIONS = CODE | {".rdata", ".buildid", ".data", ".pdata", ".tls", ".reloc", DEVICE_CODE}


# Its one export keeps the linker from exporting everything (kernels/hatch_build.py).
EXPORTS = ("fa_gpus",)
NAME = PurePosixPath(WINDOWS_LIBRARY).name


def dll_problems(dll: Pe, torch: Collection[str]) -> Iterator[str]:
    """What of a DLL is not allowed, in words: what was found and what was expected.

    ``torch`` are the functions that it may import from there.
    """
    wanted = pe.EXECUTABLE_IMAGE | pe.LARGE_ADDRESS_AWARE | pe.DLL
    if dll.characteristics & wanted != wanted:
        yield f"its characteristics are {dll.characteristics:#x}; expected a DLL with all of {wanted:#x}"
    for bit, name in PROTECTIONS.items():
        if not dll.dll_characteristics & bit:
            yield f"it lacks {name}; expected it, so that the loader protects the process"
    if dll.overlay:
        yield f"{dll.overlay} bytes follow its last section; expected none"
    if strange := sorted(dll.directories - DIRECTORIES):
        yield f"it has the tables {', '.join(strange)}; expected only {', '.join(sorted(DIRECTORIES))}"
    yield from _import_problems(dll, torch)
    if dll.export_name != NAME:
        yield f"it calls itself {dll.export_name!r}; expected {NAME}"
    if dll.exports != EXPORTS:
        yield f"it exports {_listed(dll.exports)}; expected {_listed(EXPORTS)}"
    for section in dll.sections:
        yield from _section_problems(section)
    if DEVICE_CODE not in {section.name for section in dll.sections}:
        yield f"it has no section {DEVICE_CODE}; expected device code in one"


def _import_problems(dll: Pe, torch: Collection[str]) -> Iterator[str]:
    for name, functions in dll.imports.items():
        if name == TORCH_DLL:
            if strange := sorted(set(functions) - set(torch)):
                yield f"it imports {_listed(strange)} from {name}; expected functions of the stable ABI"
        elif name != SYSTEM_DLL and not name.startswith(C_RUNTIME):
            yield f"it imports {name}; expected {TORCH_DLL}, {SYSTEM_DLL} and {C_RUNTIME}* only"
    if TORCH_DLL not in dll.imports:
        yield f"it does not import {TORCH_DLL}; expected the stable ABI from there"


def _section_problems(section: Section) -> Iterator[str]:
    if section.name not in SECTIONS:
        yield f"it has a section {section.name}; expected one of {', '.join(sorted(SECTIONS))}"
    if section.flags & pe.WRITE and section.flags & pe.EXECUTE:
        yield f"section {section.name} is writable and executable; expected one at most"
    if section.flags & pe.EXECUTE and section.name not in CODE:
        yield f"section {section.name} is executable; expected only {' and '.join(sorted(CODE))} to be"
    if section.name == DEVICE_CODE and section.flags & (pe.WRITE | pe.EXECUTE):
        yield f"section {section.name} has flags {section.flags:#x}; expected device code to be only read"


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "nothing"
