"""The number of compute units of a GPU, for every way in which runtimes count.

From the runtimes' sources (ROCm/clr, ROCm/rocm-systems: rocdevice.cpp, paldevice.cpp): MultiprocessorCount is
halved in the mode in which a workgroup may run on two units (gfx10 and later, unless GPU_ENABLE_WGP_MODE=0).
PhysicalMultiProcessorCount exists on Windows and, in later versions, on Linux. MaxThreadsPerMultiProcessor is
then the value of two units.
"""

import subprocess
from pathlib import Path

import pytest

from tests.tools.programs import CHECKOUT, compile_program
from wheel_builder.tables.archs import known_archs, known_gpus


@pytest.fixture(scope="session")
def units(builder_image, tmp_path_factory):
    """``units((arch, physical, multiprocessors, threads), ...)``"""
    sources = (Path(__file__).with_name("programs") / "units.cpp", CHECKOUT / "kernels/host/plan/plan.cpp")
    program = compile_program(builder_image, tmp_path_factory.mktemp("units") / "units", *sources)

    def ask(*devices):
        text = "\n".join(" ".join(map(str, device)) for device in devices)
        done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
        return [int(line) for line in done.stdout.splitlines()]

    return ask


def pairs_of(gpu):
    return known_archs()[gpu.code_object].isa.cus_of_workgroup


def threads_of(gpu):
    isa = known_archs()[gpu.code_object].isa
    return isa.wave * isa.simds * isa.waves_per_simd


@pytest.mark.parametrize("gpu", known_gpus().values(), ids=lambda gpu: gpu.name)
def test_the_largest_gpu_of_each_arch_has_its_units_in_every_runtime(units, gpu):
    there, each, threads = gpu.compute_units, pairs_of(gpu), threads_of(gpu)
    older = (gpu.device_name, there, there // each, threads)
    newer = (gpu.device_name, there // each, there // each, threads * each)
    single = (gpu.device_name, there, there, threads)  # GPU_ENABLE_WGP_MODE=0
    mixed = (gpu.device_name, there, there // each, threads * each)
    assert units(older, newer, single, mixed) == [there] * 4


def test_a_smaller_gpu_than_half_of_the_largest_is_not_taken_for_pairs(units):
    """Radeon 740M and 780M, both gfx1103: four units, and twelve in pairs."""
    assert units(("gfx1103", 4, 2, 1024), ("gfx1103", 6, 6, 2048)) == [4, 12]


def test_cdna_and_unknown_archs_are_as_they_are(units):
    assert units(("gfx942:sramecc+:xnack-", 304, 304, 4096), ("gfx900", 64, 64, 4096)) == [304, 64]


def test_only_rdna_runs_a_workgroup_on_two_units():
    shared = {arch.isa.family for arch in known_archs().values() if arch.isa.cus_of_workgroup == 2}
    alone = {arch.isa.family for arch in known_archs().values() if arch.isa.cus_of_workgroup == 1}
    assert (shared, alone) == ({"rdna"}, {"cdna"})
