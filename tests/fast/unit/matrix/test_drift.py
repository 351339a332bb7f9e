"""Cases of drift and their messages."""

import pytest

from wheel_builder.base.errors import DriftError
from wheel_builder.base.process import Completed
from wheel_builder.matrix.drift import newest_release, refuse_drift, rocm_drift, torch_drift
from wheel_builder.matrix.model import Package, Rocm

ROCM = Rocm("7.2", "debian", "debian:sid-slim", "/llvm", ("gfx908",), "sid")
PACKAGE = Package("2.10", "2.13.0", "0" * 64, "manylinux_2_28_x86_64", 12)


def pip(listed):
    return lambda argv, **kwargs: Completed(f"torch (9)\nAvailable versions: {listed}\n", 0)


@pytest.mark.parametrize("listed", ["2.13.0, 2.12.1", "2.13.0+cpu", "2.14.0rc1, 2.13.0", "what, 2.9.0"])
def test_no_newer_torch_is_no_drift(listed):
    assert torch_drift(PACKAGE, run=pip(listed)) == []


def test_a_newer_torch_is_named():
    [found] = torch_drift(PACKAGE, run=pip("2.14.1, 2.14.0, 2.13.0"))
    assert found.startswith("torch 2.14.1 is there, matrix.yaml has torch_headers 2.13.0: build and verify")


def test_a_listing_without_versions_says_nothing():
    assert newest_release("torch (2.13.0)\n") is None


@pytest.mark.parametrize("version", ["7.2.4-1~exp2", "1:7.2-1", "7.2"])
def test_the_rocm_that_the_row_names_is_no_drift(version):
    assert rocm_drift(ROCM, {"libamdhip64-dev": version}) == []


@pytest.mark.parametrize("version", ["7.3.0-1", "7.20.1-1", "17.2.0-1"])
def test_another_rocm_under_the_rows_name_is_drift(version):
    [found] = rocm_drift(ROCM, {"libamdhip64-dev": version})
    assert f"the image of ROCm 7.2 has libamdhip64-dev {version}: pin the packages" in found


def test_of_a_vendor_image_nothing_is_known():
    assert rocm_drift(ROCM, {"bash": "5"}) == []


def test_findings_are_told_together():
    refuse_drift([])
    with pytest.raises(DriftError, match=r"have changed(?s:.*)one(?s:.*)two(?s:.*)decide for each line"):
        refuse_drift(["one", "two"])
