"""README as a newcomer types it, in a fresh clone of this checkout that has what the release built.

Every line of README's blocks and tables is in ``WALK``: typed here, or by the test that is named.
"""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.images import docker

pytestmark = pytest.mark.container
README = (CHECKOUT / "README.md").read_text()
TYPED, IN_CONTAINER, DRY = "typed", "typed in a container", "typed with --dry-run"
WALK = {
    "scripts/release": "tests/release/conftest.py",
    "scripts/test": ".ci/run",
    "pip install flash-attn-rocm --index-url <index>/rocm7.2/simple": IN_CONTAINER,
    "python -m flash_attn_rocm doctor": IN_CONTAINER,
    "pip install flash-attn --index-url <index>/rocm7.2/simple": "tests/release/test_drop_in.py",
    "python -m flash_attn_rocm selftest": "tests/fake_hip/test_selftest.py",
    "python -m flash_attn_rocm bench --output bench.csv": "tests/wheel/test_bench.py",
    "scripts/wheel-builder verify-provenance WHEEL": "tests/release/test_provenance.py",
    "scripts/wheel-builder rebuild WHEEL": "tests/release/test_provenance.py",
    "scripts/release --rocm 6.4 --archs gfx1030": DRY,
    "scripts/release --all": DRY,
    "scripts/release --dry-run": TYPED,
    "plan [--json | --github]": TYPED,
    "image": DRY, "device-code": DRY, "wheel": DRY,
    "audit WHEEL": TYPED,
    "verify WHEEL [--runtimes V,V]": "tests/release/test_verify.py",
    "shim WHEEL": "tests/release/test_workflow.py",
    "verify-provenance WHEEL": "tests/release/test_provenance.py",
    "rebuild WHEEL": "tests/release/test_provenance.py",
    "emulate WHEEL --arch … --seqlen-q …": TYPED,
    "perf WHEEL": "tests/unit/pipeline/test_perf.py",
    "publish WHEEL --index DIR": "tests/release/test_workflow.py",
    "upload WHEEL --repository-url URL": "tests/index/test_upload.py",
    "serve": "tests/unit/index/test_serve.py", "yank": "tests/unit/cli/test_main.py",
    "index verify": "tests/release/test_workflow.py", "index pages": "tests/unit/index/test_check.py",
    "report add FILE": "tests/unit/index/test_hardware.py",
    "runtime-image [--slim | --for-gpu] [WHEEL]": DRY,
    "explain-log [FILE]": "tests/unit/build_log/test_command.py",
    "gate FILE …": "tests/unit/upstream/test_gate.py",
    "upstream --arch A [--shard K/N]": "tests/unit/upstream/test_recipe.py",
    "why [--html FILE]": "tests/unit/upstream/test_why.py",
    "cost [--measure]": "tests/unit/pipeline/test_cost.py",
    "drift": "tests/unit/matrix/test_drift.py",
}  # fmt: skip


def lines():
    """The commands of README's blocks, without comments, and those of its table."""
    for block in re.findall(r"^    (.*)", README, re.MULTILINE):
        yield re.sub(r" +#.*", "", block)
    _, _, table = README.partition("| command (`scripts/wheel-builder …`)")
    for row in re.findall(r"^\| (`.*?`) \|", table.partition("\n\n")[0], re.MULTILINE):
        yield from (span.replace("\\|", "|") for span in re.findall(r"`([^`]+)`", row))


def test_every_line_of_the_readme_is_walked_here_or_elsewhere():
    assert list(dict.fromkeys(lines())) == list(WALK)
    for where in set(WALK.values()) - {TYPED, IN_CONTAINER, DRY}:
        assert (CHECKOUT / where).exists()


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone with this checkout's files, its tools, and what its release left in build/."""
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


@pytest.mark.parametrize(
    "line", [line for line, where in WALK.items() if line.startswith("scripts/") and where in (TYPED, DRY)]
)
def test_a_dry_run_says_what_would_be_done(clone, line):
    said = typed(clone, line if "--dry-run" in line else f"{line} --dry-run").stdout
    assert re.search(r"^\[1/\d+\] container engine", said, re.MULTILINE)


@pytest.mark.parametrize(
    "line", [line for line, where in WALK.items() if not line.startswith("scripts/") and where == DRY]
)
def test_a_stage_of_its_own_says_what_would_be_done(clone, line, release):
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
    line = f"emulate {release.wheel} --arch gfx1100 --seqlen-q 17 --seqlen-k 17"
    done = typed(clone, f"scripts/wheel-builder {line}")
    assert "executed on an ISA emulator" in done.stdout
    assert done.stdout.rstrip().endswith("passed")
    assert "emulator … skipped: unchanged" in done.stderr
    assert "compiling it takes" not in done.stderr


def test_the_installed_wheel_answers_as_the_readme_says(release, verifier):
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert 'dtype=torch.float16, device="cuda"' in example
    program = example.replace("cuda", "cpu") + "\nprint(tuple(out.shape), out.dtype)\n"
    install, doctor = [line for line, where in WALK.items() if where == IN_CONTAINER]
    install = install.replace("<index>", "file:///index")
    script = f'set -e; {install}; {doctor} || test $? = 1; python -c "$PROGRAM"'  # 1: no GPU
    release.index.chmod(0o755)  # pytest's folders are root's alone, and the container's user is another
    done = docker.run_in(
        verifier.facts["ref"], ["sh", "-c", script], mounts=[docker.Mount(release.index, "/index")],
        env={"PROGRAM": program, "HOME": "/tmp"},
    )  # fmt: skip
    said = done.stdout
    assert "Successfully installed flash-attn-rocm-" in said
    assert re.search(r"^flash_attn_rocm \S+ with PyTorch \S+, a CPU build", said, re.MULTILINE)
    assert said.rstrip().endswith("(2, 1024, 16, 64) torch.float16")
