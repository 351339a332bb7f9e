"""The runtime image's decisions; building it is tests/container's."""

from pathlib import Path

import pytest

from wheel_builder.errors import ImageError
from wheel_builder.model import Job, Rocm
from wheel_builder.process import Completed
from wheel_builder.stages.runtime_image import BASE_PYTHON, Python, _check, labels, runtime_packages

VENDOR = Rocm("7.0", "vendor", "vendor/rocm:7.0", "/opt/rocm/llvm/bin", ("gfx908",))


def debian(version, **packages):
    return Rocm(version, "debian", "debian:sid-slim", "/llvm", ("gfx908",), "sid", tuple(packages.items()))


def test_the_hip_runtime_comes_from_the_suite_of_its_headers():
    rocm = debian("7.2", sid=("clang-22",), experimental=("hipcc", "libamdhip64-dev=7.2.4-1~exp2"))
    assert runtime_packages(rocm, Python()) == (
        "experimental:libamdhip64-7 bookworm+:python3.11 :python3-pip-whl,ca-certificates"
    )


def test_the_hip_runtime_is_that_of_the_rocm_version():
    rocm = debian("6.4", sid=("libamdhip64-dev",))
    assert runtime_packages(rocm, BASE_PYTHON) == (
        "sid:libamdhip64-6 :python3-venv,python3-pip-whl,ca-certificates"
    )


def test_a_vendor_image_has_its_runtime():
    assert runtime_packages(VENDOR, BASE_PYTHON) == ":python3-venv,python3-pip-whl,ca-certificates"


def test_packages_without_hip_are_refused():
    with pytest.raises(ImageError, match=r"ROCm 7\.2: no suite installs libamdhip64-dev.*\n.*matrix\.yaml"):
        runtime_packages(debian("7.2", sid=("clang-22",)), Python())


def test_labels_say_which_wheel_is_inside(tmp_path):
    wheel = tmp_path / "flash_attn_rocm-0.1.0+rocm7.0-py3-none-manylinux_2_28_x86_64.whl"
    wheel.write_bytes(b"wheel")
    found = labels(Job(VENDOR, ("gfx908",)), wheel, Path("torch-2.13.0+cpu.whl"))
    assert found["org.opencontainers.image.version"] == "0.1.0+rocm7.0"
    assert found["flash-attn-rocm.wheel.sha256"] == (
        "ba59926159d2aa256eb8739b8da7e2b574b960e1202c6d624cbe981cef996c91"
    )
    assert found["flash-attn-rocm.archs"] == "gfx908"


def test_an_image_whose_doctor_fails_is_refused(tmp_path):
    def run(argv, **kwargs):
        return Completed("Traceback\nImportError: no torch\n", 1)

    with pytest.raises(ImageError, match="does not run its doctor; it said: ImportError: no torch"):
        _check("rocm-fa:7.2", tmp_path / "log", run)
