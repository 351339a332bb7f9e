"""Emulated suites of several archs in parallel: their number, and the state after failures and interrupts."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.base.errors import VerifyError
from wheel_builder.base.store import Artifact
from wheel_builder.images import docker
from wheel_builder.matrix.model import Job, Rocm
from wheel_builder.pipeline import verification
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.progress import Progress
from wheel_builder.pipeline.steps import Steps
from wheel_builder.verify.seen import Subject

ARCHS = ("gfx908", "gfx942", "gfx1030", "gfx1100")
ROCM = Rocm("7.2", "debian", "debian:sid-slim", "/usr/lib/llvm-22/bin", ARCHS)
GIB = 1024**3
PART = Artifact(path=None, manifest={"key": "part", "facts": {}}, reused=True)
SECONDS = 30  # longest wait of a test before it fails


@pytest.mark.parametrize(("full", "tier"), [("", "release"), ("0", "release"), ("1", "nightly")])
def test_the_environment_adds_the_nightly_tests_and_leaves_none_out(monkeypatch, full, tier):
    """FA_QUICK=1 dropped tests in CI that a release required. Users saw their failures first."""
    monkeypatch.setenv("FA_FULL", full)
    monkeypatch.setenv("FA_QUICK", "1")
    assert verification.chosen_tier() == tier


@pytest.mark.parametrize(
    ("archs", "jobs", "memory", "expected"),
    [(4, 2, 24, 2), (4, 8, 24, 4), (4, 8, 7, 2), (4, 8, 1, 1), (1, 8, 24, 1), (10, 16, 24, 8), (4, 1, 24, 1)],
)
def test_as_many_as_there_are_cores_and_memory_for(archs, jobs, memory, expected):
    assert verification.side_by_side(archs, jobs, memory * GIB) == expected


@pytest.fixture
def emulate(tmp_path, monkeypatch):
    """Runs the suites of all archs. Each is a call of ``suite``."""
    monkeypatch.setattr(verification, "usable_memory", lambda: 24 * GIB)

    def run(suite, jobs=2, out=None):
        def called(subject, kernels, *, jobs, log, **_):
            assert "fa_fwd_fp16_d64" in kernels
            assert log.name == f"emulate-rocm7.2-{subject.arch}.log"
            return suite(subject.arch, jobs)

        monkeypatch.setattr(verification.emulated, "run_emulated", called)
        context = RunContext(CHECKOUT, tmp_path / "build", tmp_path, tmp_path, jobs)
        steps = Steps(context, None)
        done = SimpleNamespace(result=PART)
        wheel = verification.Candidate(lambda: tmp_path / "a.whl", Job(ROCM, ARCHS), done, done)
        subjects = {arch: Subject(Path("a.whl"), "0" * 64, arch, {}) for arch in ARCHS}
        checked = SimpleNamespace(result=verification.Checked(PART, PART, subjects))
        suites = verification._emulate(steps, wheel, done, checked)
        with Progress(steps.planned, out or StringIO(), tmp_path / "durations.json", plain=True) as progress:
            steps.run_shown(progress)
        return {arch: step.result for arch, step in suites.items()}

    return run


def artifact(arch, *, reused=False):
    return Artifact(path=Path("none"), manifest={"key": arch, "facts": {}}, reused=reused)


def test_two_run_at_a_time_with_a_core_each(emulate):
    """They ran one after the other, although much of a suite is serial."""
    both = threading.Barrier(2, timeout=SECONDS)

    def suite(arch, jobs):
        both.wait()
        assert jobs == 1
        return artifact(arch)

    assert [each.key for each in emulate(suite).values()] == [*ARCHS]


def test_one_after_the_other_has_all_cores(emulate, monkeypatch):
    monkeypatch.setattr(verification, "usable_memory", lambda: GIB)
    seen = []

    def suite(arch, jobs):
        seen.append((arch, jobs))
        return artifact(arch)

    assert list(emulate(suite)) == [*ARCHS]
    assert seen == [(arch, 2) for arch in ARCHS]


def test_each_arch_is_a_step_that_says_what_was_kept(emulate):
    out = StringIO()
    emulate(lambda arch, _: artifact(arch, reused=arch == "gfx1030"), out=out)
    lines = out.getvalue().splitlines()
    assert lines[4] == "[3/4] rocm7.2 emulate gfx1030 … about 2 min left"
    assert lines[5] == "[3/4] rocm7.2 emulate gfx1030 … skipped: unchanged"
    assert lines[3].startswith("[2/4] rocm7.2 emulate gfx942 … done in ")


def test_the_time_of_a_suite_is_its_own(emulate):
    """Suites that ended during the wait for the first were "done in 0.0 s"."""
    out, others = StringIO(), threading.Event()

    def suite(arch, _):
        if arch == "gfx908":
            assert others.wait(SECONDS)
        time.sleep(0.2)
        if arch == "gfx1100":
            others.set()
        return artifact(arch)

    emulate(suite, out=out)
    ended = [line for line in out.getvalue().splitlines() if " done in " in line]
    assert len(ended) == len(ARCHS)
    assert all(line.endswith(", beside others (log: " + line.rpartition("(log: ")[2]) for line in ended)
    assert "done in 0.0 s" not in out.getvalue()


def test_a_failure_lets_what_runs_end_and_begins_nothing_more(emulate, monkeypatch):
    cancelled, ended = threading.Event(), []

    class Pool(ThreadPoolExecutor):
        def shutdown(self, **options):
            super().shutdown(**options)
            cancelled.set()

    monkeypatch.setattr(docker, "ThreadPoolExecutor", Pool)

    def suite(arch, _):
        if arch == "gfx908":
            message = "a kernel is wrong"
            raise VerifyError(message)
        assert cancelled.wait(SECONDS)
        ended.append(arch)
        return artifact(arch)

    out = StringIO()
    with pytest.raises(VerifyError, match="a kernel is wrong") as caught:
        emulate(suite, out=out)
    assert "emulate gfx942 … done in " in out.getvalue(), "what passed is told, too"
    assert "step: emulate gfx908" in caught.value.__notes__[0]
    # The third may already have taken the failed one's place.
    assert "gfx942" in ended
    assert "gfx1100" not in ended


def test_an_interrupt_ends_the_containers(emulate, monkeypatch):
    removed = threading.Event()
    monkeypatch.setattr(docker, "remove_own", removed.set)

    def suite(arch, _):
        if arch == "gfx908":
            raise KeyboardInterrupt
        assert removed.wait(SECONDS)  # like docker run after its container's removal
        return artifact(arch)

    with pytest.raises(KeyboardInterrupt):
        emulate(suite)
    assert removed.is_set()
