"""The rules for a wheel for Windows: a small good one, and the refusals of changed bytes."""

import json
import random
from dataclasses import replace

import pytest

from tests.tools.made.pes import CODE, DATA, EXECUTE, IMPORTS, READ, WRITE, Dll
from tests.tools.made.wheels import (
    ARCHS,
    BASE_VERSION,
    EXPECTATION,
    GOOD_LIBRARY,
    KERNELS,
    MATERIALS,
    METADATA,
    MODULE,
    VERSION,
    code_object,
    fatbin,
    of_each,
    write_wheel,
)
from wheel_builder.audit.rules import RULES, WINDOWS_RULES
from wheel_builder.audit.stage import audit_wheel
from wheel_builder.base.errors import AuditError
from wheel_builder.build.sbom import FILE, sbom_text
from wheel_builder.files.device.hostpart import functions_of
from wheel_builder.files.device.library import LIBRARY, WINDOWS_LIBRARY

WINDOWS = replace(EXPECTATION, platform_tag="win_amd64", rocm="")
DIST_INFO = f"flash_attn_rocm-{BASE_VERSION}.dist-info"
FATBIN_AT = 0x3000  # after .text and .rdata


def dll(code=None, **changes):
    """A DLL with device code, and the functions that return its bundles' addresses."""
    code = fatbin() if code is None else code
    functions = functions_of(code, FATBIN_AT + len(code), FATBIN_AT)
    sections = ((".hip_fat", code, DATA | READ), (".fa_bund", functions, CODE | READ | EXECUTE))
    return Dll(extra=sections, **changes).data


GOOD = dll()


def files(library=GOOD):
    wheel = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: py3-none-win_amd64\n"
    return {
        "flash_attn_rocm/__init__.py": MODULE,
        WINDOWS_LIBRARY: library,
        f"{DIST_INFO}/METADATA": METADATA.replace(VERSION, BASE_VERSION).encode(),
        f"{DIST_INFO}/WHEEL": wheel.encode(),
        f"{DIST_INFO}/sboms/{FILE}": sbom_text(replace(MATERIALS, version=BASE_VERSION)).encode(),
    }


def written(folder, content):
    return write_wheel(folder, content, name=f"flash_attn_rocm-{BASE_VERSION}-py3-none-win_amd64.whl")


def problems(folder, content):
    with pytest.raises(AuditError) as caught:
        audit_wheel(written(folder, content), WINDOWS)
    return list(caught.value.problems)


def test_a_good_wheel_passes_and_is_described(tmp_path):
    report = json.loads(audit_wheel(written(tmp_path, files()), WINDOWS).to_json())
    assert report["kernels"] == {arch: list(KERNELS) for arch in ARCHS}
    assert report["needed"] == sorted(IMPORTS)
    assert (report["tag"], report["glibc"], report["torch"]) == ("py3-none-win_amd64", "", "2.10.0")
    assert report["rules"] == ["archive", *WINDOWS_RULES]


def test_the_rules_of_both_platforms_are_the_same_but_for_those_of_the_file_format():
    elf_only = {"elf-layout", "soname", "needed", "runpath", "exported", "glibc", "undefined"}
    assert RULES.keys() - WINDOWS_RULES.keys() == elf_only
    assert WINDOWS_RULES.keys() - RULES.keys() == {"dll"}


@pytest.mark.parametrize(
    ("library", "words"),
    [
        (
            b"text",
            "readable: found the library is not a DLL that can be relied on: it does not begin with MZ",
        ),
        (GOOD_LIBRARY.data, "readable: found the library is not a DLL"),
        (Dll(extra=()).data, f"readable: found {WINDOWS_LIBRARY} has no section .hip_fat with device code"),
        (dll(overlay=b"more"), "dll: found flash_attn_rocm/_C/flash_attn_rocm.dll: 4 bytes follow its last"),
        (dll(exports=("DllMain", "fa_gpus")), "it exports DllMain, fa_gpus; expected fa_gpus"),
        (
            dll(imports={**IMPORTS, "torch_cpu.dll": ("aoti_torch_made_up",)}),
            "torch-abi: found aoti_torch_made_up, which no known torch promises",
        ),
        (
            dll(imports={**IMPORTS, "torch_cpu.dll": ("torch_exception_get_what",)}),
            "torch-abi: found torch_exception_get_what, new in torch 2.13",
        ),
        (dll(fatbin(ARCHS[:3])), "code-objects: found no code object for gfx1100"),
        (
            dll(of_each({a: code_object("gfx1030" if a == "gfx1100" else a, KERNELS) for a in ARCHS})),
            "bundled as gfx1100, compiled for gfx1030",
        ),
    ],
)
def test_what_the_library_may_not_be(tmp_path, library, words):
    assert any(words in problem for problem in problems(tmp_path, files(library)))


def test_bundles_that_the_code_does_not_use(tmp_path):
    """If the code looks outside the section, the kernels read are not the kernels launched."""
    moved = functions_of(fatbin(), FATBIN_AT + len(fatbin()) + 4096, FATBIN_AT)
    code = ((".hip_fat", fatbin(), DATA | READ), (".fa_bund", moved, CODE | READ | EXECUTE))
    [problem] = problems(tmp_path, files(Dll(extra=code).data))
    assert problem.startswith("bundles-used: found no code of the library takes the address of 0x")


def test_the_library_of_the_other_platform_beside_it(tmp_path):
    found = problems(tmp_path, files() | {LIBRARY: GOOD_LIBRARY.data})
    assert {problem.split(":")[0] for problem in found} == {"contents", "only-library"}
    more = problems(tmp_path, files() | {"flash_attn_rocm/_C/amdhip64_7.dll": GOOD})
    assert {problem.split(":")[0] for problem in more} == {"contents", "only-library"}


def test_a_renamed_wheel_for_linux(tmp_path):
    content = files() | {LIBRARY: GOOD_LIBRARY.data}
    del content[WINDOWS_LIBRARY]
    assert any(f"there is no {WINDOWS_LIBRARY}" in problem for problem in problems(tmp_path, content))


def test_device_code_that_may_be_written(tmp_path):
    code = fatbin()
    functions = functions_of(code, FATBIN_AT + len(code), FATBIN_AT)
    sections = ((".hip_fat", code, DATA | READ | WRITE), (".fa_bund", functions, CODE | READ | EXECUTE))
    [problem] = problems(tmp_path, files(Dll(extra=sections).data))
    assert "expected device code to be only read" in problem


@pytest.mark.parametrize("seed", range(4))
def test_a_changed_header_is_refused_or_changes_nothing_that_is_relied_on(tmp_path, seed):
    """Random header bytes: a DLL that passes has unchanged code and imports."""
    rng = random.Random(seed)
    headers = GOOD.index(b".text") + 4 * 40
    good = audit_wheel(written(tmp_path, files()), WINDOWS)
    for _ in range(40):
        mutant = bytearray(GOOD)
        mutant[rng.randrange(headers)] ^= 1 << rng.randrange(8)
        try:
            found = audit_wheel(written(tmp_path, files(bytes(mutant))), WINDOWS)
        except AuditError:
            continue
        assert (found.kernels, found.needed, found.code_bytes) == (good.kernels, good.needed, good.code_bytes)
