"""The wheel imports without GPU and ROCm, and where it cannot it says what to do."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import flash_attn_rocm
import pytest
import torch
from flash_attn_rocm import _library, _requirements


def python(*arguments, **environment):
    """Run this Python in a new process; PyTorch and the wheel are there as for a user."""
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


def test_version_names_the_rocm_version():
    assert flash_attn_rocm.__version__ == importlib.metadata.version("flash-attn-rocm")
    assert "+rocm" in flash_attn_rocm.__version__
    assert flash_attn_rocm.__version__.endswith(_requirements.wheel_rocm())


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
        "flash_attn_rocm::fwd(Tensor q, Tensor k, Tensor v, Tensor(a!) out, Tensor(b!) lse, "
        "Tensor? alibi_slopes, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? seqused_k, "
        "Tensor? leftpad_k, Tensor? block_table, Tensor? cache_batch_idx, Tensor? rng_state, "
        "Tensor(c!)? partial_out, Tensor(d!)? partial_lse, SymInt max_seqlen_q, SymInt max_seqlen_k, "
        "float softmax_scale, SymInt window_left, SymInt window_right, float softcap, float dropout_p) -> ()"
    )


@pytest.mark.parametrize("name", ["fwd", "explain", "instances", "limits", "device_arch"])
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
    with pytest.raises(ImportError, match="needs PyTorch, which is not installed") as caught:
        _requirements.import_torch(missing("torch"))
    assert "next: install PyTorch 2.10 or newer, its build for ROCm" in str(caught.value)
    assert _requirements.TORCH_PAGE in str(caught.value)


@pytest.mark.parametrize(("load", "words"), [(missing("sympy"), "'sympy'"), (broken, "libsomething.so.1")])
def test_broken_torch(load, words):
    with pytest.raises(ImportError, match="PyTorch is installed but does not import") as caught:
        _requirements.import_torch(load)
    assert words in str(caught.value)
    assert "next: install PyTorch" in str(caught.value)


@pytest.mark.parametrize("version", ["2.9.1", "2.9.0+rocm6.4", "1.13.1"])
def test_old_torch(version):
    problem = _requirements.torch_version_problem(version)
    assert f"needs PyTorch 2.10 or newer, and {version} is installed" in problem
    assert "next: install PyTorch" in problem


@pytest.mark.parametrize("version", ["2.10.0", "2.13.0+cpu", "2.14.0a0+git1234", "3.0.0"])
def test_new_enough_torch(version):
    assert _requirements.torch_version_problem(version) == ""


@pytest.mark.parametrize("place", [("win32", "AMD64"), ("darwin", "arm64"), ("linux", "aarch64")])
def test_other_platforms(place):
    assert "works on Linux x86_64 only, and this is " + " ".join(place) in _requirements.platform_problem(
        *place
    )
    assert "next:" in _requirements.platform_problem(*place)


def test_this_platform():
    assert _requirements.platform_problem("linux", "x86_64") == ""


def test_missing_library(tmp_path):
    with pytest.raises(ImportError, match="is missing: this is a source checkout or a damaged installation"):
        _library.load(tmp_path / "libflash_attn_rocm.so")


def test_damaged_library(tmp_path):
    damaged = tmp_path / "libflash_attn_rocm.so"
    damaged.write_bytes(b"\x7fELF nothing more")
    with pytest.raises(ImportError, match="does not load into PyTorch") as caught:
        _library.load(damaged)
    assert "next: install the wheel again" in str(caught.value)


def without_torch(folder):
    """An environment in which importing torch fails as if it were not installed."""
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
    assert "ImportError: flash_attn_rocm needs PyTorch, which is not installed" in done.stderr


def test_the_doctor_runs_without_torch(tmp_path):
    done = python("-m", "flash_attn_rocm", "doctor", **without_torch(tmp_path))
    assert (done.returncode, done.stderr) == (1, "")
    assert "without a PyTorch that imports" in done.stdout.splitlines()[0]
    assert "1. flash_attn_rocm needs PyTorch, which is not installed" in done.stdout
    assert "PyTorch implementation answers" not in done.stdout
