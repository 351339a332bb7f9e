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
