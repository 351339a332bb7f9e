"""The rules for the library of a wheel for Windows."""

from dataclasses import replace

import pytest

from tests.tools.made.pes import DATA, EXECUTE, EXPORTS, IMPORTS, OPTIONAL_AT, READ, WRITE, Dll, changed
from wheel_builder.audit.dll import dll_problems
from wheel_builder.files.binaries.pe import read_pe

TORCH = IMPORTS["torch_cpu.dll"]
FAT = (".hip_fat", b"code", DATA | READ)


def problems(dll, data=None):
    return list(dll_problems(read_pe(data or dll.data), TORCH))


def test_a_good_dll_has_no_problem():
    assert problems(Dll()) == []


CHANGES = {
    "no DLL": ({"characteristics": 0x22}, "its characteristics are 0x22; expected a DLL with all of 0x2022"),
    "no ASLR": ({"dll_characteristics": 0x120}, "it lacks DYNAMIC_BASE"),
    "32 bits of ASLR": ({"dll_characteristics": 0x140}, "it lacks HIGH_ENTROPY_VA"),
    "data that runs": ({"dll_characteristics": 0x060}, "it lacks NX_COMPAT"),
    "a container of apps": (
        {"dll_characteristics": 0x1160},
        "its DLL has the characteristics 0x1000, too; expected 0x160",
    ),
    "an overlay": ({"overlay": b"more"}, "4 bytes follow its last section; expected none"),
    "HIP at link time": (
        {"imports": {**IMPORTS, "amdhip64_7.dll": ("hipInit",)}},
        "it imports amdhip64_7.dll; expected one of torch_cpu.dll, KERNEL32.dll",
    ),
    "another C runtime": (
        {"imports": {**IMPORTS, "msvcrt.dll": ("free",)}},
        "it imports msvcrt.dll; expected one of torch_cpu.dll",
    ),
    "a name that only begins like the C runtime's": (
        {"imports": {**IMPORTS, "api-ms-win-crt-evil-l1-1-0.dll": ("free",)}},
        "it imports api-ms-win-crt-evil-l1-1-0.dll; expected one of",
    ),
    "a function of Windows that it has no use for": (
        {"imports": {**IMPORTS, "KERNEL32.dll": ("GetProcAddress", "WriteProcessMemory")}},
        "it imports WriteProcessMemory from KERNEL32.dll; expected those in audit/dll.py",
    ),
    "a name that only looks like torch's": (
        {"imports": {**IMPORTS, "Torch_CPU.dll.": ("x",)}},
        "it imports Torch_CPU.dll.; expected",
    ),
    "torch's C++": (
        {"imports": {**IMPORTS, "torch_cpu.dll": ("?sizes@Tensor@at@@",)}},
        "it imports ?sizes@Tensor@at@@ from torch_cpu.dll; expected functions of the stable ABI",
    ),
    "no torch": (
        {"imports": {"KERNEL32.dll": ("GetProcAddress",)}},
        "it does not import torch_cpu.dll; expected the stable",
    ),
    "another name": ({"name": "other.dll"}, "it calls itself 'other.dll'; expected flash_attn_rocm.dll"),
    "one export more": (
        {"exports": (*EXPORTS, "helper")},
        "it exports fa_gpus, helper; expected fa_gpus",
    ),
    "no device code": ({"extra": ()}, "it has no section .hip_fat; expected device code in one"),
    "a foreign section": (
        {"extra": (FAT, (".packed", b"x", DATA | READ))},
        "it has a section .packed; expected",
    ),
    "writable code": (
        {"extra": (FAT, (".data", b"x", DATA | READ | WRITE | EXECUTE))},
        "section .data is writable and executable",
    ),
    "data that all processes share": (
        {"extra": (FAT, (".data", b"x", DATA | READ | WRITE | 0x10000000))},
        "section .data has the flags 0x10000000; expected none besides",
    ),
    "more code": (
        {"extra": (FAT, (".data", b"x", READ | EXECUTE))},
        "section .data is executable; expected only",
    ),
    "device code that is written": (
        {"extra": ((".hip_fat", b"x", DATA | READ | WRITE),)},
        "expected device code to be only read",
    ),
}


@pytest.mark.parametrize(("change", "words"), CHANGES.values(), ids=CHANGES.keys())
def test_each_rule_refuses_what_breaks_it(change, words):
    assert any(words in problem for problem in problems(replace(Dll(), **change)))


@pytest.mark.parametrize(
    ("index", "name"),
    [(2, "resource"), (4, "certificate"), (11, "bound import"), (13, "delay import"), (14, "clr")],
)
def test_tables_that_the_library_has_no_use_for_are_refused(index, name):
    """A signature would be unchecked bytes, and delayed imports would escape every rule."""
    data = changed(Dll().data, OPTIONAL_AT + 112 + 8 * index, "<I", 0x2000)
    [problem] = problems(None, data)
    assert problem.startswith(f"it has the tables {name}; expected only ")


def test_a_table_in_another_section_is_refused():
    """Windows would look there for exception handlers."""
    data = changed(changed(Dll().data, OPTIONAL_AT + 136, "<I", 0x2000), OPTIONAL_AT + 140, "<I", 12)
    assert problems(None, data)[0] == "the exception table is in section .rdata; expected it in .pdata"
