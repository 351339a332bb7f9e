"""Two wheels that should be equal: a message about their first difference."""

import zipfile

from tests.tools.made.wheels import (
    ARCHS,
    KERNELS,
    SBOM,
    code_object,
    good_files,
    library,
    of_arch,
    write_wheel,
)
from wheel_builder.files.device.library import LIBRARY
from wheel_builder.files.difference import first_difference, member_difference
from wheel_builder.files.wheels.wheelfile import read_wheel


def difference(tmp_path, changes):
    wheels = []
    for name, files in (("old", good_files()), ("new", {**good_files(), **changes})):
        (tmp_path / name).mkdir()
        path = write_wheel(tmp_path / name, {n: d for n, d in files.items() if d is not None})
        wheels.append(read_wheel(path, max_mib=64))
    return first_difference(*wheels)


def test_the_same(tmp_path):
    assert difference(tmp_path, {}) is None


def test_a_line_of_a_text(tmp_path):
    found = difference(tmp_path, {"flash_attn_rocm/__init__.py": b"VALUE = 43\n"})
    assert found == "flash_attn_rocm/__init__.py: line 1 was 'VALUE = 42' and is 'VALUE = 43'"


def test_a_member_that_is_missing_or_new(tmp_path):
    assert difference(tmp_path, {SBOM: None}) == f"{SBOM} is missing in the new wheel"


def test_a_new_member(tmp_path):
    assert difference(tmp_path, {"flash_attn_rocm/new.py": b""}) == (
        "flash_attn_rocm/new.py is only in the new wheel"
    )


def test_a_kernel_of_an_arch_is_named_with_its_section(tmp_path):
    codes = {arch: code_object(arch, [KERNELS[0]]) for arch in ARCHS}
    codes["gfx942"] = codes["gfx942"].replace(b"clang version 22.1.8", b"clang version 22.1.9")
    device = b"".join(of_arch(a, codes[a], code_object(a, KERNELS[1:])) for a in ARCHS)
    found = difference(tmp_path, {LIBRARY: library(sections={".hip_fatbin": device})})
    assert found.startswith(
        f"{LIBRARY}: section .hip_fatbin: {KERNELS[0]} for gfx942: section .comment: byte 19 of"
    )


def test_a_section_of_the_host_library(tmp_path):
    found = difference(tmp_path, {LIBRARY: library(soname="libflash_attn_rocm.xy")})
    assert found.startswith(f"{LIBRARY}: section .dynstr: byte ")


def test_a_time_in_the_archive(tmp_path):
    one = write_wheel(tmp_path)
    (tmp_path / "new").mkdir()
    other = tmp_path / "new" / one.name
    with zipfile.ZipFile(one) as old, zipfile.ZipFile(other, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            later = zipfile.ZipInfo(entry.filename, (1980, 1, 2, 0, 0, 0))
            later.external_attr = entry.external_attr
            new.writestr(later, old.read(entry), zipfile.ZIP_DEFLATED)
    found = first_difference(read_wheel(one, max_mib=64), read_wheel(other, max_mib=64))
    assert found == (
        "flash_attn_rocm/__init__.py: its time in the archive was (1980, 1, 1, 0, 0, 0) and is "
        "(1980, 1, 2, 0, 0, 0)"
    )


def test_bytes_that_are_neither_text_nor_elf():
    assert member_difference(b"\xff\x01", b"\xff\x02\x03") == "byte 1 of 2 differs; the new one has 3"
