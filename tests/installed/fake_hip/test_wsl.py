"""WSL2: the wheel for Linux on Windows' GPUs, reached through /dev/dxg and ROCm's librocdxg.

The file system seen by the package and PyTorch's ROCm build are simulated. The wheel, its check at first use
and its kernels are real, on the fake HIP runtime.  Not tested: WSL2 itself.
"""

import json
import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.needs_archs("gfx1100")
ARCH = "gfx1100"
RELEASE = "6.6.87.2-microsoft-standard-WSL2\n"
DRIVER, NEXT_DRIVER = "u0412345.inf_amd64_1f00", "u0423456.inf_amd64_2e00"
ROCDXG, NEXT_ROCDXG = "librocdxg.so.1.1.0", "librocdxg.so.1.2.0"
# The package's file system queries go to this file system.
BEGIN = """
import json, os, warnings
from pathlib import Path
from flash_attn_rocm import __main__ as program
from flash_attn_rocm.diagnosis import survey
from flash_attn_rocm.machine import driver
from wheel_builder.machine_code.fake_hip.control import HOST_MEMORY
root = Path(os.environ["FA_TEST_ROOT"])
(root / "proc/self").mkdir(parents=True, exist_ok=True)
(root / "proc/self/maps").write_text(Path("/proc/self/maps").read_text())
version, collect = driver.version, survey.collect
driver.version = lambda _root: version(root)
survey.collect = lambda _root=None, **options: collect(root, **options)
flash_attn_rocm.set_strict(None)
HOST_MEMORY.checks_kernels = True
def called():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        attend()
    return [str(each.message) for each in caught]
def kernels():
    return [launch.kernel for launch in fake_hip.report().launches]
"""
FIRST_CALL = 'shown["warnings"], shown["kernels"] = called(), kernels()'
# A ROCm build of PyTorch with this many GPUs. Its own attention stays unused.
DOCTOR = """
import contextlib, io
torch.version.hip = "7.2.53210"
torch.cuda.device_count = lambda: {gpus}
torch.cuda.get_device_name = lambda index: "AMD Radeon RX 7900 XTX"
torch.cuda.get_arch_list = lambda: ["gfx1100"]
survey.fused.look = lambda: ()
with contextlib.redirect_stdout(io.StringIO()) as printed:
    shown["code"] = program.main(["doctor"])
shown["text"] = printed.getvalue()
with contextlib.redirect_stdout(io.StringIO()) as printed:
    program.main(["doctor", "--json"])
shown["facts"] = json.loads(printed.getvalue())["facts"]
"""


@pytest.fixture
def root(tmp_path):
    """WSL2's file system as seen by the package, complete."""
    folder = tmp_path / "root"
    for name in ("proc/sys/kernel", "dev", f"usr/lib/wsl/drivers/{DRIVER}", "opt/rocm/lib"):
        (folder / name).mkdir(parents=True)
    (folder / "proc/sys/kernel/osrelease").write_text(RELEASE)
    (folder / "dev/dxg").touch()
    install(folder, ROCDXG)
    return folder


def install(root, library):
    """Installs it like ROCm's package, in place of another."""
    folder = root / "opt/rocm/lib"
    for file in folder.glob("librocdxg*"):
        file.unlink()
    (folder / library).touch()
    (folder / "librocdxg.so").symlink_to(library)


@pytest.fixture
def play(scenario, root, tmp_path, monkeypatch):
    """A scenario, in a separate process, on WSL2."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FA_TEST_ROOT", str(root))
    return lambda text: scenario(BEGIN + text, arch=ARCH)


def findings(tmp_path):
    return {file.name: json.loads(file.read_text()) for file in (tmp_path / "cache").rglob("*.json")}


def line(text, name):
    [found] = re.findall(rf"^{name} +(.*)$", text, re.MULTILINE)
    return found


def test_the_doctor_finds_everything_that_wsl_has(play, root):
    shown = play(DOCTOR.format(gpus=1))
    text = shown["text"]
    assert (shown["code"], shown["facts"]["wsl"]) == (0, True), text
    assert " on WSL2, linux x86_64" in line(text, "system")
    assert line(text, "driver").startswith("that of Windows (drivers ")
    assert line(text, "librocdxg") == ROCDXG
    assert line(text, str(root / "dev/dxg")).endswith("this user may open it")
    assert line(text, "GPU 0").startswith("AMD Radeon RX 7900 XTX, gfx1100; kernels for ")
    assert "libamdhip64" in line(text, "HIP runtime")
    assert "Kernels serve this machine." in text
    for word in ("/dev/kfd", "modprobe", "dmesg"):  # of Linux itself
        assert word not in text


def test_the_doctor_says_what_is_missing(play, root):
    (root / "dev/dxg").unlink()
    shown = play(DOCTOR.format(gpus=0))
    assert shown["code"] == 1
    assert "no AMD GPU can be used, because /dev/dxg is missing" in shown["text"]
    assert "wsl.exe --update" in shown["text"]
    (root / "dev/dxg").touch()
    for file in (root / "opt/rocm/lib").iterdir():
        file.unlink()
    shown = play(DOCTOR.format(gpus=0))
    assert shown["code"] == 1
    assert line(shown["text"], "librocdxg") == "not found in the usual folders"
    assert "and here ROCm's library for WSL2, librocdxg" in shown["text"]
    assert "export HSA_ENABLE_DXG_DETECTION=1" in shown["text"]


def test_the_first_call_is_checked_and_remembered_with_driver_and_library(play, tmp_path):
    first = play(FIRST_CALL)
    assert len(set(first["kernels"])) > 1, "the check's calls, and the call"
    assert first["warnings"] == []
    [found] = findings(tmp_path).values()
    assert (found["state"], found["family"], found["arch"]) == ("passed", "fp16, head_dim 64", ARCH)
    assert re.fullmatch(rf"that of Windows \(drivers [0-9a-f]{{12}}\), {ROCDXG}", found["driver"])
    again = play(FIRST_CALL)
    assert again["kernels"] == ["fa_fwd_fp16_d64"], "another process remembers it"


def another_driver(root):
    (root / "usr/lib/wsl/drivers" / DRIVER).rename(root / "usr/lib/wsl/drivers" / NEXT_DRIVER)


@pytest.mark.parametrize("update", [another_driver, lambda root: install(root, NEXT_ROCDXG)])
def test_an_update_of_either_is_checked_again(play, root, tmp_path, update):
    checked = len(play(FIRST_CALL)["kernels"])
    before = findings(tmp_path)
    update(root)
    assert len(play(FIRST_CALL)["kernels"]) == checked
    after = findings(tmp_path)
    assert len(after) == 2
    assert before.items() < after.items()
    assert len({found["driver"] for found in after.values()}) == 2
    assert play(FIRST_CALL)["kernels"] == ["fa_fwd_fp16_d64"]


def test_launches_are_cut_or_told_there(tmp_path):
    """Decided when the package is imported: a separate process on a Linux that identifies as WSL2's."""
    code = f"""
from pathlib import Path
read = Path.read_text
Path.read_text = lambda path, *a, **k: (
    {RELEASE!r} if str(path) == "/proc/sys/kernel/osrelease" else read(path, *a, **k))
import flash_attn_rocm
from flash_attn_rocm.launch import append, backward_pass, forward_pass
import torch
ops = torch.ops.flash_attn_rocm
watched = {{
    ops.fwd: forward_pass.FWD, ops.attend: forward_pass.ATTEND, ops.bwd: backward_pass.BWD,
    ops.gradients: backward_pass.GRADIENTS, ops.append: append.KERNEL,
}}
print(*(one is not op.default for op, one in watched.items()))
"""
    for release, expected in ((RELEASE, "True " * 5), ("6.8.0-31-generic\n", "False " * 5)):
        text = code.replace(repr(RELEASE), repr(release))
        done = subprocess.run(
            [sys.executable, "-c", text],
            capture_output=True, text=True, check=False, cwd=tmp_path, env=dict(os.environ),
        )  # fmt: skip
        assert done.stdout.strip() == expected.strip(), done.stderr
