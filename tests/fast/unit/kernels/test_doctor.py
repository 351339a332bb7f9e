"""The doctor's answer to impossible numbers. tests/installed/wheel/tools/test_doctor.py has the rest."""

from dataclasses import replace

import pytest

from tests.fast.unit.kernels.test_screens import package  # noqa: F401 - a fixture
from tests.installed.shared.machines import healthy
from wheel_builder.tables.archs import known_gpus


@pytest.fixture
def described(package):  # noqa: F811
    """``described(arch, units)``: the line of a GPU."""
    facts, doctor = package("diagnosis.facts"), package("diagnosis.doctor")

    def describe(arch, units):
        gpu = replace(healthy(facts).gpus[0], name="Radeon", arch=arch, compute_units=units)
        return dict(doctor.diagnose(replace(healthy(facts), gpus=(gpu,))).findings)["GPU 0"]

    return describe


@pytest.mark.parametrize("gpu", known_gpus().values(), ids=lambda gpu: gpu.name)
def test_more_compute_units_than_the_largest_gpu_has_are_told(described, gpu):
    most = gpu.compute_units
    words = f"; the runtime reports {most + 1} compute units, but the largest known {gpu.name} has {most}: "
    assert words in described(gpu.device_name, most + 1)
    assert "compute units" not in described(gpu.device_name, most)
    assert "compute units" not in described(gpu.device_name, 0), "not asked"


def test_of_an_unknown_arch_no_number_is_odd(described):
    assert "compute units" not in described("gfx900", 1000)


NAME = "flash-attn-rocm-tuning-gfx942"
PIP = f"python -m pip install {NAME}=="


@pytest.fixture
def told(package):  # noqa: F811
    """``told(version)``: the report about a machine with this version of its candidates."""
    facts, doctor, tuning = map(package, ("diagnosis.facts", "diagnosis.doctor", "machine.tuning"))

    def report(version):
        return doctor.diagnose(replace(healthy(facts), tuning=(tuning.Tuning(NAME, version),)))

    return report


def test_without_candidates_the_doctor_says_what_to_type(told):
    line = dict(told("").findings)["other rows"]
    assert line.startswith(
        f"the index may have {NAME}, whose rows python -m flash_attn_rocm tune times: {PIP}"
    )
    assert told("").advice == ()


def test_candidates_of_this_wheel_need_nothing(told):
    found = told("0.1.0+rocm7.2")
    assert dict(found.findings)["other rows"] == (
        f"{NAME} 0.1.0+rocm7.2: python -m flash_attn_rocm tune times its rows"
    )
    assert found.advice == ()


def test_after_an_upgrade_the_candidates_of_the_old_wheel_are_named(told):
    found = told("0.0.9")
    assert dict(found.findings)["other rows"] == f"{NAME} 0.0.9, of another wheel: its rows are not used"
    [step] = found.advice
    assert step.words.startswith(f"{NAME} 0.0.9 does not belong to flash_attn_rocm 0.1.0+rocm7.2")
    assert step.commands[0].startswith(PIP)
    assert step.commands[1] == f"python -m pip uninstall --yes {NAME}"


def test_each_distribution_is_named_once(package):  # noqa: F811
    """Two GPUs that run the same code need one."""
    tuning = package("machine.tuning")
    assert tuning.installed(["gfx942", "gfx942", "gfx90a"]) == (
        tuning.Tuning("flash-attn-rocm-tuning-gfx942"), tuning.Tuning("flash-attn-rocm-tuning-gfx90a"),
    )  # fmt: skip
