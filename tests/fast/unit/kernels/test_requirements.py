"""The required PyTorch builds by system. For the rest see test_import.py of tests/installed/wheel."""

import sys

import pytest

from tests.fast.unit.kernels.test_screens import package  # noqa: F401 - a fixture
from wheel_builder.index.finder.steps import BUILDS_FOR_WINDOWS, SELECTOR

FITTING = "TheRock's builds for Windows, with PyTorch 2.10 and later"
AMDS = "AMD's own wheels for ROCm 7.2 on Windows have PyTorch 2.9, which is too old"


@pytest.fixture(params=["linux", "win32"])
def requirements(package, monkeypatch, request):  # noqa: F811
    """The requirements on that system, for the wheel for every ROCm version."""
    monkeypatch.setattr(sys, "platform", request.param)
    found = package("machine.requirements")
    monkeypatch.setattr(found, "package_version", lambda: "0.1.0")
    return found


def test_a_pytorch_that_is_too_old_is_told_which_fits(requirements):
    """AMD's own wheels for ROCm 7.2 on Windows have 2.9.1."""
    step = requirements.unmet_torch("2.9.1+rocm7.2.1")
    assert step.words.startswith(
        "PyTorch 2.9.1+rocm7.2.1 is too old: the wheel needs 2.10 or newer; remove it"
    )
    on_windows = sys.platform == "win32"
    page = BUILDS_FOR_WINDOWS if on_windows else SELECTOR
    assert page in step.words
    assert step.commands == (requirements.REMOVE_TORCH, f"python -m webbrowser {page}")
    assert (FITTING in step.words) == (AMDS in step.words) == on_windows


def test_where_none_is_installed_the_same_is_told(requirements):
    def missing():
        raise ModuleNotFoundError(name="torch")

    with pytest.raises(requirements.RequirementError) as caught:
        requirements.import_torch(missing)
    assert (FITTING in str(caught.value)) == (sys.platform == "win32")


@pytest.mark.parametrize("version", ["2.10.0+rocm7.11", "2.14.1"])
def test_builds_of_therock_fit(requirements, version):
    assert requirements.unmet_torch(version) is None
