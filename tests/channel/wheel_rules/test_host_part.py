"""The host part of the library, on libraries from the product's linker and scripts."""

import random
import struct
import subprocess
import sys

import pytest

from kernels.build import hatch_build
from tests.engine.host.interface import generate
from tests.tools.made.elves import Edit
from tests.tools.made.wheels import code_object
from wheel_builder.base.errors import ElfError, FatbinError
from wheel_builder.files.binaries.elf import section_bytes
from wheel_builder.files.binaries.elflayout import EM_X86_64, elf_layout_problems
from wheel_builder.files.device.fatbin import SECTION
from wheel_builder.files.device.hostpart import FUNCTIONS, host_part
from wheel_builder.files.device.library import code_objects, unused_bundles
from wheel_builder.files.device.packing import packed
from wheel_builder.verify.seen import code_part

PHDR_BYTES, HEADER_BYTES = 56, 64
ARCHS = ("gfx908", "gfx1030")
HOST = """
struct bytes { const unsigned char *data; unsigned long size; };
struct bytes fa_bundle_gfx908(void) __attribute__((visibility("hidden")));
struct bytes fa_bundle_gfx1030(void) __attribute__((visibility("hidden")));
static int kept = VALUE, unset[600];
unsigned long sum(int first) {
  struct bytes found = first ? fa_bundle_gfx908() : fa_bundle_gfx1030();
  return found.size + found.data[8] + (unsigned long)(kept++) + (unsigned long)(unset[first]++);
}
"""


def code_of(library, arch):
    return code_part(section_bytes(library, SECTION), arch)


@pytest.fixture(scope="module")
def link(tmp_path_factory):
    """Links a library with a bundle per arch: of its code object here, and of ``second``, or another one."""

    def linked(codes, second=None, *, layout=hatch_build.LAYOUT, value=5):
        folder = tmp_path_factory.mktemp("linked")
        other = second or {arch: code_object(arch, ["fa_fwd_bf16_d64"]) for arch in codes}
        for arch, code in codes.items():
            (folder / f"{arch}.hipfb").write_bytes(packed(arch, {"a": code, "b": other[arch]}))
        (folder / "fatbin.S").write_text(generate().fatbin_s(codes))
        (folder / "host.c").write_text(HOST)
        (folder / "layout.ld").write_text(layout)
        zig = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.28", "-O2", "-g0"]
        zig += ["-shared", "-fPIC", "-Wl,--build-id=none", "-Wl,-s", f"-DVALUE={value}"]
        zig += ["host.c", "fatbin.S", "-o", "library.so", "-Wl,-T,layout.ld"]
        subprocess.run(zig, cwd=folder, check=True, capture_output=True)
        return (folder / "library.so").read_bytes()

    return linked


def codes_of(**changes):
    return {arch: code_object(arch, ["fa_fwd_fp16_d64"], **changes.get(arch, {})) for arch in ARCHS}


@pytest.fixture(scope="module")
def library(link):
    return link(codes_of())


def larger(data):
    """A code object with more unused data, which does not shrink."""
    return data + random.Random(1).randbytes(3 * 4096 + 24)


def test_the_linker_puts_device_code_behind_everything_else(library):
    assert elf_layout_problems(library, EM_X86_64) == ()
    assert unused_bundles(library) == ()
    assert [code.arch for code in code_objects(library)] == [arch for arch in ARCHS for _ in range(2)]
    loaded = [s["address"] for s in map(Edit(library).of_section, (".text", ".bss", FUNCTIONS, SECTION))]
    assert loaded == sorted(loaded)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_larger_kernel_changes_its_own_arch_alone(link, library, arch):
    """Once bundle sizes were constants in the code, and everything after the fat binary moved."""
    codes = codes_of()
    other = link({**codes, arch: larger(codes[arch])})
    assert len(other) > len(library)
    assert host_part(other) == host_part(library)
    same = {each: code_of(other, each) == code_of(library, each) for each in ARCHS}
    assert same == {each: each != arch for each in ARCHS}


def test_an_arch_more_changes_no_other_ones_code(link, library):
    other = link({"gfx942": code_object("gfx942", ["fa_fwd_fp16_d64"]), **codes_of()})
    assert {code_of(other, arch) == code_of(library, arch) for arch in ARCHS} == {True}


def test_kernels_that_change_places_change_the_code(link):
    codes = codes_of()
    here = link({**codes, "gfx908": code_object("gfx908", ["fa_fwd_bf16_d64"])})
    assert code_of(here, "gfx908") != code_of(link(codes), "gfx908")
    assert code_of(here, "gfx1030") == code_of(link(codes), "gfx1030")


def test_code_objects_in_another_order_are_another_code(link):
    one, other = codes_of(), {arch: code_object(arch, ["fa_fwd_bf16_d64"]) for arch in ARCHS}
    first = link(one, other)
    second = link({**one, "gfx1030": other["gfx1030"]}, {**other, "gfx1030": one["gfx1030"]})
    assert code_of(first, "gfx908") == code_of(second, "gfx908")
    assert code_of(first, "gfx1030") != code_of(second, "gfx1030")


@pytest.mark.parametrize("name", [".text", ".dynstr", ".data", ".comment", ".shstrtab", ".eh_frame"])
def test_every_other_byte_has_a_part_in_it(library, name):
    edit, place = Edit(library), Edit(library).of_section(name)
    changed = edit.content(name, place["size"] // 2, b"\x5a").data
    assert changed != library
    assert host_part(changed) != host_part(library)


def test_all_bytes_but_few_have(library):
    """The host part has each byte before the fat binary.

    Exceptions: the sizes in its program header and the offset of the section headers.
    """
    whole = host_part(library)
    silent = {
        at for at in range(Edit(library).of_section(FUNCTIONS)["offset"]) if ignores(library, at, whole)
    }
    loads = [n for n in range(20) if library[HEADER_BYTES + PHDR_BYTES * n :][:4] == struct.pack("<I", 1)]
    sizes = HEADER_BYTES + PHDR_BYTES * loads[-1] + 32
    assert silent <= {*range(40, 48), *range(sizes, sizes + 16)}


def ignores(library, at, whole):
    changed = bytearray(library)
    changed[at] ^= 0x40
    try:
        return host_part(bytes(changed)) == whole
    except (ElfError, FatbinError):
        return False


def test_another_constant_is_another_library(link, library):
    assert host_part(link(codes_of(), value=6)) != host_part(library)


def wrong_function(edit):
    return edit.content(FUNCTIONS, 0, b"\x90")


def another_address(edit):
    return edit.content(FUNCTIONS, 3, struct.pack("<i", 4096))


def another_size(edit):
    return edit.content(FUNCTIONS, 8, struct.pack("<I", 1))


def swapped(edit):
    place = edit.of_section(FUNCTIONS)
    code = edit.data[place["offset"] :][: place["size"]]
    return edit.content(FUNCTIONS, 0, code[16:32] + code[:16])


@pytest.mark.parametrize("change", [wrong_function, another_address, another_size, swapped])
def test_functions_that_do_not_return_the_bundles_are_refused(library, change):
    with pytest.raises(ElfError, match=r"\.fa_bundles does not say where the bundles of \.hip_fatbin are"):
        host_part(change(Edit(library)).data)


def test_section_headers_in_front_are_refused(library):
    """They would be absent from the loaded image."""
    text = Edit(library).of_section(".text")["offset"]
    moved = bytearray(library)
    table = struct.unpack_from("<Q", library, 40)[0]
    moved[text : text + len(library) - table] = library[table:]
    moved[40:48] = struct.pack("<Q", text)
    with pytest.raises(ElfError, match="section headers not behind it"):
        host_part(bytes(moved))


@pytest.mark.parametrize("layout", ["", hatch_build.LAYOUT.replace(".bss", ".text")], ids=["none", "earlier"])
def test_a_fat_binary_amid_the_library_is_refused(link, layout):
    """As in earlier wheels, where everything after it had its own address."""
    with pytest.raises(ElfError, match="more than its fat binary that may depend on device code"):
        host_part(link(codes_of(), layout=layout))
