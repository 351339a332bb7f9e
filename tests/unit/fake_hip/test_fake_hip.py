"""The fake HIP runtime and the host library know the same HIP functions; seen without compiling."""

import re

from tests.conftest import CHECKOUT

WEAK = re.compile(r"^#pragma weak (\w+)$", re.MULTILINE)
EXPORTED = re.compile(r"^ +(hip\w+);$", re.MULTILINE)


def test_it_exports_what_the_host_library_declares_weak():
    declared = WEAK.findall((CHECKOUT / "kernels/host/hip.hpp").read_text())
    exported = EXPORTED.findall((CHECKOUT / "wheel_builder/fake_hip/exports.map").read_text())
    assert declared
    assert exported == declared


def test_on_windows_each_of_them_is_looked_up_in_the_dll_that_the_doctor_looks_for():
    host, package = CHECKOUT / "kernels/host", CHECKOUT / "kernels/python/flash_attn_rocm"
    declared = WEAK.findall((host / "hip.hpp").read_text())
    header, source = ((host / f"windows/hip_functions.{kind}").read_text() for kind in ("hpp", "cpp"))
    assert re.findall(r"^extern decltype\(&::(\w+)\) \1;$", header, re.MULTILINE) == declared
    assert re.findall(r"^decltype\(&::(\w+)\) \1 = nullptr;$", source, re.MULTILINE) == declared
    assert re.findall(r'^  find\((\w+), "\1"\);$', source, re.MULTILINE) == declared
    [dll] = re.findall(r'#define FA_HIP_RUNTIME "(.+\.dll)"', (host / "hip.hpp").read_text())
    assert f'HIP_RUNTIME = "{dll}"' in (package / "_windows.py").read_text()
