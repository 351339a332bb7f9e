"""The wheel imports without GPU and ROCm. A failing import says what to do."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import flash_attn_rocm
import pytest
import torch
from flash_attn_rocm.library import host
from flash_attn_rocm.machine import requirements
from flash_attn_rocm.values.floors import PYTHON_FLOOR


def python(*arguments, **environment):
    """Run this Python in a new process. PyTorch and the wheel are present, as for a user."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_installed_package_is_tested_and_not_a_checkout():
    package = Path(flash_attn_rocm.__file__).resolve()
    assert "site-packages" in package.parts
    assert not (Path.cwd() / "kernels").exists()


def test_version_names_the_rocm_version_unless_it_is_for_every_one():
    version = flash_attn_rocm.__version__
    assert version == importlib.metadata.version("flash-attn-rocm")
    rocm = requirements.wheel_rocm()
    assert version.partition("+")[1:] == (
        ("", "") if requirements.is_public(version) else ("+", f"rocm{rocm}")
    )


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.1.0", "2.10 or newer, a build for ROCm 6.4 or newer, with"),
        ("0.1.0+rocm7.2", "2.10 or newer, its build for ROCm 7.2, or the next, with"),
        ("unknown", "2.10 or newer, a build for ROCm, with"),
    ],
)
def test_which_pytorch_a_wheel_asks_for(monkeypatch, version, words):
    monkeypatch.setattr(requirements, "package_version", lambda: version)
    assert words in requirements.install_torch()


def test_everything_public_is_there():
    assert [name for name in flash_attn_rocm.__all__ if not hasattr(flash_attn_rocm, name)] == []


def test_the_package_is_typed():
    assert (Path(flash_attn_rocm.__file__).parent / "py.typed").is_file()


def test_import_registers_the_operators_and_brings_no_hip_runtime():
    code = (
        "import flash_attn_rocm, torch\n"
        "print(torch.ops.flash_attn_rocm.fwd.default._schema)\n"
        "assert 'libamdhip64' not in open('/proc/self/maps').read()\n"
        "import sys; assert 'torch._dynamo' not in sys.modules, 'it costs more than a second'\n"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (
        "flash_attn_rocm::fwd(Tensor q, Tensor k, Tensor v, Tensor? alibi_slopes, Tensor? cu_seqlens_q, "
        "Tensor? cu_seqlens_k, Tensor? seqused_k, Tensor? leftpad_k, Tensor? block_table, "
        "Tensor? cache_batch_idx, Tensor? attn_mask, Tensor? sink, Tensor? k_descale, Tensor? v_descale, "
        "Tensor(a!) out, Tensor(b!) lse, Tensor? rng_state, Tensor(c!)? partial_out, "
        "Tensor(d!)? partial_lse, float softmax_scale, SymInt window_left, SymInt window_right, "
        "float softcap, float dropout_p, SymInt max_seqlen_q, "
        "SymInt max_seqlen_k, str path) -> ()"
    )


@pytest.mark.parametrize("name", ["fwd", "plan_bwd", "instances", "limits", "device_arch"])
def test_operator(name):
    assert hasattr(torch.ops.flash_attn_rocm, name)


def missing(name):
    def load():
        message = f"No module named {name!r}"
        raise ModuleNotFoundError(message, name=name)

    return load


def broken():
    message = "libsomething.so.1: cannot open shared object file"
    raise OSError(message)


def test_no_torch():
    with pytest.raises(
        ImportError, match=r"PyTorch is not installed: install PyTorch 2\.10 or newer, (its|a) build for"
    ):
        requirements.import_torch(missing("torch"))


@pytest.mark.parametrize(("load", "words"), [(missing("sympy"), "'sympy'"), (broken, "libsomething.so.1")])
def test_broken_torch(load, words):
    with pytest.raises(ImportError, match="PyTorch is installed but does not import") as caught:
        requirements.import_torch(load)
    assert words in str(caught.value)
    assert "then install PyTorch" in str(caught.value)
    assert requirements.REMOVE_TORCH in str(caught.value).splitlines()[2]


@pytest.mark.parametrize("version", ["2.9.1", "2.9.0+rocm6.4", "1.13.1"])
def test_old_torch(version):
    step = requirements.unmet_torch(version)
    assert f"PyTorch {version} is too old: the wheel needs 2.10 or newer" in step.words


@pytest.mark.parametrize("version", ["2.10.0", "2.13.0+cpu", "2.14.0a0+git1234", "3.0.0"])
def test_new_enough_torch(version):
    assert requirements.unmet_torch(version) is None


@pytest.mark.parametrize("place", [("win32", "ARM64"), ("darwin", "arm64"), ("linux", "aarch64")])
def test_other_platforms(place):
    words = requirements.unmet_platform(*place).words
    assert "the wheels are for Linux and Windows on x86_64, and this is " + " ".join(place) in words


@pytest.mark.parametrize("place", [("linux", "x86_64"), ("win32", "AMD64")])
def test_platforms_that_wheels_are_for(place):
    assert requirements.unmet_platform(*place) is None


@pytest.mark.parametrize("version", [(3, 9), (2, 7)])
def test_old_python(version):
    words = requirements.unmet_python(version).words
    assert f"Python {version[0]}.{version[1]} is too old: the wheel needs 3.10 or newer" in words


def test_the_oldest_python_is_the_one_that_pip_is_told():
    floor = ".".join(map(str, PYTHON_FLOOR))
    assert importlib.metadata.metadata("flash-attn-rocm")["Requires-Python"] == f">={floor}"
    assert requirements.unmet_python(PYTHON_FLOOR) is None


@pytest.mark.parametrize(
    ("glibc", "bad"), [("2.27", True), ("2.28", False), ("", False), ("2.9", True), ("3.0", False)]
)
def test_old_glibc(glibc, bad):
    step = requirements.unmet_glibc(glibc)
    assert (step is not None) == bad
    assert not bad or f"glibc {glibc} is too old: the wheel needs 2.28" in step.words


def test_this_machine_has_all_that_is_needed():
    assert requirements.unmet() == []
    assert requirements.glibc().startswith("2.")


def test_an_import_names_everything_that_is_wrong_at_once(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, platform, sys\n"
        "platform.machine = lambda: 'aarch64'\n"
        "os.confstr = lambda name: 'glibc 2.17'\n"
        "import torch\n"
        "torch.__version__ = '2.4.0'\n"
    )
    done = python("-c", "import flash_attn_rocm", PYTHONPATH=str(tmp_path))
    said = done.stderr.partition("cannot work here:\n")[2]
    steps = [
        requirements.unmet_platform("linux", "aarch64"),
        requirements.unmet_glibc("2.17"),
        requirements.unmet_torch("2.4.0"),
    ]
    assert said.splitlines() == requirements.numbered(steps)
    report = python("-m", "flash_attn_rocm", "doctor", PYTHONPATH=str(tmp_path))
    assert report.returncode == 1
    assert "\n".join(requirements.numbered(steps)) in report.stdout


def test_missing_library(tmp_path):
    with pytest.raises(ImportError, match="is missing: this is a source checkout or a damaged installation"):
        host.load(tmp_path / "libflash_attn_rocm.so")


def test_damaged_library(tmp_path):
    damaged = tmp_path / "libflash_attn_rocm.so"
    damaged.write_bytes(b"\x7fELF nothing more")
    with pytest.raises(ImportError, match="does not load into PyTorch") as caught:
        host.load(damaged)
    assert "next: install the wheel again" in str(caught.value)


def without_torch(folder):
    """An environment where importing torch fails as if it were missing."""
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch': raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
        "sys.meta_path.insert(0, NoTorch())\n",
        encoding="utf-8",
    )
    return {"PYTHONPATH": str(folder)}


def test_import_without_torch_fails_in_words(tmp_path):
    done = python("-c", "import flash_attn_rocm", **without_torch(tmp_path))
    assert done.returncode == 1
    assert (
        "RequirementError: flash_attn_rocm cannot work here:\n  1. PyTorch is not installed: " in done.stderr
    )


def test_the_doctor_runs_without_torch(tmp_path):
    done = python("-m", "flash_attn_rocm", "doctor", **without_torch(tmp_path))
    assert (done.returncode, done.stderr) == (1, "")
    assert "without a PyTorch that imports" in done.stdout.splitlines()[0]
    assert "1. PyTorch is not installed: " in done.stdout
    assert "PyTorch implementation answers" not in done.stdout
