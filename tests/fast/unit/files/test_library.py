"""The library in a wheel and its device code, or a message that explains why it is missing."""

import pytest

from tests.tools.made.pes import DATA, READ, Dll
from tests.tools.made.wheels import ARCHS, KERNELS, fatbin, good_files, library, write_wheel
from wheel_builder.base.errors import ElfError, FatbinError
from wheel_builder.files.device.library import (
    LIBRARY,
    WINDOWS_LIBRARY,
    code_objects,
    device_code,
    for_windows,
    library_of,
)
from wheel_builder.files.wheels.wheelfile import read_wheel


def wheel(folder, **changes):
    files = {name: data for name, data in {**good_files(), **changes}.items() if data is not None}
    return read_wheel(write_wheel(folder, files), max_mib=64)


def test_the_device_code_of_a_wheel_is_that_of_its_library(tmp_path):
    found = device_code(good := wheel(tmp_path))
    assert [code.arch for code in found] == [arch for arch in ARCHS for _ in KERNELS]
    assert found == code_objects(library_of(good))


def test_the_device_code_of_a_wheel_for_windows_is_that_of_its_dll(tmp_path):
    dll = Dll(extra=((".hip_fat", fatbin(), DATA | READ),)).data
    windows = wheel(tmp_path, **{LIBRARY: None, WINDOWS_LIBRARY: dll})
    assert for_windows(windows)
    assert device_code(windows) == device_code(wheel(tmp_path))


def test_a_dll_beside_the_library_for_linux_is_not_read_in_its_place(tmp_path):
    both = wheel(tmp_path, **{WINDOWS_LIBRARY: b"no DLL"})
    assert not for_windows(both)
    assert [code.arch for code in device_code(both)] == [arch for arch in ARCHS for _ in KERNELS]


def test_a_library_that_is_not_there(tmp_path):
    with pytest.raises(ElfError, match=f"there is no {LIBRARY}\n  next: the wheel's build hook did not run"):
        device_code(wheel(tmp_path, **{LIBRARY: None}))


@pytest.mark.parametrize("sections", [{}, {".hip_fatbin": b""}, {".hip_fatbin": bytes(4096)}])
def test_a_library_without_device_code(tmp_path, sections):
    """An empty answer would pass every check."""
    data = library(sections=sections)
    assert code_objects(data) == ()
    with pytest.raises(
        FatbinError, match=r"has no section \.hip_fatbin with device code\n  next: device code was"
    ):
        device_code(wheel(tmp_path, **{LIBRARY: data}))


def test_any_library_may_be_read():
    assert code_objects(library(sections={".hip_fatbin": fatbin(["gfx908"])}))[0].gfx == "gfx908"
    with pytest.raises(ElfError):
        code_objects(b"text")
