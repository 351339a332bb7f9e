"""Code objects from files. tests/engine/emulator has a real one."""

import lzma

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.wheels import library
from wheel_builder.base.errors import EmulatorError
from wheel_builder.files.binaries.elf import read_elf
from wheel_builder.files.device.fatbin import kernels, machine_arch
from wheel_builder.machine_code.emulator.sources import code_object

INSTANCES = CHECKOUT / "tests/data/fatbin/two_instances.xz"


KERNEL = "fa_fwd_fp16_d64"


def test_what_holds_no_device_code_is_refused_in_words(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("x")
    with pytest.raises(EmulatorError) as caught:
        code_object(file, KERNEL, "gfx942")
    assert str(caught.value) == (
        "notes.txt is neither a wheel, nor an offload bundle, nor a code object\n"
        "  next: name a .whl, a library that kernels were linked into, a .hipfb or a .hsaco file"
    )


@pytest.fixture
def library_file(tmp_path):
    def write(sections):
        file = tmp_path / "libhost.so"
        file.write_bytes(library(sections=sections))
        return file

    return write


def test_a_host_library_without_device_code_is_told_for_what_it_is(library_file):
    with pytest.raises(EmulatorError) as caught:
        code_object(library_file({}), KERNEL, "gfx942")
    assert str(caught.value) == (
        "libhost.so is an ELF file for the host (x86_64) without device code: it has no section .hip_fatbin\n"
        "  next: name a .whl, a library that kernels were linked into, a .hipfb or a .hsaco file"
    )


def test_a_host_library_gives_the_code_objects_in_it(library_file):
    file = library_file({".hip_fatbin": lzma.decompress(INSTANCES.read_bytes())})
    data = code_object(file, KERNEL, "gfx942")
    assert machine_arch(read_elf(data)) == "gfx942"
    assert KERNEL in kernels(read_elf(data))


def test_a_host_library_with_other_kernels_says_which(library_file):
    file = library_file({".hip_fatbin": lzma.decompress(INSTANCES.read_bytes())})
    with pytest.raises(EmulatorError) as caught:
        code_object(file, "fa_fwd_fp16_d96", "gfx942")
    assert str(caught.value).startswith(
        "libhost.so is an ELF file for the host (x86_64) with device code in .hip_fatbin: "
        "no kernel fa_fwd_fp16_d96 for gfx942; for gfx942 it has fa_fwd_bf16_d64, fa_fwd_fp16_d64"
    )
