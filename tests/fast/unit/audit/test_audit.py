import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tools.made.elves import Edit, ElfFile, Symbol, metadata_of
from tests.tools.made.wheels import (
    ARCHS,
    DIST_INFO,
    EXPECTATION,
    GOOD_LIBRARY,
    KERNELS,
    METADATA,
    PLATFORM,
    SBOM,
    VERSION,
    WHEEL,
    code_object,
    fatbin,
    good_files,
    library,
    library_with,
    of_each,
    record_text,
    uncompressed,
    write_wheel,
)
from wheel_builder.audit.rules import RULES
from wheel_builder.audit.stage import audit_wheel
from wheel_builder.base.errors import AuditError
from wheel_builder.files.device.library import LIBRARY


def problems(tmp_path, files=None, expectation=EXPECTATION, **options):
    """The audit's problems for a wheel with these files in place of the good ones."""
    path = write_wheel(tmp_path, good_files() | (files or {}), **options)
    with pytest.raises(AuditError) as caught:
        audit_wheel(path, expectation)
    return list(caught.value.problems)


def device(data):
    """The good wheel's library with ``data`` as its device code."""
    return {LIBRARY: library(sections={".hip_fatbin": data})}


def test_a_good_wheel_passes_and_is_described(tmp_path):
    report = json.loads(audit_wheel(write_wheel(tmp_path), EXPECTATION).to_json())

    assert report["kernels"] == {arch: list(KERNELS) for arch in ARCHS}
    assert report["version"] == VERSION
    assert report["needed"] == ["ld-linux-x86-64.so.2", "libc.so.6", "libtorch.so"]
    assert (report["glibc"], report["torch"]) == ("2.14", "2.10.0")
    assert report["rules"] == ["archive", *RULES]
    assert len(report["sha256"]) == 64
    assert all(size > 0 for size in report["code_bytes"].values())
    assert report["gpus"]["gfx942"] == ["gfx942"]
    assert report["gpus"]["gfx1030"][:2] == ["gfx1030", "gfx1031"]


def test_no_sbom(tmp_path):
    files = good_files()
    del files[SBOM]
    with pytest.raises(AuditError) as caught:
        audit_wheel(write_wheel(tmp_path, files), EXPECTATION)
    [problem] = caught.value.problems
    assert problem.startswith("sbom: found no SBOM in sboms/, expected flash-attn-rocm.cdx.json")


def test_a_missing_arch(tmp_path):
    found = problems(tmp_path, device(fatbin(ARCHS[:3])))
    planned = "gfx1030, gfx1100, gfx908, gfx942"
    advice = "build device code for it, or take it out of the plan"
    assert found == [f"code-objects: found no code object for gfx1100; expected {planned}; {advice}"]


def test_code_for_a_gpu_that_runs_the_code_of_another(tmp_path):
    [found] = problems(tmp_path, device(fatbin([*ARCHS, "gfx1031"])))
    assert found.startswith("code-objects: found a code object for gfx1031; expected gfx1030, gfx1100,")
    assert found.endswith("gfx1031 runs the code of gfx1030: bundle without it")


def torn(code):
    """One byte of the compressed code is another."""
    return code[:100] + bytes([code[100] ^ 1]) + code[101:]


def test_a_foreign_arch(tmp_path):
    found = problems(tmp_path, expectation=replace(EXPECTATION, kernels={"gfx942": frozenset(KERNELS)}))
    assert [line.split(";")[0] for line in found] == [
        f"code-objects: found a code object for {arch}" for arch in ("gfx1030", "gfx1100", "gfx908")
    ]


def test_a_missing_kernel(tmp_path):
    data = fatbin(kernels=KERNELS[:1]) + of_each({"gfx908": code_object("gfx908", KERNELS[1:])})
    found = problems(tmp_path, device(data))
    assert [line.split(";")[0] for line in found] == [
        f"code-objects: found {arch} lacks fa_fwd_fp16_d64" for arch in ("gfx1030", "gfx1100", "gfx942")
    ]


def test_an_extra_kernel(tmp_path):
    data = fatbin() + of_each({"gfx908": code_object("gfx908", ["fa_fwd_fp16_d96"])})
    (found,) = problems(tmp_path, device(data))
    assert found.startswith("code-objects: found gfx908 has fa_fwd_fp16_d96; expected 2 planned kernels")


def test_a_kernel_twice(tmp_path):
    data = fatbin() + of_each({"gfx908": code_object("gfx908", KERNELS[:1])})
    (found,) = problems(tmp_path, device(data))
    assert found.startswith("code-objects: found fa_fwd_bf16_d64 for gfx908 2 times; expected once")


def test_a_code_object_compiled_for_another_arch_than_its_bundle_says(tmp_path):
    data = of_each({a: code_object("gfx1030" if a == "gfx1100" else a, KERNELS) for a in ARCHS})
    (found, *others) = problems(tmp_path, device(data))
    assert [other.split(":")[0] for other in others] == ["code-object-contents"] * len(others)
    assert found.startswith(
        "code-object-arch: found fa_fwd_bf16_d64, fa_fwd_fp16_d64: bundled as gfx1100, compiled for gfx1030"
    )


def test_a_code_object_without_a_kernel(tmp_path):
    (found,) = problems(tmp_path, device(fatbin() + of_each({"gfx908": code_object("gfx908", [])})))
    assert found.startswith("code-object-arch: found a code object for gfx908 without a kernel")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({LIBRARY: b"text"}, "readable: found not a readable ELF file"),
        ({LIBRARY: library(sections={})}, f"readable: found {LIBRARY} has no section .hip_fatbin"),
        (
            device(uncompressed()),
            "readable: found compressed offload bundle at byte 0 of .hip_fatbin: it is not compressed",
        ),
        (
            device(b"CCOB\x09\0"),
            "readable: found compressed offload bundle at byte 0 of .hip_fatbin: version 9 is not one",
        ),
        (
            device(torn(fatbin())),
            "readable: found compressed offload bundle at byte 0 of .hip_fatbin: it cannot be decompressed",
        ),
        (
            device(of_each({"gfx908": b"text"})),
            "readable: found the code object for gfx908: not a readable ELF",
        ),
    ],
)
def test_device_code_that_cannot_be_read(tmp_path, files, words):
    (found,) = problems(tmp_path, files)
    assert found.startswith(words)


def test_no_library(tmp_path):
    files = {name: data for name, data in good_files().items() if name != LIBRARY}
    with pytest.raises(AuditError, match=f"readable: found there is no {LIBRARY}"):
        audit_wheel(write_wheel(tmp_path, files), EXPECTATION)


@pytest.mark.parametrize(
    ("name", "known_as"),
    [
        ("flash_attn_rocm/_C/libamdhip64.so.7", ""),
        ("flash_attn_rocm/_C/libamdhip64-1a2b3c4d.so.7.2", ""),
        ("flash_attn_rocm/_C/libtorch_cpu.so", ""),
        ("flash_attn_rocm/_C/libharmless.so", " (SONAME libhsa-runtime64.so.1)"),
    ],
)
def test_a_grafted_library_of_rocm_or_torch(tmp_path, name, known_as):
    soname = "libhsa-runtime64.so.1" if known_as else ""
    found = problems(tmp_path, {name: ElfFile(soname=soname).data})
    assert [line.split(";")[0] for line in found] == [
        f"contents: found {name}",
        f"foreign-libraries: found {name}{known_as}",
        f"only-library: found {name}",
    ]


def test_a_grafted_library_beside_the_package(tmp_path):
    found = problems(tmp_path, {"flash_attn_rocm.libs/libamdhip64-1a2b.so.7": ElfFile().data})
    assert found[0].startswith("contents: found flash_attn_rocm.libs/libamdhip64-1a2b.so.7; expected only")
    assert len(found) == 3


def test_another_library_than_ours(tmp_path):
    (_, found) = problems(tmp_path, {"flash_attn_rocm/helper.so": ElfFile().data})
    assert found.startswith("only-library: found flash_attn_rocm/helper.so")


def test_a_foreign_top_level_package(tmp_path):
    (found,) = problems(tmp_path, {"flash_attn/__init__.py": b""})
    assert found.startswith(
        "contents: found flash_attn/__init__.py; expected only files that its sources have, the library and"
    )


HOSTILE_ELF = {
    "executable stack": ({"stack_flags": 7}, "it asks for an executable stack"),
    "no GNU_STACK": ({"stack_flags": None}, "it has 0 PT_GNU_STACK, expected 1"),
    "RWX": ({"text_flags": 7}, "segment 2 is loaded writable and executable"),
    "another machine": ({"machine": 183}, "its machine is 183, expected 62"),
    "a program": ({"kind": 2}, "its type is 2, expected 3 (a shared object)"),
    "an object file": ({"kind": 1}, "its type is 1, expected 3 (a shared object)"),
}


@pytest.mark.parametrize(("changes", "words"), HOSTILE_ELF.values(), ids=HOSTILE_ELF)
def test_a_library_that_is_no_plain_shared_object(tmp_path, changes, words):
    """More of them are in tests/fast/unit/files/test_elflayout.py."""
    (found,) = problems(tmp_path, {LIBRARY: library(**changes)})
    assert found.startswith(f"elf-layout: found {LIBRARY}: {words}")
    assert found.endswith("link it again, with the flags of the build")


def test_headers_that_are_not_in_the_file(tmp_path):
    (found,) = problems(tmp_path, {LIBRARY: Edit(GOOD_LIBRARY.data).header(segments_at=1 << 40).data})
    words = "its 7 program headers at byte 1099511627776 are not in the file"
    assert found.startswith(f"readable: found not a readable ELF file ({words})")


def test_a_code_object_that_writes_code(tmp_path):
    codes = {
        arch: code_object(arch, KERNELS, **({"text_flags": 7} if arch == "gfx908" else {})) for arch in ARCHS
    }
    (found,) = problems(tmp_path, device(of_each(codes)))
    words = "segment 2 is loaded writable and executable"
    assert found.startswith(f"elf-layout: found a code object for gfx908: {words}")


@pytest.mark.parametrize("soname", ["libtorch.so", "libc.so.6", "libflash_attn_rocm.so.1"])
def test_the_name_of_another_library(tmp_path, soname):
    """glibc would use it as that library for all its users."""
    found = problems(tmp_path, {LIBRARY: library(soname=soname)})
    assert f"soname: found SONAME {soname}; expected none, or" in " | ".join(found)


def test_kernels_that_the_library_does_not_use(tmp_path):
    """The audit read a clean section while the code used other kernels' addresses."""
    edit = Edit(GOOD_LIBRARY.data)
    place = edit.of_section(".text")
    (found,) = problems(tmp_path, {LIBRARY: edit.content(".text", 3, b"\0\0\0\0").data})
    first = hex(edit.of_section(".hip_fatbin")["address"])
    assert place["size"] > 14
    assert found.startswith(
        f"bundles-used: found no code of the library takes the address of {first}; expected"
    )


def test_a_code_object_that_says_it_is_for_another_gpu(tmp_path):
    codes = {arch: code_object(arch, KERNELS) for arch in ARCHS}
    codes["gfx908"] = code_object("gfx908", KERNELS, metadata=metadata_of("gfx942", KERNELS))
    (found,) = problems(tmp_path, device(of_each(codes)))
    words = "its metadata is for 'amdgcn-amd-amdhsa--gfx942', expected amdgcn-amd-amdhsa--gfx908"
    assert found.startswith(f"code-object-contents: found a code object for gfx908: {words}; expected what")


def test_a_needed_library_that_was_not_decided(tmp_path):
    (found,) = problems(tmp_path, {LIBRARY: library(needed=(*GOOD_LIBRARY.needed, "libamdhip64.so.7"))})
    assert found.startswith(
        "needed: found NEEDED libamdhip64.so.7; expected only ld-linux-x86-64.so.2, libc.so.6,"
    )


def test_torch_not_needed(tmp_path):
    (found,) = problems(tmp_path, {LIBRARY: library(needed=("libc.so.6",))})
    assert found.startswith("needed: found no NEEDED libtorch.so")


@pytest.mark.parametrize("kind", ["rpath", "runpath"])
def test_a_runpath(tmp_path, kind):
    (found,) = problems(tmp_path, {LIBRARY: library(**{kind: "/opt/rocm/lib"})})
    assert found.startswith("runpath: found RPATH or RUNPATH /opt/rocm/lib; expected none")


def test_leaked_symbols(tmp_path):
    leaked = [Symbol(f"leak{number}", defined=True, weak=number == 0) for number in range(6)]
    (found,) = problems(tmp_path, {LIBRARY: library_with(*leaked)})
    assert found.startswith(
        "exported: found exported leak0, leak1, leak2, leak3 and 2 more; expected no exported symbol"
    )


def test_a_glibc_newer_than_the_tag(tmp_path):
    (found,) = problems(tmp_path, {LIBRARY: library_with(Symbol("memcpy", version="GLIBC_2.29"))})
    assert found.startswith(
        "glibc: found memcpy@GLIBC_2.29; expected at most GLIBC_2.28; link with zig -target"
    )
    assert found.endswith("x86_64-linux-gnu.2.28")


@pytest.mark.parametrize(
    ("symbol", "shown"),
    [
        (Symbol("_ZN3c104cuda20getCurrentCUDAStreamEa"), "_ZN3c104cuda20getCurrentCUDAStreamEa"),
        (Symbol("_ZSt4cout", version="GLIBCXX_3.4"), "_ZSt4cout@GLIBCXX_3.4"),
        (Symbol("hipMalloc"), "hipMalloc, not weak"),
        (Symbol("rocblas_create_handle", weak=True), "rocblas_create_handle"),
        (Symbol("PyLong_AsLong"), "PyLong_AsLong"),
    ],
)
def test_a_symbol_that_nobody_promises(tmp_path, symbol, shown):
    (found,) = problems(tmp_path, {LIBRARY: library_with(symbol)})
    assert found.startswith(f"undefined: found {shown}; expected symbols of glibc")


def test_a_function_newer_than_the_torch_floor(tmp_path):
    (found,) = problems(
        tmp_path, {LIBRARY: library_with(Symbol("torch_exception_get_what_without_backtrace"))}
    )
    assert found.startswith(
        "torch-abi: found torch_exception_get_what_without_backtrace, new in torch 2.13.0; "
        "expected nothing newer than torch 2.10"
    )


def test_the_torch_floor_is_the_declared_one(tmp_path):
    (found,) = problems(tmp_path, expectation=replace(EXPECTATION, torch_floor="2.9"))
    assert found.startswith("torch-abi: found torch_library_impl, new in torch 2.10.0")


def test_a_function_that_no_torch_promises(tmp_path):
    (found,) = problems(tmp_path, {LIBRARY: library_with(Symbol("aoti_torch_made_up"))})
    assert found.startswith("torch-abi: found aoti_torch_made_up, which no known torch promises")


def test_a_library_without_torch(tmp_path):
    (found,) = problems(tmp_path, {LIBRARY: library(symbols=(Symbol("memcpy", version="GLIBC_2.14"),))})
    assert found.startswith("torch-abi: found no function of torch")


def test_too_large(tmp_path):
    incompressible = random.Random(0).randbytes(1 << 20)
    (found, _) = problems(tmp_path, {"flash_attn_rocm/noise": incompressible})
    assert found.startswith("size: found 1.01 MiB; expected at most 1 MiB; find what grew")


def test_a_wrong_record(tmp_path):
    (found,) = problems(tmp_path, record=record_text(good_files() | {LIBRARY: b"other"}))
    assert found.startswith(f"record: found {LIBRARY} is listed as sha256=")


def test_a_wrong_tag_in_the_file_name(tmp_path):
    (found,) = problems(tmp_path, name=f"flash_attn_rocm-{VERSION}-py3-none-manylinux_2_34_x86_64.whl")
    assert found.startswith("file-name: found flash_attn_rocm-")
    assert f"expected flash_attn_rocm-{VERSION}-py3-none-{PLATFORM}.whl" in found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            WHEEL.replace(PLATFORM, "linux_x86_64"),
            "wheel-tag: found WHEEL says Tag: py3-none-linux_x86_64; expected py3-none-manyl",
        ),
        (
            WHEEL + "Tag: cp311-cp311-linux_x86_64\n",
            f"wheel-tag: found WHEEL says Tag: py3-none-{PLATFORM}, cp311-",
        ),
        (WHEEL.replace("false", "true"), "wheel-tag: found WHEEL says Root-Is-Purelib: true; expected false"),
        (WHEEL.replace("Tag: ", "Gat: "), "wheel-tag: found WHEEL says Tag: nothing"),
        (WHEEL.replace("1.0", "2.0"), "metadata: found WHEEL says Wheel-Version: 2.0; expected 1.0"),
        (WHEEL.replace("Wheel-V", "V"), "metadata: found WHEEL says Wheel-Version: nothing; expected 1.0"),
        (
            WHEEL.replace("Version: 1.0", "Version: 1.0\nwheel-version: 2.0"),
            "metadata: found WHEEL says Wheel-Version: 1.0, 2.0; expected 1.0",
        ),
        (WHEEL + "Build: 7\n", "metadata: found WHEEL says Build: 7; expected nothing"),
        (
            WHEEL + "build: 7\n",
            "metadata: found WHEEL says build: 7; expected only Build, Generator, Root-Is-",
        ),
    ],
)
def test_a_wrong_field_in_the_wheel_file(tmp_path, text, words):
    found = " | ".join(problems(tmp_path, {f"{DIST_INFO}/WHEEL": text.encode()}))
    assert words in found


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "Name: flash-attn-rocm",
            "Name: flash-attn",
            "metadata: found METADATA says Name: flash-attn; expected flash-attn-rocm",
        ),
        (VERSION, "0.1.0+rocm6.4", f"metadata: found Version: 0.1.0+rocm6.4; expected {VERSION}"),
        (">=3.10", ">=3.9", "metadata: found METADATA says Requires-Python: >=3.9; expected >=3.10"),
        (
            "Requires-Python: >=3.10\n",
            "",
            "metadata: found METADATA says Requires-Python: nothing; expected >=3.10",
        ),
        (
            "Summary",
            "Requires-Dist: torch>=2.10\nSummary",
            "metadata: found METADATA says Requires-Dist: torch>=2.10; expected nothing",
        ),
        (
            "Summary",
            "requires-dist: evil @ http://evil.invalid/e\nSummary",
            "metadata: found METADATA says requires-dist: evil @ http://evil.invalid/e; expected nothing",
        ),
        (
            "Summary",
            "Provides-Extra: all\nSummary",
            "metadata: found METADATA says Provides-Extra: all; expected nothing",
        ),
        (
            "A wheel for tests.",
            "Something else.",
            "metadata: found METADATA has a description of 16 bytes; expected the readme of its sources",
        ),
        ("\nVersion: ", "\nVersion: one ", "metadata: found METADATA: "),
    ],
)
def test_wrong_metadata(tmp_path, old, new, words):
    found = problems(tmp_path, {f"{DIST_INFO}/METADATA": METADATA.replace(old, new).encode()})
    assert found[0].startswith(words)
    assert len(found) == 1


HOSTILE = {
    "a script named pip": {f"{DIST_INFO}/entry_points.txt": b"[console_scripts]\npip = evil:main\n"},
    "a module": {"flash_attn_rocm/_evil.py": b""},
    "bytecode": {"flash_attn_rocm/__pycache__/__init__.cpython-311.pyc": b"x"},
    "a Windows library": {"flash_attn_rocm/evil.dll": b"MZ"},
    "a static library": {"flash_attn_rocm/evil.a": b"!<arch>\n"},
    "a path file": {"evil.pth": b"import os\n"},
    "a data folder": {f"{DIST_INFO.replace('dist-info', 'data')}/scripts/pip": b"#!/bin/sh\n"},
    "a second dist-info": {"evil-1.dist-info/METADATA": b""},
    "a signature": {f"{DIST_INFO}/RECORD.jws": b"{}"},
    "a licence that is none": {f"{DIST_INFO}/licenses/EVIL": b""},
}


@pytest.mark.parametrize("files", HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_the_sources_do_not_have(tmp_path, files):
    """The audit accepted each of these, with a matching RECORD."""
    found, *others = problems(tmp_path, files)
    [name] = files
    assert [each.partition(":")[0] for each in others] == ["only-library"] * name.endswith(".dll")
    assert found == (
        f"contents: found {name}; expected only files that its sources have, the library and what describes "
        "the wheel; build the wheel again, from the sources of its commit"
    )


@pytest.mark.parametrize("module", [b"", b"import os\n", b"VALUE = 42", b"def (", b"VALUE = 42\r\n"])
def test_a_replaced_or_broken_module(tmp_path, module):
    (found,) = problems(tmp_path, {"flash_attn_rocm/__init__.py": module})
    assert found.startswith(
        "contents: found flash_attn_rocm/__init__.py, which its sources have with another content; expected"
    )


def test_a_missing_module(tmp_path):
    files = good_files()
    del files["flash_attn_rocm/__init__.py"]
    with pytest.raises(AuditError) as caught:
        audit_wheel(write_wheel(tmp_path, files), EXPECTATION)
    assert caught.value.problems[0].startswith(
        "contents: found no flash_attn_rocm/__init__.py; expected every"
    )


@pytest.mark.parametrize("name", ["flash_attn_rocm/zeros", "flash_attn_rocm/__init__.py"])
def test_a_file_that_unpacks_to_200_mb_is_not_unpacked(tmp_path, name):
    (found,) = problems(tmp_path, {name: bytes(20 * 1024 * 1024)})
    assert re.match(
        rf"archive: found '{name}' unpacks from \d+ to 20971520 bytes; at most 32 times its packed size; ",
        found,
    )


def test_a_wheel_that_cannot_be_opened_safely(tmp_path):
    (found,) = problems(tmp_path, {"../evil.py": b""})
    assert found.startswith("archive: found '../evil.py' is not a path inside the wheel")


def test_all_problems_are_reported_at_once(tmp_path):
    files = {
        LIBRARY: library(
            rpath="/x",
            needed=("libtorch.so", "libc.so.6", "libhipblas.so.3"),
            sections={".hip_fatbin": fatbin(["gfx908"])},
        ),
        "extra.py": b"",
    }
    with pytest.raises(AuditError) as caught:
        audit_wheel(write_wheel(tmp_path, good_files() | files), EXPECTATION)
    assert [line.split(":")[0] for line in caught.value.problems] == [
        "contents",
        "needed",
        "runpath",
        *["code-objects"] * 3,
    ]
    assert "is refused by the audit: 6 problems" in caught.value.message
    assert "nothing is published from a refused wheel" in caught.value.advice


def test_a_plan_without_a_manylinux_tag_is_refused(tmp_path):
    with pytest.raises(AuditError, match="'linux_x86_64' is not a manylinux tag"):
        audit_wheel(write_wheel(tmp_path), replace(EXPECTATION, platform_tag="linux_x86_64"))


def test_every_rule_has_a_test_that_it_refuses_something():
    source = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in RULES if f'"{name}: found' not in source] == []
