"""The doctor on machines with several GPUs: each gets a line and a cure, and only a right one is "ready"."""

import importlib.metadata
from dataclasses import replace

import pytest

from tests.fast.unit.kernels.test_screens import package  # noqa: F401 - a fixture
from tests.installed.shared.machines import ARCHS, healthy

SERVED = (("fp16 head_dim 64", ""),)
# Archs of PyTorch's own builds for ROCm 7.2, as far as these tests need them.
TORCH = ("gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1200", "gfx1201")
INSTALL = "python -m pip install --index-url https://repo.amd.com/rocm/whl-multi-arch/"
ONLY = "HIP_VISIBLE_DEVICES"


NO_GPU = "=10.3.0 is for node 0 of the driver, which is no GPU; GPUs are the nodes 1 (gfx1036), 2 (gfx1201)"


class Machine:
    """A machine with the GPUs ``archs`` in PyTorch's order. Node 0 of the driver is the CPU."""

    def __init__(self, package, archs, listed=None, **values):  # noqa: F811
        facts, self.doctor = package("diagnosis.facts"), package("diagnosis.doctor")
        gpus = tuple(facts.Gpu(n, f"Radeon {n}", arch, SERVED) for n, arch in enumerate(archs))
        there = enumerate(archs if listed is None else listed)
        nodes = tuple(facts.Gpu(n, "AMD GPU", arch, SERVED, node=n + 1) for n, arch in there)
        more = {"gfx1103": "gfx1102", "gfx1201": "gfx1201", "gfx1151": "gfx1151", "gfx1036": "gfx1030"}
        served = {**{arch: arch for arch in ARCHS}, **more}
        given = {"torch_archs": TORCH, "served": tuple(served.items()), **values}
        self.report = self.doctor.diagnose(replace(healthy(facts), gpus=gpus, driver_gpus=nodes, **given))
        self.findings = dict(self.report.findings)
        self.commands = [command for step in self.report.advice for command in step.commands]
        self.words = "\n".join(step.words for step in self.report.advice)

    def verdict(self):
        return self.doctor.text(self.report).split("\n\n")[2].splitlines()[0]


@pytest.fixture
def machine(package):  # noqa: F811
    return lambda *archs, **values: Machine(package, archs, **values)


def test_two_cards_that_everything_has_code_for_are_ready(machine):
    found = machine("gfx1201", "gfx1100")
    assert found.report.ready
    assert found.report.advice == ()
    assert found.verdict() == "Kernels serve this machine."


def test_an_apu_before_the_card(machine):
    """The APU is cuda:0, the default of programs. The doctor once called the machine ready."""
    found = machine("gfx1036", "gfx1201")
    assert not found.report.ready
    assert found.verdict() == "Kernels serve GPU 1, but not yet GPU 0."
    assert found.findings["GPU 0"].endswith("; this PyTorch has no code for it")
    assert "no code" not in found.findings["GPU 1"]
    assert "without kernels for gfx1036 (GPU 0)" in found.words
    assert "it calls itself gfx1030, in PyTorch and here; gfx1036 runs its code" in found.words
    assert found.commands == ["export HSA_OVERRIDE_GFX_VERSION_1=10.3.0", f"export {ONLY}=1"]
    assert "By default programs use GPU 0." in found.words


def test_with_the_override_of_its_node_the_apu_is_ready(machine):
    variable = (("HSA_OVERRIDE_GFX_VERSION_1", "10.3.0"),)
    found = machine("gfx1030", "gfx1201", listed=("gfx1036", "gfx1201"), environment=variable)
    assert found.report.ready
    assert found.report.advice == ()
    assert not [name for name in found.findings if name.startswith("node")]


@pytest.mark.parametrize("arch", ["gfx1010", "gfx1011", "gfx1012"])
def test_rdna_1_gets_no_override(machine, arch):
    """As gfx1030 these GPUs hang."""
    served = (("gfx1011", "gfx1012"), *((each, each) for each in ("gfx1010", "gfx1012", "gfx1030")))
    found = machine(arch, served=served)
    assert "without kernels for " + arch in found.words
    assert found.commands == ["python -m webbrowser https://github.com/ROCm/TheRock/blob/main/RELEASES.md"]
    assert "HSA_OVERRIDE" not in found.words
    given = (("HSA_OVERRIDE_GFX_VERSION", "10.3.0"),)
    found = machine("gfx1030", listed=(arch,), served=served, environment=given)
    assert f"makes every GPU report this arch, and they are {arch}" in found.words
    assert "unset HSA_OVERRIDE_GFX_VERSION" in found.commands


def test_an_override_of_all_is_wrong_for_one_of_two(machine):
    found = machine(
        "gfx1030", "gfx1030", listed=("gfx1036", "gfx1201"),
        environment=(("HSA_OVERRIDE_GFX_VERSION", "10.3.0"),),
    )  # fmt: skip
    assert "makes every GPU report this arch, and they are gfx1036, gfx1201" in found.words
    assert "unset HSA_OVERRIDE_GFX_VERSION" in found.commands


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("HSA_OVERRIDE_GFX_VERSION_2", "=10.3.0 makes node 2 report this arch, and it is gfx1201"),
        ("HSA_OVERRIDE_GFX_VERSION_0", NO_GPU),
    ],
)
def test_an_override_of_the_wrong_node(machine, variable, words):
    """Node numbers start at the CPU, HIP's numbers at the first GPU."""
    found = machine("gfx1036", "gfx1201", environment=((variable, "10.3.0"),))
    assert variable + words in found.words
    assert found.commands[0] == f"unset {variable}"
    assert found.findings[variable] == "10.3.0"


def test_where_nodes_are_not_known_only_the_card_is_shown(machine):
    found = machine("gfx1036", "gfx1201", listed=(), wsl=True)
    assert f"export {ONLY}=1" in found.commands
    assert not [command for command in found.commands if "OVERRIDE" in command]


def test_windows_has_no_override(machine):
    """The variable belongs to ROCm's runtime for Linux. Windows' runtime ignores it."""
    found = machine("gfx1036", listed=(), system="win32")
    assert not [command for command in found.commands if "OVERRIDE" in command]
    assert found.commands == ["python -m webbrowser https://github.com/ROCm/TheRock/blob/main/RELEASES.md"]


def test_a_pytorch_of_another_family(machine):
    """TheRock's builds were for one family each. Every operation failed on a machine called ready."""
    found = machine("gfx1201", torch_archs=("gfx1100", "gfx1101", "gfx1102"))
    assert not found.report.ready
    assert "without kernels for gfx1201 (GPU 0)" in found.words
    assert found.commands == [
        "python -m pip uninstall --yes torch",
        'python -m pip install --index-url https://repo.amd.com/rocm/whl-multi-arch/ "torch[device-gfx1201]"',
    ]


def test_one_build_for_two_cards(machine):
    found = machine("gfx1151", "gfx1201", torch_archs=("gfx942",))
    assert found.commands[1].endswith(' "torch[device-gfx1151,device-gfx1201]"')
    assert found.verdict() == (
        "No kernel serves this machine yet; on CPU tensors the PyTorch implementation answers."
    )


def test_a_build_with_packages_for_devices_of_which_one_is_missing(machine):
    found = machine(
        "gfx1151", "gfx1201", torch_archs=("gfx1201",), torch_devices=("gfx1151", "gfx1201"),
    )  # fmt: skip
    assert "in a separate package, which is not installed" in found.words
    assert found.commands == [f'{INSTALL} "torch[device-gfx1151]==2.13.0+rocm7.2"', f"export {ONLY}=1"]


@pytest.mark.parametrize(
    ("archs", "ready"), [(("gfx11-generic",), True), (("gfx9-generic",), False), ((), True)]
)
def test_code_for_a_family(machine, archs, ready):
    assert machine("gfx1103", torch_archs=archs).report.ready == ready


def test_a_list_of_visible_gpus_is_continued(machine):
    """The list's own numbers count. PyTorch renumbers the remaining GPUs."""
    found = machine("gfx1036", "gfx1201", listed=(), environment=((ONLY, "2, 0"),))
    assert f"export {ONLY}=0" in found.commands
    found = machine("gfx1036", "gfx1201", listed=(), environment=(("CUDA_VISIBLE_DEVICES", "3,1"),))
    assert "export CUDA_VISIBLE_DEVICES=1" in found.commands


def test_a_gpu_that_is_hidden_is_listed(machine):
    found = machine("gfx1201", listed=("gfx1036", "gfx1201"), environment=((ONLY, "1"),))
    assert found.report.ready
    assert found.findings["node 1"].endswith(
        "(listed by the driver, not by this PyTorch, hidden by HIP_VISIBLE_DEVICES)"
    )
    assert "node 2" not in found.findings


def test_files_of_root_are_given_to_the_group_render(machine, package):  # noqa: F811
    """The advice was to join root's group."""
    file = package("diagnosis.facts").DeviceFile
    kfd = file("/dev/kfd", "denied", "root", "crw-------")
    render = file("/dev/dri/renderD128", "denied", "render", "crw-rw----")
    found = machine("gfx1201", kfd=kfd, renders=(render,), user_groups=("users",))
    assert found.commands == [
        "sudo chgrp render /dev/kfd", "sudo chmod g+rw /dev/kfd", 'sudo usermod -aG render "$(id -un)"'
    ]  # fmt: skip
    assert "Do not join that group." in found.words
    found = machine("gfx1201", kfd=kfd, user_groups=("render",))
    assert found.commands == ["sudo chgrp render /dev/kfd", "sudo chmod g+rw /dev/kfd"]


def test_render_nodes_of_other_vendors_are_left_alone(package, tmp_path):  # noqa: F811
    (tmp_path / "dev/dri").mkdir(parents=True)
    for name, vendor in (("renderD128", "0x8086"), ("renderD129", "0x1002"), ("renderD130", "")):
        (tmp_path / "dev/dri" / name).touch()
        if vendor:
            (tmp_path / f"sys/class/drm/{name}/device").mkdir(parents=True)
            (tmp_path / f"sys/class/drm/{name}/device/vendor").write_text(f"{vendor}\n")
    found = package("diagnosis.survey").render_nodes(tmp_path)
    assert [path.name for path in found] == ["renderD129", "renderD130"]


def test_nodes_of_the_driver_are_counted_as_the_runtime_does(package, tmp_path):  # noqa: F811
    """CPUs are nodes. Nodes unreadable in a container are skipped."""
    for node, text in {0: "gfx_target_version 0\n", 1: "", 2: "gfx_target_version 100306\n"}.items():
        (tmp_path / str(node)).mkdir()
        (tmp_path / str(node) / "properties").write_text(text)
    [gpu] = package("diagnosis.survey").driver_gpus(tmp_path)
    assert (gpu.node, gpu.arch) == (1, "gfx1036")


def test_overrides_of_nodes_are_read(package, monkeypatch):  # noqa: F811
    for name in ("HSA_OVERRIDE_GFX_VERSION_1", "HSA_OVERRIDE_GFX_VERSION_X", "HSA_OVERRIDE_GFX_VERSION"):
        monkeypatch.setenv(name, "10.3.0")
    names = [name for name, _ in package("diagnosis.survey")._variables() if name.startswith("HSA_OVERRIDE")]
    assert names == ["HSA_OVERRIDE_GFX_VERSION", "HSA_OVERRIDE_GFX_VERSION_1"]


def test_packages_of_devices(package, monkeypatch):  # noqa: F811
    """A build names every arch it was built for, even archs without an installed package."""
    requires = [
        "filelock", 'amd-torch-device-gfx1151==2.12.0+rocm7.14.0; extra == "device-gfx1151"',
        'amd-torch-device-gfx1201==2.12.0+rocm7.14.0 ; extra == "device-gfx1201"',
    ]  # fmt: skip
    there = {"amd-torch-device-gfx1201": "2.12.0"}

    def version(name):
        if name not in there:
            raise importlib.metadata.PackageNotFoundError(name)
        return there[name]

    devices = package("machine.torch_devices")
    monkeypatch.setattr(importlib.metadata, "requires", lambda _name: requires)
    monkeypatch.setattr(importlib.metadata, "version", version)
    assert devices.offered() == ("gfx1151", "gfx1201")
    assert devices.installed(("gfx942", "gfx1151", "gfx1201")) == ("gfx942", "gfx1201")


def test_an_arch_that_pytorchs_rocblas_has_no_files_for_is_one_without_kernels(package, tmp_path):  # noqa: F811
    """Builds for ROCm 6.4 and newer name gfx906, and their matrix products end the program there."""
    devices = package("machine.torch_devices")
    archs = ("gfx906", "gfx90a", "gfx1010", "gfx1100")
    assert devices.with_products(archs, tmp_path / "absent") == archs
    (tmp_path / "TensileLibrary_lazy_gfx1100.dat").touch()
    (tmp_path / "Kernels.so-000-gfx90a-xnack-.hsaco").touch()
    (tmp_path / "TensileLibrary_gfx1010_fallback.co").touch()
    assert devices.with_products(archs, tmp_path) == ("gfx90a", "gfx1010", "gfx1100")


def test_an_mi50_is_sent_to_builds_with_its_kernels(machine):
    found = machine("gfx906", served=(("gfx906", "gfx906"),))
    assert "without kernels for gfx906 (GPU 0)" in found.words
    assert "“Cannot read TensileLibrary”" in found.words
    assert found.commands == ["python -m webbrowser https://github.com/ROCm/TheRock/blob/main/RELEASES.md"]
