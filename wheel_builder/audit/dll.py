"""Rules for the library in a wheel for Windows: the counterpart of the rules for ELF libraries.

Signed or hand-edited files, code in writable memory and unneeded tables are refused.
"""

from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

from wheel_builder.audit.dll_memory import memory_problems
from wheel_builder.base.errors import PeError
from wheel_builder.files.binaries import pe
from wheel_builder.files.binaries.pe import Pe, Section
from wheel_builder.files.device.library import WINDOWS_LIBRARY, WINDOWS_SECTION

TORCH_DLL = "torch_cpu.dll"
# Imports from Windows by the library and the C++ runtime in it. After a change of the compiler, check the
# need for each new function.
SYSTEM = {
    "KERNEL32.dll": (
        "AcquireSRWLockExclusive DeleteCriticalSection EnterCriticalSection GetLastError "
        "GetModuleHandleA GetProcAddress InitializeCriticalSection LeaveCriticalSection RaiseException "
        "ReleaseSRWLockExclusive RtlCaptureContext RtlLookupFunctionEntry RtlRestoreContext RtlUnwindEx "
        "RtlVirtualUnwind Sleep SleepConditionVariableSRW TlsGetValue VirtualProtect VirtualQuery "
        "WakeAllConditionVariable"
    ),
    "api-ms-win-crt-convert-l1-1-0.dll": "_strtod_l mbrtowc mbsrtowcs strtof wcrtomb wcrtomb_s",
    "api-ms-win-crt-heap-l1-1-0.dll": "_aligned_free _aligned_malloc free malloc realloc",
    "api-ms-win-crt-locale-l1-1-0.dll": (
        "___mb_cur_max_func __pctype_func _configthreadlocale _create_locale _free_locale localeconv "
        "setlocale"
    ),
    "api-ms-win-crt-multibyte-l1-1-0.dll": "_mbtowc_l",
    "api-ms-win-crt-private-l1-1-0.dll": "memchr",
    "api-ms-win-crt-runtime-l1-1-0.dll": (
        "__sys_nerr _errno _execute_onexit_table _exit _initialize_onexit_table _initterm _initterm_e "
        "_register_onexit_function abort strerror_s"
    ),
    "api-ms-win-crt-stdio-l1-1-0.dll": (
        "__acrt_iob_func __stdio_common_vfprintf __stdio_common_vsprintf __stdio_common_vsscanf fflush "
        "fputc fwrite"
    ),
    "api-ms-win-crt-string-l1-1-0.dll": "_strdup mbrlen strcmp strncpy tolower toupper wcslen",
    "api-ms-win-crt-time-l1-1-0.dll": "_strftime_l",
}
# 64-bit ASLR, and data is not executable.
PROTECTIONS = {
    pe.HIGH_ENTROPY_VA: "HIGH_ENTROPY_VA",
    pe.DYNAMIC_BASE: "DYNAMIC_BASE",
    pe.NX_COMPAT: "NX_COMPAT",
}
# The tables, each with its section.  Thread-local storage is mingw's: its runtime brings two callbacks.
DIRECTORIES = {
    "export": ".rdata",
    "import": ".rdata",
    "import address": ".rdata",
    "exception": ".pdata",
    "relocation": ".reloc",
    "debug": ".buildid",
    "tls": ".rdata",
}
DEVICE_CODE = WINDOWS_SECTION
# The compiler's code, and the functions with the bundles' addresses.
CODE = frozenset({".text", ".fa_bund"})
# Each section's flags. Others, such as sharing with all processes, are refused.
_RUN, _READ, _CHANGE = pe.CODE | pe.EXECUTE | pe.READ, pe.DATA | pe.READ, pe.DATA | pe.READ | pe.WRITE
SECTIONS = {
    **dict.fromkeys(CODE, _RUN), **dict.fromkeys((".rdata", ".buildid", ".pdata", DEVICE_CODE), _READ),
    **dict.fromkeys((".data", ".tls"), _CHANGE), ".reloc": _READ | pe.DISCARDABLE,
}  # fmt: skip
FLAGS = pe.CODE | pe.DATA | pe.DISCARDABLE | pe.EXECUTE | pe.READ | pe.WRITE
CHARACTERISTICS = pe.EXECUTABLE_IMAGE | pe.LARGE_ADDRESS_AWARE | pe.DLL

# With this one export the linker exports nothing else (kernels/build/hatch_build.py).
EXPORTS = ("fa_gpus",)
NAME = PurePosixPath(WINDOWS_LIBRARY).name


def dll_problems(dll: Pe, torch: Collection[str]) -> Iterator[str]:
    """Violations in a DLL, in words: found and expected.

    ``torch`` are the functions that it may import from there.
    """
    yield from _header_problems(dll)
    yield from _import_problems(dll, torch)
    if dll.export_name != NAME:
        yield f"it calls itself {dll.export_name!r}; expected {NAME}"
    if dll.exports != EXPORTS:
        yield f"it exports {_listed(dll.exports)}; expected {_listed(EXPORTS)}"
    for section in dll.sections:
        yield from _section_problems(section)
    if DEVICE_CODE not in {section.name for section in dll.sections}:
        yield f"it has no section {DEVICE_CODE}; expected device code in one"
    try:
        yield from memory_problems(dll)
    except PeError as error:
        yield error.message


def _header_problems(dll: Pe) -> Iterator[str]:
    if dll.characteristics & CHARACTERISTICS != CHARACTERISTICS:
        expected = f"a DLL with all of {CHARACTERISTICS:#x}"
        yield f"its characteristics are {dll.characteristics:#x}; expected {expected}"
    if strange_bits := dll.characteristics & ~CHARACTERISTICS:
        yield f"it has the characteristics {strange_bits:#x}, too; expected {CHARACTERISTICS:#x}"
    for bit, name in PROTECTIONS.items():
        if not dll.dll_characteristics & bit:
            yield f"it lacks {name}; expected it, so that the loader protects the process"
    if strange_bits := dll.dll_characteristics & ~sum(PROTECTIONS):
        yield f"its DLL has the characteristics {strange_bits:#x}, too; expected {sum(PROTECTIONS):#x}"
    if dll.overlay:
        yield f"{dll.overlay} bytes follow its last section; expected none"
    if strange := sorted(dll.directories.keys() - DIRECTORIES):
        yield f"it has the tables {', '.join(strange)}; expected only {', '.join(sorted(DIRECTORIES))}"
    for table, section in dll.directories.items():
        if table in DIRECTORIES and section != DIRECTORIES[table]:
            yield f"the {table} table is in section {section}; expected it in {DIRECTORIES[table]}"


def _import_problems(dll: Pe, torch: Collection[str]) -> Iterator[str]:
    for name, functions in dll.imports.items():
        if name != TORCH_DLL and name not in SYSTEM:
            yield f"it imports {name}; expected one of {', '.join((TORCH_DLL, *SYSTEM))}"
            continue
        known = torch if name == TORCH_DLL else SYSTEM[name].split()
        if strange := sorted(set(functions) - set(known)):
            what = "functions of the stable ABI" if name == TORCH_DLL else "those in audit/dll.py"
            yield f"it imports {_listed(strange)} from {name}; expected {what}"
    if TORCH_DLL not in dll.imports:
        yield f"it does not import {TORCH_DLL}; expected the stable ABI from there"


def _section_problems(section: Section) -> Iterator[str]:
    if section.name not in SECTIONS:
        yield f"it has a section {section.name}; expected one of {', '.join(sorted(SECTIONS))}"
    elif section.flags != (expected := SECTIONS[section.name]):
        told = list(_flag_problems(section))
        yield from told or [f"section {section.name} has flags {section.flags:#x}; expected {expected:#x}"]


def _flag_problems(section: Section) -> Iterator[str]:
    """The worst of the wrong flags."""
    if strange := section.flags & ~FLAGS:
        yield f"section {section.name} has the flags {strange:#x}; expected none besides {FLAGS:#x}"
    if section.flags & pe.WRITE and section.flags & pe.EXECUTE:
        yield f"section {section.name} is writable and executable; expected one at most"
    if section.flags & pe.EXECUTE and section.name not in CODE:
        yield f"section {section.name} is executable; expected only {' and '.join(sorted(CODE))} to be"
    if section.name == DEVICE_CODE and section.flags & (pe.WRITE | pe.EXECUTE):
        yield f"section {section.name} has flags {section.flags:#x}; expected device code to be only read"


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "nothing"
