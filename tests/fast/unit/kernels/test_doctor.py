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
