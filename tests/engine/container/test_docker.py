"""The guarantees of ``run_in``, checked in a real container."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.base.errors import CommandFailedError
from wheel_builder.images.bases import ensure_base
from wheel_builder.images.docker import (
    OWNER_LABEL,
    Mount,
    caller,
    inspect_image,
    remove_orphans,
    run_in,
    try_pull,
)

SLEEPER = """
import sys
from wheel_builder.images.docker import run_in
run_in(sys.argv[1], ["sleep", "600"])
"""


@pytest.fixture(scope="module")
def base(engine, logs):
    return ensure_base("debian:bookworm-slim", "bookworm", log=logs / "base.log").ref


def sh(base, command, **kwargs):
    return run_in(base, ["sh", "-c", command], **kwargs).stdout


def containers(pid):
    argv = ["docker", "ps", "--all", "--filter", f"label={OWNER_LABEL}", "--format", "{{.Labels}}"]
    listed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if f"{OWNER_LABEL}={pid}-" in line]


def test_there_is_no_network_but_loopback(base):
    assert sh(base, "ls /sys/class/net").split() == ["lo"]


def test_there_are_no_capabilities_and_no_new_ones(base):
    status = sh(base, "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status").split()
    assert dict(zip(status[::2], status[1::2], strict=True)) == {
        "CapEff:": "0" * 16,
        "CapBnd:": "0" * 16,
        "NoNewPrivs:": "1",
    }


def test_a_mount_is_read_only_and_a_writable_one_gives_files_to_the_caller(base, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    mounts = [Mount(tmp_path / "in", "/in"), Mount(tmp_path / "out", "/out", writable=True)]
    said = sh(base, "touch /in/a 2>&1 || true; touch /out/b", mounts=mounts, user=caller())
    assert "Read-only file system" in said
    assert (tmp_path / "out/b").stat().st_uid == os.getuid()


def test_a_mount_that_does_not_exist_is_an_error_and_not_an_empty_folder(base, tmp_path):
    with pytest.raises(CommandFailedError, match="does not exist"):
        sh(base, "true", mounts=[Mount(tmp_path / "missing", "/in")])
    assert not (tmp_path / "missing").exists()


def test_a_failure_shows_status_and_last_words(base):
    with pytest.raises(CommandFailedError, match=r"(?s)ended with status 3.*it broke"):
        sh(base, "echo it broke >&2; exit 3")


def test_an_image_that_is_not_here_is_not_pulled(engine):
    with pytest.raises(CommandFailedError, match=r"No such image|Unable to find image"):
        run_in("flash-attn-rocm-test:nowhere", ["true"])
    assert inspect_image("flash-attn-rocm-test:nowhere") is None


def test_a_registry_that_is_not_there_is_not_an_error(engine, tmp_path):
    assert try_pull("localhost:9/flash-attn-rocm:none", log=tmp_path / "log", seconds=30) is False


@pytest.fixture
def process(base):
    """A process whose container would sleep for ten minutes."""
    with subprocess.Popen([sys.executable, "-c", SLEEPER, base], cwd=CHECKOUT) as started:
        try:
            deadline = time.monotonic() + 60
            while not containers(started.pid):
                assert time.monotonic() < deadline, "the container did not start"
                time.sleep(0.1)
            yield started
        finally:
            started.kill()


def test_ctrl_c_removes_the_container(process):
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert containers(process.pid) == []


def test_the_containers_of_a_killed_process_are_removed_by_the_next(process):
    process.kill()
    process.wait(60)
    assert containers(process.pid)
    assert remove_orphans() >= 1
    assert containers(process.pid) == []
