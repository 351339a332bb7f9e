"""The main job end to end, ``scripts/release`` on real input: its output, its files, and a second run."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.conftest import CHECKOUT
from tests.release.conftest import Release
from wheel_builder.base.errors import PublishError
from wheel_builder.build.shim import SHIMS
from wheel_builder.images.docker import OWNER_LABEL
from wheel_builder.index.check import verify_index
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.matrix.support_table import planned_kernels
from wheel_builder.pipeline.publication import publish_files
from wheel_builder.pipeline.release import build_wheel, compile_device_code
from wheel_builder.pipeline.steps import Steps
from wheel_builder.pipeline.verification import audit_file
from wheel_builder.provenance.records import record_path
from wheel_builder.tables.archs import known_archs

ARCHS = list(known_archs())


def test_the_summary_is_about_the_wheel_that_is_there(release):
    data = release.wheel.read_bytes()
    assert release.wheel.name == "flash_attn_rocm-0.1.0-py3-none-manylinux_2_28_x86_64.whl"
    assert release.says("size") == f"{len(data)} bytes"
    assert release.says("sha256") == hashlib.sha256(data).hexdigest()
    assert release.says("archs").split() == ARCHS
    assert "executed  on an ISA emulator, not run on hardware" in release.out
    for arch in ARCHS:
        assert re.search(rf"^ +{arch} \d+ launches, at most \d+%, no finding$", release.out, re.MULTILINE)


def test_the_printed_line_installs_the_wheel(release, tmp_path):
    """pip accepts the line as printed. --target leaves this environment unchanged."""
    pip, verb, *rest = release.says("install").split()
    assert (pip, verb) == ("pip", "install")
    subprocess.run(
        [sys.executable, "-m", "pip", verb, "--target", tmp_path, *rest],
        check=True, capture_output=True,
    )  # fmt: skip
    assert (tmp_path / "flash_attn_rocm/_C/libflash_attn_rocm.so").is_file()


def test_the_index_is_sound(release):
    assert verify_index(release.index) == ()


def test_the_record_says_what_was_and_was_not_shown(record):
    assert list(record["archs"]) == ARCHS
    assert record["differences"] == []  # from the reviewed resources
    assert sorted(record["serves"]) == sorted(load_matrix(CHECKOUT / "matrix.yaml").public.fits)
    for arch, shown in record["archs"].items():
        assert shown["numerics"] == "executed on an ISA emulator, not run on hardware"
        assert shown["passed"] is True
        assert shown["checks"] == ["uninit", "race", "barrier"]
        assert set(shown["launches"]) == set(planned_kernels(CHECKOUT, [arch])[arch])
    assert all(counts["passed"] > 0 for counts in record["tests"].values())


def test_the_record_is_beside_the_wheel_and_publish_asks_for_it(release, record, tmp_path):
    assert json.loads(record_path(release.wheel).read_text()) == record
    alone = tmp_path / release.wheel.name
    shutil.copy(release.wheel, alone)
    with pytest.raises(PublishError, match=r"there is no .*\.verification\.json beside it"):
        publish_files([alone], load_matrix(CHECKOUT / "matrix.yaml"), tmp_path / "index", CHECKOUT)
    assert not (tmp_path / "index").exists()


def test_the_wheel_passes_the_audit_and_has_no_build_path_in_it(release):
    report = audit_file(release.wheel, load_matrix(CHECKOUT / "matrix.yaml"), CHECKOUT)
    assert sorted(report.kernels) == sorted(ARCHS)
    with zipfile.ZipFile(release.wheel) as archive:
        for name in archive.namelist():
            assert str(CHECKOUT).encode() not in archive.read(name), name


def test_a_rerun_with_nothing_to_do_takes_seconds(release):
    again = Release(release.index)
    assert again.status == 0, again.err
    assert again.says("sha256") == release.says("sha256")
    for step in (
        "verify image",
        "builder image",
        "device code gfx908",
        "wheel and repair",
        "emulator",
        "static checks",
        *(f"emulate {arch}" for arch in ARCHS),
        "verify",
        *(f"distribution {shim.name}" for shim in SHIMS),
        "publish",
    ):
        assert f"{step} … skipped" in again.err
    # Not a benchmark: a repeated stage takes longer than this on any machine.
    assert again.seconds < 60


def test_a_dry_run_does_nothing(tmp_path):
    dry = Release(tmp_path / "index", "--dry-run", "--archs", "gfx942")
    assert dry.status == 0, dry.err
    assert "device code gfx942" in dry.out
    assert "gfx908" not in dry.out
    assert not (tmp_path / "index").exists()


def test_a_wrong_name_is_refused_in_words(tmp_path):
    wrong = Release(tmp_path / "index", "--archs", "gfx9420")
    assert wrong.status == 11
    assert "unknown arch 'gfx9420': did you mean gfx942?" in wrong.err


def test_two_clean_builds_give_the_same_wheel(release, builder, job, package, context, tmp_path, request):
    """The wheel made once more in another folder. --full also compiles its device code once more.

    By default tests/engine/device compiles some kernels twice, which shows the property for a whole arch.
    """
    other = replace(context, build=tmp_path / "build")
    archs = job.archs if request.config.getoption("--full") else ()
    steps, image = Steps(other, package), SimpleNamespace(result=builder)
    again = compile_device_code(steps, replace(job, archs=archs), image)
    known = compile_device_code(replace(steps, context=context), job, image)
    codes = dict(zip(job.archs, known, strict=True)) | dict(zip(archs, again, strict=True))
    built = build_wheel(steps, job, image, tuple(codes.values()))
    steps.run()
    assert not any(step.result.reused for step in (*again, built))
    assert built.result.facts["sha256"] == release.says("sha256")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_nothing_half_done(builder, tmp_path, number):
    """The compiler is stopped in its container. Afterwards the stage's folder and the container are gone."""
    build = tmp_path / "build"
    code = "from tests.release.first import interrupted; interrupted.main()"
    child = subprocess.Popen(  # this Python: another clone's tests may run here
        [sys.executable, "-c", code, str(build), builder.facts["ref"]],
        cwd=CHECKOUT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for_container(child)
    os.kill(child.pid, number)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert "finished steps are kept" in err
    assert not running_containers(child.pid)
    assert [path for path in (build / "device-code").iterdir() if path.is_dir()] == []


def running_containers(pid):
    listed = subprocess.run(
        ["docker", "ps", "--filter", f"label={OWNER_LABEL}", "--format", f'{{{{.Label "{OWNER_LABEL}"}}}}'],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [line for line in listed.stdout.split() if line.startswith(f"{pid}-")]


def wait_for_container(child, seconds=60):
    deadline = time.monotonic() + seconds
    while not running_containers(child.pid):
        if child.poll() is not None:
            pytest.fail(
                f"the build ended with status {child.returncode} before it compiled:\n{child.stderr.read()}"
            )
        if time.monotonic() > deadline:
            child.kill()
            pytest.fail(f"the build started no container within {seconds} s:\n{child.communicate()[1]}")
        time.sleep(0.05)


@pytest.mark.full
def test_every_rocm_version_that_is_built_here_passes(tmp_path):
    every = Release(tmp_path / "index", "--all")
    assert every.status == 0, every.err
    published = sorted(path.name for path in (tmp_path / "index").glob("rocm*"))
    assert published == ["rocm6.4", "rocm7.2"]
    assert list((tmp_path / "index/public/simple/flash-attn-rocm").glob("*.whl"))
    assert json.loads((tmp_path / "index/rocm6.4/simple/index.json").read_text())["projects"]
