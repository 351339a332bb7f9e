"""Compilers side by side as memory allows."""

import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "kernels/instances"))
from costs import COSTS, load_peaks, operation, peak_mib
from schedule import MIB, Job, run_all, usable_mib


class Machine:
    """Notes how many jobs ran at once, and how much memory they took together."""

    def __init__(self):
        self.lock = threading.Lock()
        self.now, self.most, self.mib, self.most_mib, self.begun = 0, 0, 0, 0, []

    def work(self, mib):
        with self.lock:
            self.begun.append(mib)
            self.now, self.mib = self.now + 1, self.mib + mib
            self.most, self.most_mib = max(self.most, self.now), max(self.most_mib, self.mib)
        time.sleep(0.01)
        with self.lock:
            self.now, self.mib = self.now - 1, self.mib - mib
        return -mib


def ran(sizes, *, most, mib):
    machine = Machine()
    results = run_all([Job(size, size) for size in sizes], machine.work, most=most, mib=mib)
    assert results == [-size for size in sizes]
    return machine


def test_memory_limits_the_jobs():
    machine = ran([300, 100, 200, 100, 300], most=5, mib=400)
    assert machine.most_mib <= 400
    assert machine.most > 1


def test_with_memory_to_spare_the_cores_limit_them():
    assert ran([100] * 8, most=3, mib=100_000).most == 3


def test_a_job_that_is_larger_than_the_memory_runs_alone():
    machine = ran([500, 100, 600], most=3, mib=400)
    assert machine.begun[0] == 600
    assert machine.most_mib == 600


def test_small_ones_run_beside_a_large_one():
    assert ran([300, 90, 90], most=3, mib=400).most == 2


def test_a_failing_job_ends_the_rest_with_its_error():
    def work(item):
        if item == 2:
            message = "no"
            raise ValueError(message)
        return item

    with pytest.raises(ValueError, match="no"):
        run_all([Job(item, 1) for item in range(5)], work, most=2, mib=1)


@pytest.mark.parametrize("name", ["memory.max", "memory.limit_in_bytes"])
def test_the_containers_limit_counts(tmp_path, name):
    (tmp_path / name).write_text(f"{300 * MIB}\n")
    assert usable_mib([tmp_path / "missing", tmp_path / name]) == 300


@pytest.mark.parametrize("text", ["max\n", "9223372036854771712\n"])
def test_no_limit_leaves_what_the_machine_has(tmp_path, text):
    (tmp_path / "memory.max").write_text(text)
    assert usable_mib([tmp_path / "memory.max"]) == usable_mib([]) > 0


def test_the_memory_of_an_operation_is_the_most_that_one_of_its_kernels_took():
    peaks = load_peaks(COSTS)
    assert peak_mib(peaks, "fwd") == peaks["fwd"] > 0
    assert peak_mib(peaks, "never_measured") == max(peaks.values())


@pytest.mark.parametrize(("kernel", "op"), [("fa_bwd_dq_fp16_d64", "bwd_dq"), ("fa_append_bf16", "append")])
def test_operations_of_kernels(kernel, op):
    assert operation(kernel) == op
