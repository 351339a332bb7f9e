"""Every instance compiles for each arch alone and for all together; the registry names what there is."""

import hashlib
import json
import re

import pytest

from wheel_builder.elf import read_elf
from wheel_builder.fatbin import kernels, machine_arch, read_fatbin

pytestmark = pytest.mark.device

ARCHS = ["gfx908", "gfx942", "gfx1030", "gfx1100"]
HEAD_DIMS = [32, 64, 96, 128, 192, 256]
DTYPES = ["fp16", "bf16"]
FORWARD = [f"fa_fwd_{dtype}_d{head_dim}" for dtype in DTYPES for head_dim in HEAD_DIMS]
DECODE = [f"fa_decode_{dtype}_d{head_dim}" for dtype in DTYPES for head_dim in HEAD_DIMS]
COMBINE = [f"fa_combine_{dtype}" for dtype in DTYPES]
NAMES = FORWARD + DECODE + COMBINE
ROW = re.compile(r'^FA_INSTANCE\((\w+), (\w+), (\d+), (\w+), "([\w,]+)"\)$', re.MULTILINE)


def registry(folder):
    """{(kernel, arch)} that a registry names."""
    rows = ROW.findall((folder / "registry.inc").read_text())
    for op, dtype, head_dim, name, _ in rows:
        assert name == f"fa_{op}_{dtype}" + (f"_d{head_dim}" if head_dim != "0" else "")
    return {(name, arch) for *_, name, archs in rows for arch in archs.split(",")}


def held(folder):
    """{(kernel, arch)} that the code objects in a folder's bundles hold, as their ELF headers say."""
    found = set()
    for path in folder.glob("*.hipfb"):
        for code_object in read_fatbin(path.read_bytes()):
            elf = read_elf(code_object.data)
            assert machine_arch(elf) == code_object.arch
            found |= {(kernel, code_object.arch) for kernel in kernels(elf)}
    return found


@pytest.mark.parametrize("arch", ARCHS)
def test_each_arch_alone_has_exactly_the_tables_instances(device, arch):
    assert sorted(p.stem for p in (device / "device" / arch).glob("*.hsaco")) == sorted(NAMES)
    for path in (device / "device" / arch).glob("*.hsaco"):
        elf = read_elf(path.read_bytes())
        assert machine_arch(elf) == arch
        assert kernels(elf) == {path.stem}


@pytest.mark.parametrize("arch", ARCHS)
def test_resources_are_reported_for_every_kernel(device, arch):
    """What they may be is in the golden file: test_static_checks.py."""
    report = json.loads((device / "device" / arch / "resources.json").read_text())
    assert report["arch"] == arch
    assert report["cpu_seconds"] > 0
    assert set(report["kernels"]) == set(NAMES)
    for name, taken in report["kernels"].items():
        assert taken["vgpr_spills"] == taken["sgpr_spills"] == taken["scratch_bytes"] == 0
        # FwdParams or CombineParams, and no hidden argument.
        assert taken["kernarg_bytes"] == (104 if name in COMBINE else 320)
        assert taken["wavefront_size"] == (64 if arch.startswith("gfx9") else 32)
        # Two loops, of which a launch takes one; the instruction cache has 32 KiB.
        assert 0 < taken["code_bytes"] < 64 * 1024


def test_the_registry_names_exactly_the_kernels_that_the_code_objects_hold(device):
    folder = device / "bundles"
    assert registry(folder) == held(folder) == {(name, arch) for name in NAMES for arch in ARCHS}
    assembler = (folder / "fatbin.S").read_text()
    assert re.findall(r'\.incbin "(\w+)\.hipfb"', assembler) == NAMES
    assert sorted(p.stem for p in folder.glob("*.hipfb")) == sorted(NAMES)


def compile_directly(toolchain, name, archs):
    """One translation unit through the compiler's own driver, for all ``archs`` in one call."""
    _, op, dtype, *head_dim = name.split("_")
    header = "combine.hpp" if op == "combine" else "forward.hpp"
    macro = {"fwd": "FA_FORWARD", "decode": "FA_DECODE", "combine": "FA_COMBINE"}[op]
    arguments = ", ".join([name, f"fa::DType::{dtype}", *(text.removeprefix("d") for text in head_dim)])
    text = f'#include "fa/kernel/{header}"\n{macro}({arguments})\n'
    (toolchain.scratch / f"{name}.hip").write_text(text)
    flags = ["-x hip -std=c++17 -O3 -nogpuinc -nogpulib --offload-device-only -I/src/kernels/include"]
    flags += [f"--offload-arch={arch}" for arch in archs]
    compiler = '"${FA_LLVM:-/usr/lib/llvm-22/bin}"/clang++'
    toolchain("sh", "-c", f"{compiler} {' '.join(flags)} /out/{name}.hip -o /out/all.hipfb")


@pytest.mark.parametrize("name", NAMES)
def test_all_archs_compile_in_one_device_pass(toolchain, name):
    compile_directly(toolchain, name, ARCHS)
    assert held(toolchain.scratch) == {(name, arch) for arch in ARCHS}


def test_an_instance_for_one_arch_leaves_the_others_as_they_are(toolchain):
    row = '[[kernels]]\nop = "fwd"\ndtypes = ["{}"]\nhead_dims = [64]\narchs = [{}]\n'
    everywhere = row.format("bf16", ", ".join(f'"{arch}"' for arch in ARCHS))
    (toolchain.scratch / "table.toml").write_text(everywhere + row.format("fp16", '"gfx1100"'))
    table = ("--table", "/out/table.toml")
    for arch in ARCHS:
        toolchain.build(arch, *table)
    folder = toolchain.bundle(*table)
    expected = {("fa_fwd_bf16_d64", arch) for arch in ARCHS} | {("fa_fwd_fp16_d64", "gfx1100")}
    assert registry(folder) == held(folder) == expected


def test_an_arch_without_a_row_is_said_to_have_none(toolchain):
    text = '[[kernels]]\nop = "fwd"\ndtypes = ["fp16"]\nhead_dims = [64]\narchs = ["gfx1100"]\n'
    (toolchain.scratch / "table.toml").write_text(text)
    words = toolchain.fails(toolchain.build, "gfx942", "--table", "/out/table.toml")
    assert "table.toml has no instance for gfx942: nothing to compile" in words


def test_a_bundle_for_some_archs_names_only_them(toolchain):
    toolchain.build("gfx1030")
    folder = toolchain.bundle()
    assert registry(folder) == held(folder) == {(name, "gfx1030") for name in NAMES}


def test_an_unknown_arch_is_refused_in_words(toolchain):
    words = toolchain.fails(toolchain.build, "gfx99999")
    assert "there are no kernels for 'gfx99999'" in words
    assert "known: gfx908, gfx942, gfx1030, gfx1100" in words


def test_an_arch_that_only_the_compiler_knows_is_refused_in_words(toolchain):
    words = toolchain.fails(compile_directly, toolchain, "fa_fwd_fp16_d64", ["gfx1201"])
    assert "flash-attn-rocm has no kernels for this arch; arch/gfx.hpp, arch/traits.hpp" in words


def test_a_kernel_that_spills_is_refused(changed):
    wide = "return {8, head_dim > 64 ? {}, 6, steps"
    toolchain = changed("kernel/config.hpp", wide.replace("{}", "32 : 64"), wide.replace("{}", "64 : 64"))
    words = toolchain.fails(toolchain.build, "gfx1100")
    assert "fa_fwd_fp16_d128 for gfx1100 may not spill, but has vgpr_spills = " in words
    assert "lower its tile or waves_per_simd in fa/kernel/config.hpp" in words
    assert not list((toolchain.scratch / "device/gfx1100").glob("*.hsaco"))


def test_a_kernel_that_misses_its_occupancy_is_refused(changed):
    toolchain = changed("kernel/config.hpp", "? 32 : 64, 2, steps", "? 32 : 64, 4, steps")
    words = toolchain.fails(toolchain.build, "gfx942")
    assert "fa_fwd_fp16_d128 for gfx942 does not compile:" in words
    assert "desired occupancy was 4" in words


def test_a_compile_error_names_instance_and_arch_and_shows_the_compilers_words(changed):
    toolchain = changed("kernel/forward.hpp", "softmax.join_sums(lane);", "softmax.join_sumz(lane);")
    words = toolchain.fails(toolchain.build, "gfx1100")
    for name in FORWARD + DECODE:
        assert f"{name} for gfx1100 does not compile:" in words
    assert "no member named 'join_sumz'" in words


@pytest.mark.parametrize("arch", ARCHS)
def test_the_same_sources_give_the_same_bytes(device, toolchain, arch):
    again = toolchain.build(arch, "--jobs", "1", out="elsewhere/and/deeper")
    for name in NAMES:
        first, second = (folder / f"{name}.hsaco" for folder in (device / "device" / arch, again))
        assert hashlib.sha256(first.read_bytes()).digest() == hashlib.sha256(second.read_bytes()).digest()
