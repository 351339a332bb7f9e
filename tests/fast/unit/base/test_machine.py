"""The number of compilers from cores and memory, and os-release files."""

import os

import pytest

from kernels.build.machine import default_jobs, usable_cores, usable_memory
from wheel_builder.base.machine import os_release

GIB = 1024**3


@pytest.mark.parametrize(
    ("cores", "memory", "jobs"),
    [(2, 24 * GIB, 2), (16, 8 * GIB, 4), (8, 5 * GIB, 2), (4, 1 * GIB, 1), (1, 64 * GIB, 1)],
)
def test_default_jobs_take_the_scarcer_of_cores_and_memory(cores, memory, jobs):
    assert default_jobs(cores, memory) == jobs


def test_a_container_quota_limits_the_cores(tmp_path):
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert usable_cores(tmp_path) == 1


def test_a_container_limit_limits_the_memory(tmp_path):
    (tmp_path / "memory.max").write_text(f"{GIB}\n")
    assert usable_memory(tmp_path) == GIB


def test_a_limit_of_the_older_cgroups_counts_too(tmp_path):
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.limit_in_bytes").write_text(f"{GIB}\n")
    assert usable_memory(tmp_path) == GIB


def test_no_limit_leaves_what_the_machine_has(tmp_path):
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert usable_cores(tmp_path) == len(os.sched_getaffinity(0))
    assert usable_memory(tmp_path) > 0
    assert usable_memory(tmp_path) == usable_memory(tmp_path / "no-such-folder")


def test_fields_of_os_release_are_without_their_quotes():
    text = 'PRETTY_NAME="A distribution = good"\nID=\'a\'\nID_LIKE="debian b"\n# comment\n\nVERSION_ID=1\n'
    fields = os_release(text)
    assert fields["PRETTY_NAME"] == "A distribution = good"
    assert (fields["ID"], fields["ID_LIKE"], fields["VERSION_ID"]) == ("a", "debian b", "1")
