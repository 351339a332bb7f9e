"""The runtime image's decisions. For building see tests/engine/container."""

from contextlib import contextmanager

import pytest
import yaml

from tests.conftest import CHECKOUT
from wheel_builder.base.errors import ImageError
from wheel_builder.base.process import Completed
from wheel_builder.base.store import Store
from wheel_builder.build import runtime_image
from wheel_builder.build.runtime_image import (
    BASE_PYTHON,
    HEALTHY,
    NO_TORCH,
    Python,
    Recipe,
    Torch,
    _check,
    labels,
    refuse_other_torch,
    runtime_packages,
)  # fmt: skip
from wheel_builder.build.source import Source, read_source
from wheel_builder.images.bases import Base
from wheel_builder.images.size import MIB, refuse_too_large, size_text
from wheel_builder.matrix.model import Job, Rocm
from wheel_builder.matrix.reading import load_matrix

CPU = Torch("torch-2.13.0+cpu.whl")
ROCM = Torch("torch-2.13.0+rocm7.2.whl", "7.2.53210")
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
    source = Source("c0ffee", "git+https://forge/project", (), "", {}, "")
    found = labels(Job(VENDOR, ("gfx908",)), wheel, CPU, source)
    assert found["org.opencontainers.image.version"] == "0.1.0+rocm7.0"
    assert found["flash-attn-rocm.wheel.sha256"] == (
        "ba59926159d2aa256eb8739b8da7e2b574b960e1202c6d624cbe981cef996c91"
    )
    assert found["flash-attn-rocm.archs"] == "gfx908"
    assert found["flash-attn-rocm.torch"] == "torch-2.13.0+cpu.whl"
    assert found["flash-attn-rocm.torch.build"] == "CPU"
    assert found["org.opencontainers.image.source"] == "https://forge/project"
    assert found["org.opencontainers.image.revision"] == "c0ffee"


def test_what_is_not_known_has_no_label(tmp_path):
    wheel = tmp_path / "flash_attn_rocm-0.1.0+rocm7.0-py3-none-manylinux_2_28_x86_64.whl"
    wheel.write_bytes(b"wheel")
    found = labels(Job(VENDOR, ("gfx908",)), wheel, NO_TORCH, Source("", "", (), "", {}, ""))
    assert not {"org.opencontainers.image.source", "flash-attn-rocm.torch"} & set(found)
    assert all(found.values())


def test_the_slim_image_differs_by_its_name_and_has_no_torch_to_load(tmp_path):
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"wheel")
    whole, slim = (
        Recipe(Job(VENDOR, ("gfx908",)), wheel, BASE_PYTHON, torch, "") for torch in ("torch==2.13.0", "")
    )
    assert (whole.version, slim.version) == ("7.0", "7.0-slim")
    assert (whole.arguments["MODULES"], slim.arguments["MODULES"]) == ("torch numpy flash_attn_rocm", "")
    assert whole.inputs != slim.inputs


def test_a_changed_checkout_says_so():
    def git(status):
        said = {"rev-parse": "c0ffee\n", "status": status, "remote": "https://forge/project\n"}
        return lambda argv, **kwargs: Completed(said[argv[3]], 0)

    clean = read_source(CHECKOUT, run=git(""))
    assert (clean.url, clean.revision) == ("https://forge/project", "c0ffee")
    assert read_source(CHECKOUT, run=git(" M kernels/a\0")).revision == "c0ffee-changed"


def test_a_folder_without_git_has_no_source():
    found = read_source(CHECKOUT, run=lambda argv, **kwargs: Completed("fatal", 128))
    assert (found.url, found.revision) == ("", "")


def sized(above):
    return {"bytes": (900 + above) * MIB, "base": 120 * MIB, "torch": 780 * MIB, "above": above * MIB}


def test_an_image_within_its_budget_is_taken():
    refuse_too_large("rocm-fa:7.2", sized(400))
    assert size_text(sized(400)) == "1300 MiB: base 120, torch 780, all else 400"


def test_an_image_over_its_budget_is_refused_in_words():
    with pytest.raises(ImageError) as caught:
        refuse_too_large("rocm-fa:7.2", sized(401))
    assert str(caught.value).splitlines() == [
        "rocm-fa:7.2 has 401 MiB above its base and torch; the budget is 400",
        "  found 1301 MiB: base 120, torch 780, all else 401",
        *str(caught.value).splitlines()[2:],
    ]
    assert "docker history rocm-fa:7.2" in str(caught.value)


def test_the_compose_example_names_the_devices_and_their_groups_by_number(job):
    text = (CHECKOUT / "dockerfiles/runtime/compose.yaml").read_text()
    service = yaml.safe_load(text)["services"]["rocm-fa"]
    assert service["image"] == f"rocm-fa:${{ROCM:-{job.rocm.version}}}"
    assert service["devices"] == ["/dev/kfd", "/dev/dri"]
    assert [group.partition(":?")[0] for group in service["group_add"]] == ["${KFD_GROUP", "${RENDER_GROUP"]
    assert "privileged" not in service
    assert service["cap_drop"] == ["ALL"]


def test_the_compose_examples_work_is_where_its_head_says():
    file = CHECKOUT / "dockerfiles/runtime/compose.yaml"
    [volume] = yaml.safe_load(file.read_text())["services"]["rocm-fa"]["volumes"]
    source, target, mode = volume.split(":")
    # Relative paths start at the file: without --project-directory, compose starts from its folder.
    assert (file.parent / source).resolve() == CHECKOUT / "work"
    assert (target, mode) == ("/mnt/work", "ro")
    assert "in the checkout's work/" in file.read_text()


@pytest.mark.parametrize(
    ("torch", "suffix", "words"),
    [
        (ROCM, "", "FlashAttention for AMD GPUs, with PyTorch's build for ROCm 7.2.53210"),
        (CPU, "-cpu", "flash-attn-rocm with a CPU build of PyTorch, which can use no GPU"),
        (NO_TORCH, "-slim", "flash-attn-rocm and the HIP runtime, without PyTorch, which has to be added"),
    ],
)
def test_name_and_description_say_which_torch_is_inside(tmp_path, torch, suffix, words):
    wheel = tmp_path / "flash_attn_rocm-0.1.0+rocm7.0-py3-none-manylinux_2_28_x86_64.whl"
    wheel.write_bytes(b"wheel")
    found = labels(Job(VENDOR, ("gfx908",)), wheel, torch, Source("", "", (), "", {}, ""))
    assert found["org.opencontainers.image.title"] == f"rocm-fa 7.0{suffix}"
    assert found["org.opencontainers.image.description"] == words
    assert torch.suffix == suffix


def test_only_pytorchs_rocm_build_is_for_the_gpu():
    refuse_other_torch(ROCM, "7.0", for_gpu=True)
    refuse_other_torch(CPU, "7.0", for_gpu=False)
    for torch, found in ((CPU, "torch-2.13.0+cpu.whl, a CPU build"), (NO_TORCH, "no torch")):
        with pytest.raises(ImageError, match="an image for the GPU needs PyTorch's ROCm build") as caught:
            refuse_other_torch(torch, "7.0", for_gpu=True)
        assert f"found {found}\n  next: give PyTorch's builds for ROCm 7.0: --torch-index" in str(
            caught.value
        )


def test_a_torch_of_another_rocm_is_refused():
    with pytest.raises(ImageError, match=r"is built for ROCm 7\.2\.53210; the image is one of ROCm 6\.4"):
        refuse_other_torch(ROCM, "6.4", for_gpu=False)


def doctor_says(first, status=0, *, healthy=True):
    """A fake engine: the doctor's first line and status, and the health check's."""

    def run(argv, **kwargs):
        if HEALTHY in argv:
            return Completed("", 0 if healthy else 1)
        return Completed(f"{first}\nmore\n", status)

    return run


def test_an_image_that_works_is_taken(tmp_path):
    log = tmp_path / "log"
    _check("image", CPU, log, doctor_says("x with PyTorch 2.13.0+cpu, a CPU build, which cannot", 1))
    _check("image", ROCM, log, doctor_says("x with PyTorch 2.13.0, a ROCm 7.2.53210 build"))
    _check("image", NO_TORCH, log, doctor_says("x without a PyTorch that imports", 1))


@pytest.mark.parametrize(
    ("torch", "engine", "words"),
    [
        (CPU, doctor_says("sh: python: not found", 127), "does not run its doctor; it said: more"),
        (CPU, doctor_says("a CPU build", healthy=False), "is not healthy by its own check"),
        (ROCM, doctor_says("x, a CPU build, which cannot"), "has another torch than it was given"),
        (NO_TORCH, doctor_says("x, a CPU build", 1), "has another torch than it was given"),
    ],
)
def test_an_image_that_does_not_is_refused(tmp_path, torch, engine, words):
    with pytest.raises(ImageError, match=words):
        _check("image", torch, tmp_path / "log", engine)


def test_a_build_says_what_it_does_and_how_long_it_took(tmp_path, monkeypatch):
    """The build was silent for minutes."""
    wheel = tmp_path / "a-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")

    @contextmanager
    def folder(*_):
        yield tmp_path

    monkeypatch.setattr(runtime_image, "context", folder)
    monkeypatch.setattr(runtime_image, "ensure_base", lambda *_, **__: Base("b", "", ""))
    monkeypatch.setattr(runtime_image, "ImageBuild", Building)
    monkeypatch.setattr(runtime_image, "torch_rocm", lambda _: "")
    monkeypatch.setattr(runtime_image, "read_source", lambda *_, **__: Source("", "", (), "", {}, ""))
    monkeypatch.setattr(runtime_image, "_finish", lambda *_: {"ref": "rocm-fa:7.0-cpu"})
    monkeypatch.setattr(runtime_image, "stored_image", lambda kind, inputs, store, make, run: make(tmp_path))
    said = []
    facts = runtime_image.build_runtime_image(
        Job(VENDOR, ("gfx908",)), wheel, Store(tmp_path),
        package=load_matrix(CHECKOUT / "matrix.yaml").package, checkout=CHECKOUT, logs=tmp_path,
        tell=said.append,
    )  # fmt: skip
    assert (tmp_path / "wheels" / wheel.name).is_file()
    assert said == [
        "takes the base image vendor/rocm:7.0",
        "installs the HIP runtime and Python",
        "fetches torch==2.13.0",
        "installs a-1-py3-none-any.whl, torch and NumPy",
        "runs the finished image, and weighs it",
    ]
    assert facts["seconds"] >= 0


class Building:
    """Stands in for the build of an image."""

    log = None

    def __init__(self, *_, **__):
        pass

    def system(self, folder):
        return folder

    def fetch_torch(self, system, torch, wheels):
        return wheels / "torch-2.13.0+cpu.whl"

    def fetch(self, *_):
        pass

    def finish(self, *_, **__):
        pass
