"""The wheel's build hook: the variables it reads, and the compiler's options."""

import hashlib
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.build import hatch_build
from kernels.build.hatch_build import BuildError, Inputs, read_inputs

CHECKOUT = Path(__file__).parents[5]


@pytest.fixture
def environ(tmp_path, monkeypatch):
    """A complete environment: device code, zstd's source, PyTorch's and HIP's headers."""
    for name in ("code/fatbin.S", "code/registry.inc", "code/a.hipfb", "code/b.hipfb"):
        write(tmp_path / name, name)
    write(tmp_path / "torch" / hatch_build.TORCH_HEADER)
    write(tmp_path / "hip" / hatch_build.HIP_HEADER)
    write(tmp_path / "a.cdx.json")
    for name in hatch_build.ZSTD:
        write(tmp_path / "zstd" / name, name)
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in hatch_build.ZSTD}
    monkeypatch.setattr(hatch_build, "ZSTD", digests)
    return {
        "FA_DEVICE_CODE": str(tmp_path / "code"),
        "FA_ROCM_VERSION": "7.2",
        "FA_TORCH_INCLUDE": str(tmp_path / "torch"),
        "FA_HIP_INCLUDE": str(tmp_path / "hip"),
        "FA_SBOM": str(tmp_path / "a.cdx.json"),
        "FA_ZSTD": str(tmp_path / "zstd"),
    }


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def refusal(environ, **options):
    with pytest.raises(BuildError) as caught:
        read_inputs(environ, **options)
    return str(caught.value)


def test_a_complete_environment(environ, tmp_path):
    assert read_inputs(environ) == Inputs(
        tmp_path / "code", "7.2", tmp_path / "torch", tmp_path / "hip", tmp_path / "a.cdx.json",
        tmp_path / "zstd",
    )  # fmt: skip


def test_all_problems_at_once(tmp_path):
    places = (tmp_path / "one", tmp_path / "two")
    listed = f"{places[0]}, {places[1]}"
    assert refusal({}, hip_folders=places).splitlines() == [
        "the wheel cannot be built:",
        "  - FA_DEVICE_CODE: expected the folder of the device code, found nothing",
        "  - FA_ROCM_VERSION: expected a version such as 7.2, or public, found ''",
        "  - FA_TORCH_INCLUDE: expected the folder of PyTorch's headers, found nothing",
        "  - FA_SBOM: expected a file *.cdx.json, found nothing",
        "  - FA_ZSTD: expected the folder of zstd's source, found nothing",
        f"  - FA_HIP_INCLUDE: expected a folder with {hatch_build.HIP_HEADER}, found none at {listed}",
        "  next: build through the pipeline (scripts/wheel-builder wheel), which sets all of these",
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("code/registry.inc", "FA_DEVICE_CODE: expected registry.inc in "),
        ("code/fatbin.S", "FA_DEVICE_CODE: expected fatbin.S in "),
        ("a.cdx.json", "FA_SBOM: expected a file *.cdx.json, found /"),
        ("zstd/zstd.h", "FA_ZSTD: expected zstd.h in "),
        ("torch/torch/csrc/stable/library.h", "FA_TORCH_INCLUDE: expected torch/csrc/stable/library.h in "),
        (
            "hip/hip/hip_runtime_api.h",
            "FA_HIP_INCLUDE: expected a folder with hip/hip_runtime_api.h, found none",
        ),
    ],
)
def test_a_missing_file(environ, tmp_path, name, words):
    (tmp_path / name).unlink()
    assert words in refusal(environ)


def test_another_zstd_than_the_pinned_one(environ, tmp_path):
    write(tmp_path / "zstd/zstd.c", "int other;")
    found = hashlib.sha256(b"int other;").hexdigest()
    expected = hashlib.sha256(b"zstd.c").hexdigest()
    assert f"FA_ZSTD: expected zstd.c with sha256 {expected}, found {found}" in refusal(environ)


@pytest.mark.parametrize("version", ["7", "7.2-rc1", "rocm7.2", "7.2.1.3"])
def test_a_rocm_version_that_is_none(environ, version):
    assert f"expected a version such as 7.2, or public, found {version!r}" in refusal(
        {**environ, "FA_ROCM_VERSION": version}
    )


def test_hip_headers_in_a_usual_place(environ, tmp_path):
    del environ["FA_HIP_INCLUDE"]
    inputs = read_inputs(environ, hip_folders=(tmp_path / "nothing", tmp_path / "hip"))
    assert inputs.hip_include == tmp_path / "hip"


def test_the_digest_sees_every_bundle_and_name(environ, tmp_path):
    code = tmp_path / "code"
    digests = [hatch_build.device_code_digest(code)]
    (code / "b.hipfb").write_text("changed")
    digests.append(hatch_build.device_code_digest(code))
    (code / "b.hipfb").rename(code / "c.hipfb")
    digests.append(hatch_build.device_code_digest(code))
    (code / "fatbin.S").write_text("changed")
    digests.append(hatch_build.device_code_digest(code))
    assert len(set(digests)) == 4


def test_the_compiler_is_told_the_decisions(environ, tmp_path):
    command = hatch_build._compile(read_inputs(environ), tmp_path)
    assert {"-std=c++17", "-O2", "-g0", "-fvisibility=hidden", "-c"} <= {*command}
    link = hatch_build._link([tmp_path / "a.o"], tmp_path, hatch_build.LINUX)
    assert {"-shared", "-ltorch", "-Wl,--build-id=none", str(tmp_path / "a.o")} <= {*link}
    assert "-DTORCH_TARGET_VERSION=0x020a000000000000" in command
    assert f"-Wl,-T,{tmp_path / 'layout.ld'}" in link
    assert not [flag for flag in (*command, *link) if "amdhip" in flag]
    assert hatch_build.zig("c++", hatch_build.LINUX)[-2:] == ["-target", "x86_64-linux-gnu.2.28"]


def test_a_dll_is_linked_with_an_import_library_of_torch_s_stable_functions(environ, tmp_path):
    torch = Path(environ["FA_TORCH_INCLUDE"])
    for file, text in zip(
        hatch_build.TORCH_FUNCTIONS,
        (
            "AOTITorchError aoti_torch_get_sizes(\n",
            "AOTITorchError aoti_torch_aten_fill__Scalar(AtenTensorHandle self, double value);\n",
            "torch_library_impl(int);\n  torch_library_impl(int);\n",
        ),
        strict=True,
    ):
        write(torch / file, text)
    inputs = read_inputs({**environ, "FA_ROCM_VERSION": "public", "FA_PLATFORM": "windows"})
    command = hatch_build._import_library(inputs, tmp_path)
    assert command[-4:] == ["-d", str(tmp_path / "torch.def"), "-l", str(tmp_path / "torch.lib")]
    assert (tmp_path / "torch.def").read_text().split("\n") == [
        "LIBRARY torch_cpu.dll", "EXPORTS", "aoti_torch_aten_fill__Scalar", "aoti_torch_get_sizes",
        "torch_library_impl", "",
    ]  # fmt: skip
    compiled, link = hatch_build._compile(inputs, tmp_path), hatch_build._link([], tmp_path, inputs.platform)
    assert {"x86_64-windows-gnu", "-std=c++17", "-O2", "-g0", "-Werror"} <= {*compiled}
    assert "-fPIC" not in compiled
    assert [Path(name).name for name in link[-4:]] == ["zstd.o", "fatbin.o", "torch.lib", "exports.def"]
    assert not [flag for flag in link if "amdhip" in flag]


@pytest.mark.parametrize("platform", hatch_build.LIBRARIES)
def test_the_library_keeps_of_zstd_what_it_calls_and_exports_none_of_it(environ, tmp_path, platform):
    inputs = replace(read_inputs(environ), platform=platform)
    command = hatch_build._compile_zstd(inputs)
    assert {"-O2", "-g0", "-ffunction-sections", "-DZSTDLIB_VISIBLE=", "-fvisibility=hidden"} <= {*command}
    assert command[-2:] == ["-c", str(tmp_path / "zstd/zstd.c")]
    assert not [flag for flag in command if flag.startswith("-std=")]
    assert "-Wl,--gc-sections" in hatch_build._link([], tmp_path, platform)


def test_each_platform_has_its_own_sources_besides_the_shared_ones():
    shared, windows = (
        {path.relative_to(CHECKOUT).as_posix() for path in hatch_build._sources(CHECKOUT, platform)}
        for platform in (hatch_build.LINUX, hatch_build.WINDOWS)
    )
    assert windows - shared == {
        "kernels/bindings/windows/current_stream.cpp", "kernels/host/launch/windows/hip_functions.cpp",
    }  # fmt: skip
    assert shared < windows


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"FA_PLATFORM": "macos"}, "FA_PLATFORM: expected linux or windows, found 'macos'"),
        ({"FA_PLATFORM": "windows"}, "FA_ROCM_VERSION: expected public for Windows, found '7.2'"),
    ],
)
def test_a_platform_without_wheels(environ, changes, words):
    assert words in refusal({**environ, **changes})


def test_nothing_but_the_assembler_knows_the_bundles(environ, tmp_path):
    """Their sizes were in the compiler's commands, even for unrelated code."""
    inputs = read_inputs(environ)
    before = hatch_build._compile(inputs, tmp_path)
    (inputs.device_code / "a.hipfb").write_text("larger than it was")
    assert hatch_build._compile(inputs, tmp_path) == before


def test_without_a_cache_the_compiler_is_zig_itself(environ, tmp_path):
    assert hatch_build._compiler(read_inputs(environ), tmp_path) == (
        hatch_build.zig("c++", hatch_build.LINUX),
        {},
    )


def test_with_a_cache_ccache_is_around_it(environ, tmp_path):
    inputs = read_inputs({**environ, "FA_CACHE": str(tmp_path / "cache")})
    command, env = hatch_build._compiler(inputs, tmp_path)
    assert command == ["ccache", str(tmp_path / "clang++")]
    assert "-m ziglang c++ -target x86_64-linux-gnu.2.28" in (tmp_path / "clang++").read_text()
    assert env["CCACHE_REMOTE_STORAGE"] == f"file:{tmp_path / 'cache'}"
    assert env["CCACHE_REMOTE_ONLY"] == "true"


def test_the_version_has_one_place(tmp_path):
    write(tmp_path / "pyproject.toml", '[tool.flash-attn-rocm]\nversion = "1.2.3"\n')
    assert hatch_build.base_version(tmp_path / "pyproject.toml") == "1.2.3"


def test_a_failing_compiler_is_reported_with_its_last_lines(monkeypatch, tmp_path):
    lines = [f"line {number}" for number in range(40)]
    failed = subprocess.CompletedProcess([], 1, "", "\n".join(lines))
    monkeypatch.setattr(hatch_build.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(BuildError) as caught:
        hatch_build._run(["zig", "c++"], tmp_path)
    text = str(caught.value)
    assert text.startswith("zig c++ ended with status 1\n  | line 15\n")
    assert "  | line 39\n  next: " in text
