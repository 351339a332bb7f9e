"""matrix.yaml as users of the index see it."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.tools.made.matrices import with_examples
from wheel_builder.matrix.catalogue import Gpu, catalogue_of
from wheel_builder.matrix.model import WINDOWS
from wheel_builder.matrix.plan import NOT_ON_WINDOWS
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.tables.archs import known_gpus
from wheel_builder.tables.package import package_module

CHECKOUT = Path(__file__).parents[4]
MATRIX = load_matrix(CHECKOUT / "matrix.yaml")


def test_every_arch_of_the_matrix_is_served_or_has_a_reason():
    catalogue = catalogue_of(MATRIX)
    assert [gpu.arch for gpu in catalogue.gpus if not gpu.reason] == [arch.name for arch in MATRIX.archs]
    assert {gpu.arch for gpu in catalogue.gpus if gpu.reason} == {o.name for o in MATRIX.other_archs}
    [gpu] = [gpu for gpu in catalogue.gpus if gpu.arch == "gfx908"]
    assert replace(gpu, not_with=(), pci_ids=(), elsewhere=()) == Gpu(
        "gfx908", ("Instinct MI100",), "", ("Arcturus",), (), "gfx908"
    )


def test_the_archs_that_rocm_does_not_serve_on_windows_say_so():
    gpus = catalogue_of(MATRIX).gpus
    missing = {gpu.code for gpu in gpus if dict(gpu.not_with).get(WINDOWS) == NOT_ON_WINDOWS}
    served = {gpu.code for gpu in gpus if not gpu.reason} - missing
    assert served == set(MATRIX.public.windows)
    assert missing == {"gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"}
    [deck] = [gpu for gpu in gpus if gpu.arch == "gfx1033"]
    assert dict(deck.not_with) == {WINDOWS: "HIP's runtime for Windows does not know the GPU"}


def test_a_gpu_that_runs_the_code_of_another_says_whose_and_what_pytorch_needs():
    gpus = {gpu.arch: gpu for gpu in catalogue_of(MATRIX).gpus}
    assert (gpus["gfx1036"].code, gpus["gfx1036"].reason) == ("gfx1030", "")
    assert gpus["gfx1036"].override == "export HSA_OVERRIDE_GFX_VERSION=10.3.0"
    assert (gpus["gfx1030"].code, gpus["gfx1030"].override) == ("gfx1030", "")
    assert Gpu("gfx90c", (), "none was built").code == "gfx90c"


def test_the_override_of_a_gpu_is_the_arch_whose_code_it_runs():
    """As the wheel's doctor reads it (machine/override.py)."""
    override = package_module("machine.override")
    for gpu in known_gpus().values():
        assert gpu.torch_override in ("", override.value_for(gpu.code_object))
        assert override.arch_of(gpu.torch_override) in ("", gpu.code_object)


def test_rdna_1_has_no_override():
    """As gfx1030 these GPUs hang, and PyTorch's own builds have kernels for none of them."""
    gpus = [gpu for gpu in catalogue_of(MATRIX).gpus if gpu.code in ("gfx1010", "gfx1012")]
    assert [gpu.arch for gpu in gpus] == ["gfx1010", "gfx1011", "gfx1012"]
    assert {(gpu.override, gpu.elsewhere) for gpu in gpus} == {("", ("no torch",))}


def test_no_device_has_two_archs():
    gpus = catalogue_of(MATRIX).gpus
    names = [name for gpu in gpus for name in (*gpu.devices, *gpu.code_names, *gpu.processors)]
    assert sorted(names) == sorted(set(names))
    numbers = [number for gpu in gpus for number in gpu.pci_ids]
    assert len(numbers) > 100
    assert sorted(numbers) == sorted(set(numbers))


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("Radeon RX 7900M", "gfx1100"),
        ("Radeon RX 6800M", "gfx1031"),
        ("Radeon RX 7700S", "gfx1102"),
        ("Ryzen 5700G", "gfx90c"),
        ("Ryzen 8945HS", "gfx1103"),
        ("Ryzen AI Max+ 395", "gfx1151"),
    ],
)
def test_names_that_say_little_of_their_chip(name, arch):
    """An RX 6800M has another chip than an RX 6800, and an RX 7900M has the RX 7900's."""
    assert [g.arch for g in catalogue_of(MATRIX).gpus if name in (*g.devices, *g.processors)] == [arch]


def test_rocm_versions_without_a_wheel_have_their_reasons():
    missing = {each.version: each.reason for each in catalogue_of(with_examples()).missing_rocm}
    assert missing["5.7"] == "no supported torch (>= 2.10) runs on it"
    assert missing["7.1"].startswith("not built in our CI: it has no access to the vendor's image")
    assert "7.2" not in missing


def test_rocm_versions_with_a_wheel_are_those_of_the_plan():
    assert catalogue_of(MATRIX).built_rocm == ("7.2", "6.4")
