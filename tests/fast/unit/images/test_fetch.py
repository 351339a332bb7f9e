"""Wheels for an image, fetched in a container with the host's settings."""

import zipfile

import pytest

from wheel_builder.base.errors import ImageError
from wheel_builder.base.process import Completed
from wheel_builder.images.build import ImageBuild
from wheel_builder.images.fetch import cuda_needs, fetch_wheels, refuse_cuda, requirements_of, torch_rocm
from wheel_builder.images.hostenv import HostSettings


def torch_wheel(folder, *needs):
    path = folder / "torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    lines = ["Metadata-Version: 2.1", "Name: torch", "Version: 2.13.0"]
    lines += [f"Requires-Dist: {need}" for need in needs]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("torch-2.13.0.dist-info/METADATA", "\n".join(lines) + "\n")
    return path


def test_the_container_has_a_network_the_settings_and_the_callers_user(tmp_path):
    commands = []

    def run(argv, **kwargs):
        commands.append([str(part) for part in argv])
        return Completed("", 0)

    host = HostSettings((("index-url", "https://mirror/simple"),))
    lists, log = [tmp_path / "some-requirements.txt"], tmp_path / "log"
    fetch_wheels("image:1", ["python3", "numpy"], tmp_path, files=lists, host=host, log=log, run=run)
    [argv] = commands
    mounts = [argv[n + 1] for n, part in enumerate(argv) if part == "--mount"]
    assert argv[argv.index("--network") + 1] == "bridge"
    assert argv[-5:] == ["image:1", "sh", "/run/files/fetch_wheels.sh", "python3", "numpy"]
    assert "PIP_CONFIG_FILE=/run/host-settings/conf/pip.conf" in argv
    assert any(m.endswith("target=/wheels") for m in mounts)
    assert any(m.endswith("target=/run/files/some-requirements.txt,readonly") for m in mounts)


def test_a_cpu_build_of_torch_passes(tmp_path):
    wheel = torch_wheel(tmp_path, "filelock", "sympy>=1.13.3")
    refuse_cuda(wheel)
    assert requirements_of(wheel) == ("filelock", "sympy>=1.13.3")


def test_a_cuda_build_of_torch_is_refused_before_its_gigabytes_come(tmp_path):
    wheel = torch_wheel(tmp_path, "filelock", "nvidia-cublas-cu12==12.8; platform_system == 'Linux'")
    with pytest.raises(ImageError, match=r"chose a CUDA build of torch; it needs nvidia-cublas-cu12==12\.8"):
        refuse_cuda(wheel)


def test_a_rocm_build_of_torch_is_no_cuda_build():
    assert cuda_needs(["filelock", "triton-rocm==3.6.0", "numpy; extra == 'cuda-tools'"]) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("hip: Optional[str] = '7.2.53210-1e2a'", "7.2.53210-1e2a"),
        ('hip = "6.4.1"', "6.4.1"),
        ("hip: Optional[str] = None", ""),
        ("hip_other = '7.2'\ncuda = '13.0'", ""),
    ],
)
def test_the_wheel_says_which_rocm_torch_was_built_with(tmp_path, line, found):
    wheel = tmp_path / "torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("torch/version.py", f"__version__ = '2.13.0'\n{line}\n")
    assert torch_rocm(wheel) == found


@pytest.mark.parametrize("folder", [True, False])
def test_torch_comes_from_an_index_or_from_a_folder_of_wheels(tmp_path, folder):
    (tmp_path / "given").mkdir()
    commands = []

    def run(argv, **kwargs):
        commands.append([str(part) for part in argv])
        return Completed("", 0)

    place = str(tmp_path / "given") if folder else "https://builds/rocm"
    build = ImageBuild(
        "a.Dockerfile", "image:1", {}, tmp_path / "log", run, torch_index=place, host=HostSettings()
    )
    build.fetch("image:1-system", ["torch"], tmp_path)
    [argv] = commands
    given = ["--find-links", "/run/files/given"] if folder else ["--extra-index-url", place]
    assert argv[-4:] == ["python3", "torch", *given][-4:]
    mounted = f"type=bind,source={tmp_path}/given,target=/run/files/given,readonly" in argv
    assert mounted == folder
