"""The runtimes a wheel is offered for, given the results of loading it."""

import os

import pytest

from wheel_builder.base.store import Artifact
from wheel_builder.matrix.model import Job, Rocm
from wheel_builder.tables.archs import known_gpus
from wheel_builder.verify.runtime_load import probe
from wheel_builder.verify.runtime_rules import accepted, runtime_package, runtime_problems

JOB = Job(Rocm("6.4", "debian", "debian:sid-slim", "/usr/lib/llvm-21/bin", ("gfx908",)), ("gfx908",))
FOUND = {
    "functions": {"hipGetDevice": "libamdhip64.so.6"},
    "instances": 12,
    "answer": "asking for device 0 failed: no ROCm-capable device is detected (HIP error 100)",
    "code_object_version": 4,
    "codes": {"gfx908-0": "amdgcn-amd-amdhsa--gfx908 12", "gfx90a-1": "amdgcn-amd-amdhsa--gfx90a 3"},
    "gpus": [*known_gpus()],
}


def problems(versions=(4,), archs=("gfx908",), served=(), **changes):
    return list(runtime_problems({**FOUND, **changes}, versions, archs, JOB, served))


def test_a_runtime_that_has_all_and_answers_is_served():
    assert problems() == []
    assert problems(answer="gfx908:sramecc+") == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"functions": {"hipGetDevicePropertiesR0600": ""}},
            "hipGetDevicePropertiesR0600 is not in its libamdhip64",
        ),
        (
            {"functions": {"hipGetDevice": "libtorch.so"}},
            "hipGetDevice is not in its libamdhip64 but in libtorch.so",
        ),
        ({"instances": 0}, "the library names no kernel there"),
        ({"answer": "no HIP runtime"}, "its runtime did not answer through the library: no HIP runtime"),
        (
            {"code_object_version": 3},
            (
                "its code objects are of version 6, but the compiler of ROCm 6.4 writes 5: "
                "its loader may not know them"
            ),
        ),
        (
            {"codes": {"gfx908-0": "refused at isa with status 1"}},
            (
                "its comgr does not read the code for gfx908 as the loader needs it: "
                "refused at isa with status 1"
            ),
        ),
        (
            {"codes": {"gfx90a-3": "amdgcn-amd-amdhsa--gfx90a:xnack+ 2"}},
            (
                "its comgr does not read the code for gfx90a as the loader needs it: "
                "amdgcn-amd-amdhsa--gfx90a:xnack+ 2"
            ),
        ),
        (
            {"codes": {"gfx908-0": "amdgcn-amd-amdhsa--gfx908 0"}},
            "its comgr does not read the code for gfx908 as the loader needs it: amdgcn-amd-amdhsa--gfx908 0",
        ),
        (
            {"gpus": ["gfx908", "gfx90a"], "served": ("gfx908", "gfx950")},
            (
                "its runtime's table of GPUs lacks gfx950, which matrix.yaml serves with ROCm 6.4: "
                "exclude it there"
            ),
        ),
        ({"archs": ("gfx908", "gfx900")}, "nothing is built for gfx900 with ROCm 6.4"),
    ],
)
def test_each_reason_not_to_serve_is_told(changes, words):
    assert problems(**changes) == [words]


def test_a_library_that_its_loader_refuses_serves_nothing():
    refused = {"refused": "libx.so: cannot open shared object file"}
    assert list(runtime_problems(refused, (4,), ("gfx908",), JOB)) == [
        "it cannot be loaded there: libx.so: cannot open shared object file"
    ]


def test_the_probe_answers_that_the_loader_refuses_a_library(monkeypatch):
    def main(library, arch, functions, codes):
        return probe.load(library, os.RTLD_NOW)

    monkeypatch.setattr(probe, "main", main)
    assert "cannot open shared object file" in probe.answer("/nowhere.so", "gfx942", {}, "/codes")["refused"]


def test_a_compiler_that_the_image_lacks_is_no_answer(monkeypatch):
    monkeypatch.setenv("FA_LLVM", "/nowhere")
    with pytest.raises(FileNotFoundError):
        probe.answer("/library.so", "gfx942", {"hip": [], "torch": []}, "/codes")


def test_gpus_are_read_from_the_runtimes_own_table():
    """Whole strings: names inside messages and inside compiler options are not rows of the table."""
    table = b"\0gfx1100\0gfx90a\0gfx90a\0"
    assert probe.gpus_in(b"--offload-arch=gfx942\0 gfx950 \0gfx1250:x\0" + table) == ["gfx1100", "gfx90a"]


def test_each_runtimes_gpus_of_an_arch_are_recorded():
    """Even if the runtime does not know the arch itself."""
    loads = {
        rocm: Artifact(None, {"facts": {"found": {"gpus": gpus}, "problems": problems}}, reused=True)
        for rocm, gpus, problems in (
            ("7.2", ["gfx1031", "gfx1030", "gfx950"], []), ("6.4", ["gfx1031"], []), ("5.7", [], ["too old"]),
        )
    }  # fmt: skip
    assert accepted(loads, "gfx1030") == {"7.2": ["gfx1030", "gfx1031"], "6.4": ["gfx1031"]}
    assert accepted(loads, "gfx950") == {"7.2": ["gfx950"], "6.4": []}


def test_the_runtimes_package_is_named():
    packages = {"libamdhip64-dev": "7.2.4-1", "libamdhip64-7": "7.2.4-1~exp2"}
    assert runtime_package(packages) == "libamdhip64-7 7.2.4-1~exp2"
    assert runtime_package({"hip-runtime-amd": "7.1"}) == "hip-runtime-amd 7.1"
    assert runtime_package({"bash": "5"}) == "a libamdhip64 of no known package"


def test_the_probes_byte_is_the_one_that_the_stage_reads():
    from wheel_builder.verify import runtimes

    assert probe.ABI_VERSION_BYTE == runtimes.ABI_VERSION_BYTE
