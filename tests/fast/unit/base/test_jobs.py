"""Compilers side by side as memory allows."""

import threading
import time

import pytest

from kernels.build.jobs import Task, run_all


class Machine:
    """Notes how many jobs ran at once, and how much memory they took together.

    Jobs end once ``together`` have run at once, even on a slow machine.
    """

    def __init__(self, together):
        self.changed, self.together = threading.Condition(), together
        self.now, self.most, self.mib, self.most_mib, self.begun = 0, 0, 0, 0, []

    def work(self, mib):
        with self.changed:
            self.begun.append(mib)
            self.now, self.mib = self.now + 1, self.mib + mib
            self.most, self.most_mib = max(self.most, self.now), max(self.most_mib, self.mib)
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.most >= self.together, timeout=20)
        time.sleep(0.01)  # time for jobs that would begin too early
        with self.changed:
            self.now, self.mib = self.now - 1, self.mib - mib
        return -mib


def ran(sizes, *, most, mib, together=1):
    machine = Machine(together)
    results = run_all([Task(size, size) for size in sizes], machine.work, most=most, mib=mib)
    assert results == [-size for size in sizes]
    return machine


def test_memory_limits_the_jobs():
    assert ran([300, 100, 200, 100, 300], most=5, mib=400, together=2).most_mib <= 400


def test_with_memory_to_spare_the_cores_limit_them():
    assert ran([100] * 8, most=3, mib=100_000, together=3).most == 3


def test_a_job_that_is_larger_than_the_memory_runs_alone():
    machine = ran([500, 100, 600], most=3, mib=400)
    assert machine.begun[0] == 600
    assert machine.most_mib == 600


def test_small_ones_run_beside_a_large_one():
    assert ran([300, 90, 90], most=3, mib=400, together=2).most == 2


def test_a_failing_job_ends_the_rest_with_its_error():
    def work(item):
        if item == 2:
            message = "no"
            raise ValueError(message)
        return item

    with pytest.raises(ValueError, match="no"):
        run_all([Task(item, 1) for item in range(5)], work, most=2, mib=1)


@pytest.mark.parametrize("most", [2, 5])
def test_after_an_interrupt_those_that_wait_do_not_begin_and_those_that_run_are_stopped(most):
    """Compilers of upstream's kernels run in containers, which only ``stop`` ends."""
    begun, stopped = [], threading.Event()

    def work(item):
        begun.append(item)
        if item == 0:
            raise KeyboardInterrupt
        assert stopped.wait(20)

    with pytest.raises(KeyboardInterrupt):
        run_all([Task(item, 10 - item) for item in range(5)], work, most=most, mib=19, stop=stopped.set)
    assert begun in ([0], [0, 1])


def test_a_job_that_fails_is_told_although_another_runs_on():
    """The running job starts none of the waiting ones."""
    failed, begun = threading.Event(), []

    def work(item):
        begun.append(item)
        if item == 1:
            failed.set()
            raise ValueError(item)
        assert failed.wait(20)

    with pytest.raises(ValueError, match="1"):
        run_all([Task(item, 1) for item in range(50)], work, most=2, mib=9)
    assert len(begun) < 10
