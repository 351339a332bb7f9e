"""The installed wheel on Windows' Python: it imports, has its operators, and raises exceptions.

Executed under wine, not on Windows.  The fake HIP runtime is the DLL named by FA_FAKE_HIP_DLL. Tests without
a runtime run in a separate process, because a loaded DLL stays.
"""

import ctypes
import json
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import flash_attn_rocm
import placed
import pytest
import torch
from flash_attn_rocm.launch import append, backward_pass, forward_pass
from flash_attn_rocm.library.host import gpus, instances
from flash_attn_rocm.machine import windows
from flash_attn_rocm.suite import forward_cases
from flash_attn_rocm.suite.corpus import corpus_of
from flash_attn_rocm.suite.fuzz import draw
from flash_attn_rocm.suite.target import arch
from flash_attn_rocm.tools import selftest
from flash_attn_rocm.values import rates

from wheel_builder.machine_code.fake_hip.control import (
    DLL_VARIABLE,
    FUNCTIONS,
    FakeHip,
    kernels_on_host_memory,
)

SECONDS = 120
OPS = torch.ops.flash_attn_rocm
RAISED = """
import torch, flash_attn_rocm
for _ in range(3):
    try:
        torch.ops.flash_attn_rocm.device_arch(-1)
    except RuntimeError as error:
        print("raised", error)
"""
COUNTED = """
import ctypes, os
ctypes.CDLL(os.environ["FA_FAKE_HIP_DLL"])
import torch, flash_attn_rocm
print(torch.ops.flash_attn_rocm.compute_units(-1))
"""


MOVED = """
import json, os, sys
sys.path.insert(0, os.environ["FA_PLACED"])
import placed
placed.take_preferred_place()
import ctypes
ctypes.CDLL(os.environ["FA_FAKE_HIP_DLL"])
import torch, flash_attn_rocm
from flash_attn_rocm.machine import requirements
base = placed.place_of(requirements.LIBRARY.name)
differences = placed.differences(requirements.LIBRARY, base)
from wheel_builder.machine_code.fake_hip.control import FakeHip, kernels_on_host_memory
fake = FakeHip()
q, k, v = (torch.randn(1, 8, 2, 64, dtype=torch.float16) for _ in range(3))
flash_attn_rocm.set_strict(True)
with kernels_on_host_memory(fake):
    out = flash_attn_rocm.flash_attn_func(q, k, v)
expected = torch.nn.functional.scaled_dot_product_attention(
    *(each.double().transpose(1, 2) for each in (q, k, v))
).transpose(1, 2)
error = float((out.double() - expected).abs().max())
print("shown", json.dumps({"base": base, "differences": differences, "error": error}))
"""
ERRORS = (
    ("hipGetDevice=100", "no ROCm-capable device is detected"),
    ("hipGetDevicePropertiesR0600=1", "invalid argument"),
    ("hipModuleLoadData=209", "no kernel image is available"),
    ("hipModuleLaunchKernel=719", "unspecified launch failure"),
)


def python(*arguments):
    """Another Python's exit code and output."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore:Failed to initialize NumPy", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.decode()


@pytest.fixture(scope="module")
def fake_hip():
    return FakeHip()


@contextmanager
def strict():
    """A call unanswered by kernels is an error."""
    flash_attn_rocm.set_strict(True)
    try:
        yield
    finally:
        flash_attn_rocm.set_strict(None)


def tensors():
    return [torch.randn(1, 8, 2, 64, dtype=torch.float16) for _ in range(3)]


def test_this_is_a_python_for_windows():
    assert sys.platform == "win32"
    assert Path(flash_attn_rocm.__file__).drive


def test_without_a_hip_runtime_the_operator_raises_each_time():
    code, text = python("-c", RAISED)
    assert (code, text.count("raised no HIP runtime in this process")) == (0, 3), text
    assert "amdhip64_7.dll" in text


def test_without_a_gpu_the_doctor_says_what_to_do():
    code, text = python("-m", "flash_attn_rocm", "doctor")
    assert code == 1, text
    assert re.search(r"^system +Windows", text, re.MULTILINE)
    assert "What to do next:" in text
    assert "AMD's driver is not installed" in text
    assert "Traceback" not in text
    for word in ("/dev/kfd", "modprobe", "export "):  # of Linux
        assert word not in text


def test_every_operator_is_registered():
    for name in ("fwd", "bwd", "append", "instances", "gpus", "limits", "device_arch"):
        assert getattr(OPS, name).default
    assert instances()
    assert gpus()


def test_the_pytorch_implementation_answers_on_the_cpu():
    with pytest.warns(flash_attn_rocm.FlashAttnFallbackWarning, match="the PyTorch implementation answers"):
        out = flash_attn_rocm.flash_attn_func(*(each.float() for each in tensors()))
    assert out.shape == (1, 8, 2, 64)


def test_each_error_of_the_runtime_is_a_runtimeerror_and_then_a_kernel_answers(fake_hip):
    """Each three times: an exception that crosses another compiler's frames could end the process.

    A successful request is never repeated, so the errors come in a call's order.
    """
    q, k, v = tensors()
    with strict(), kernels_on_host_memory(fake_hip):
        for failure, words in ERRORS:
            for _ in range(3):
                fake_hip.fail(failure)
                with pytest.raises(RuntimeError, match=words):
                    flash_attn_rocm.flash_attn_func(q, k, v)
        fake_hip.fail("")
        out = flash_attn_rocm.flash_attn_func(q, k, v)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(each.double().transpose(1, 2) for each in (q, k, v))
    ).transpose(1, 2)
    assert (out.double() - expected).abs().max() < 2e-3
    assert [launch.kernel for launch in fake_hip.report().launches][-1].startswith("fa_")


def test_the_code_in_memory_is_the_files_wherever_the_library_is_loaded(monkeypatch):
    """Windows places a library anywhere and adjusts the base-relocated fields. wine does so if it must.

    Here the preferred place is taken, and a kernel's result is right. Device code, code and tables of
    functions equal the file's, and each pointer moved with the library.
    """
    monkeypatch.setenv("FA_PLACED", str(Path(__file__).parent))
    code, text = python("-c", MOVED)
    assert code == 0, text
    [line] = [line for line in text.splitlines() if line.startswith("shown ")]
    shown = json.loads(line.removeprefix("shown "))
    assert shown["base"] != placed.BASE
    assert {".text", ".rdata", ".pdata", ".fa_bund", ".hip_fat"} <= shown["differences"].keys()
    assert shown["differences"] == dict.fromkeys(shown["differences"], 0)
    assert shown["error"] < 2e-3


def test_selftest_makes_its_calls_with_tensors_that_are_far_apart(fake_hip, monkeypatch):
    """Their memory is reserved in Windows' own way."""
    call = next(
        (str(kernel), number)
        for kernel, number in corpus_of(arch())
        if getattr(draw(kernel, number), "layout", "") == forward_cases.FAR
    )
    reserved, sizes = forward_cases.reserved, []
    monkeypatch.setattr(forward_cases, "reserved", lambda size: sizes.append(size) or reserved(size))
    monkeypatch.setattr(selftest, "_cases", lambda *_: [call])
    with kernels_on_host_memory(fake_hip):
        report = selftest.run(runtime=fake_hip)
    assert selftest.passed(report), report
    assert report["kernels"][call[0]]["calls"] == 1
    assert max(sizes) > 1 << 32


@pytest.mark.parametrize("counted", ["single", "pairs"])
def test_a_device_has_its_compute_units_whatever_the_runtime_counts(fake_hip, monkeypatch, counted):
    """Windows' runtime counts pairs of them where a workgroup may run on two."""
    monkeypatch.setenv("FA_FAKE_HIP_UNITS", counted)
    code, text = python("-c", COUNTED)
    assert (code, text.strip()) == (0, str(rates.LARGEST[fake_hip.archs[0]])), text


def test_launches_are_cut_or_told_here():
    """Windows resets a GPU after two seconds in one launch."""
    assert forward_pass.FWD is not OPS.fwd.default
    assert backward_pass.BWD is not OPS.bwd.default
    assert append.KERNEL is not OPS.append.default


def test_the_runtime_is_the_dll_that_the_package_looks_for(fake_hip):
    [found] = windows.hip_libraries()
    assert Path(found).name == windows.HIP_RUNTIME
    assert OPS.device_arch(-1).partition(":")[0] == fake_hip.archs[0]


def test_a_runtime_that_is_not_named_is_missed_in_words(monkeypatch):
    monkeypatch.setenv(DLL_VARIABLE, "kernel32.dll")
    assert not hasattr(ctypes.CDLL("kernel32.dll"), FUNCTIONS[0])
    with pytest.raises(RuntimeError, match=f"is not in this process: .* on Windows in {DLL_VARIABLE}"):
        FakeHip()


def test_a_process_that_ended_does_not_run():
    child = subprocess.Popen(
        [sys.executable, "-c", ""], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert windows.process_runs(child.pid)
    child.communicate(timeout=SECONDS)
    assert not windows.process_runs(child.pid)
