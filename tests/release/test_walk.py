"""README and docs/ as a newcomer types them, in a fresh clone with the release's results."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.conftest import CHECKOUT
from tests.tools.commands import shown
from wheel_builder.images import docker

README = (CHECKOUT / "README.md").read_text()
STAGES = ("image", "device-code", "wheel", "runtime-image [--slim | --for-gpu] [WHEEL]")
# The last one removes the wheel.
IN_CONTAINER = (
    "pip install flash-attn-rocm --index-url <index>/public/simple",
    "python -m pip install flash-attn-rocm --index-url <index>/public/simple",
    "python -m flash_attn_rocm doctor",
    'python -c "import torch; print(torch.version.hip)"',
    "python -m pip uninstall --yes flash-attn-rocm",
)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone with this checkout's files, its tools, and its release's results in build/."""
    folder = tmp_path_factory.mktemp("walk") / "flash-attn-rocm"
    subprocess.run(["git", "clone", "--quiet", CHECKOUT, folder], check=True)
    listed = ["git", "ls-files", "--modified", "--others", "--exclude-standard"]
    for name in subprocess.run(
        listed, cwd=CHECKOUT, check=True, capture_output=True, text=True
    ).stdout.split():
        if (CHECKOUT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, folder / name)
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "build").symlink_to(CHECKOUT / "build")
    return folder


def typed(clone, line, status=0):
    done = subprocess.run(
        ["bash", "-c", line], cwd=clone, capture_output=True, text=True, check=False,
        env={**os.environ, "TERM": "dumb"},
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("line", [line for line in shown() if line.startswith("scripts/release")])
def test_a_dry_run_says_what_would_be_done(clone, line):
    said = typed(clone, line if "--dry-run" in line else f"{line} --dry-run").stdout
    assert re.search(r"^\[1/\d+\] container engine", said, re.MULTILINE)


@pytest.mark.parametrize("line", STAGES)
def test_a_stage_of_its_own_says_what_would_be_done(clone, line, release):
    assert line in shown()
    command = re.sub(r"\[--.*?\]", "", line).replace("[WHEEL]", str(release.wheel))
    said = typed(clone, f"scripts/wheel-builder {command} --dry-run").stdout
    assert "[1/" in said


def test_the_command_line_works_from_any_folder(clone, release):
    folder, wheel = release.wheel.parent, release.wheel.name
    assert typed(folder, f"{clone}/scripts/wheel-builder audit {wheel}").stdout
    assert typed(clone, "scripts/wheel-builder plan").stdout.splitlines()
    assert typed(clone, "scripts/wheel-builder plan --json").stdout.startswith("{")


def test_without_the_tools_it_says_how_to_get_them(clone):
    done = typed(clone, f"{sys.executable} -S -m wheel_builder plan --all", status=13)
    assert "error: the Python tools are not installed for" in done.stderr
    assert done.stderr.rstrip().endswith("scripts/wheel-builder plan --all")


def test_emulate_uses_what_the_release_built(clone, release):
    [line] = [line for line in shown() if line.startswith("scripts/wheel-builder emulate")]
    done = typed(clone, line.replace("WHEEL", str(release.wheel)))
    assert "executed on an ISA emulator" in done.stdout
    assert done.stdout.rstrip().endswith("passed")
    assert "emulator … skipped: unchanged" in done.stderr
    assert "compiling it takes" not in done.stderr


def test_the_installed_wheel_answers_as_the_documents_say(release, verifier):
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    # On an unmodified PyTorch for CPUs: this ended in PyTorch's "Torch not compiled with CUDA enabled".
    program = f"{example}\nprint(tuple(out.shape), out.dtype)\n"
    [explained] = re.findall(r"```python\n(.*?)```", (CHECKOUT / "docs/training.md").read_text(), re.DOTALL)
    assert set(IN_CONTAINER) <= set(shown())
    lines = [line.replace("<index>", "file:///index") for line in IN_CONTAINER]
    # The doctor's exit status 1 stands for a missing GPU.
    *lines, remove = [f"{line} || test $? = 1" if line.endswith("doctor") else line for line in lines]
    script = "\n".join(["set -e", *lines, 'python -c "$EXPLAINED"', 'python -c "$PROGRAM"', remove])
    release.index.chmod(0o755)  # only root may read pytest's folders, and the container has another user
    done = docker.run_in(
        verifier.facts["ref"], ["sh", "-c", f"exec 2>&1\n{script}"],
        mounts=[docker.Mount(release.index, "/index")],
        env={"PROGRAM": program, "EXPLAINED": explained, "HOME": "/tmp"},
    )  # fmt: skip
    said = done.stdout
    assert "Successfully installed flash-attn-rocm-" in said
    assert re.search(r"^flash_attn_rocm \S+ with PyTorch \S+, a CPU build", said, re.MULTILINE)
    assert "\nNone\n" in said  # torch.version.hip of a CPU build
    assert "pytorch the tensors are on cpu, and kernels run on AMD GPUs\n" in said
    assert "(2, 1024, 16, 64) torch.float16\n" in said
    assert "FlashAttnFallbackWarning: the PyTorch implementation answers" in said
    assert "Successfully uninstalled flash-attn-rocm-" in said
