"""Runs compilers in parallel, as many as memory allows by their known peaks.

Standard library only: this runs in the builder image.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Task(Generic[T]):
    """A job and the memory it takes."""

    item: T
    mib: int


class _Queue:
    """Waiting jobs, the largest first, and the memory taken by running ones."""

    def __init__(self, sizes: Sequence[int], mib: int) -> None:
        self._sizes, self._mib = sizes, mib
        self._left = sorted(range(len(sizes)), key=lambda at: -sizes[at])
        self._taken = self._running = 0
        self._changed = threading.Condition()

    def take(self) -> int | None:
        """Wait for room for a job and reserve it. Returns its number, or None after the last job."""
        with self._changed:
            self._changed.wait_for(lambda: not self._left or self._fitting() is not None)
            found = self._fitting()
            if found is not None:
                self._left.remove(found)
                self._taken += self._sizes[found]
                self._running += 1
            return found

    def give(self, at: int) -> None:
        with self._changed:
            self._taken -= self._sizes[at]
            self._running -= 1
            self._changed.notify_all()

    def clear(self) -> None:
        """Drop all waiting jobs."""
        with self._changed:
            self._left.clear()
            self._changed.notify_all()

    def _fitting(self) -> int | None:
        sizes = self._sizes
        return next(
            (at for at in self._left if self._taken + sizes[at] <= self._mib or not self._running), None
        )


def run_all(
    jobs: Sequence[Task[T]],
    work: Callable[[T], R],
    *,
    most: int,
    mib: int,
    stop: Callable[[], object] = lambda: None,
) -> list[R]:
    """Run ``work`` for every job, at most ``most`` at a time and within ``mib`` together.

    Results are in the order of ``jobs``. The largest jobs begin first. A job larger than ``mib`` runs alone.
    It may fit: its known size is the peak seen elsewhere. After an exception or an interrupt, waiting jobs
    are dropped and ``stop`` is called. The exception is raised once the running jobs have ended.
    """
    queue = _Queue([job.mib for job in jobs], mib)
    done: dict[int, R] = {}

    def work_on() -> None:
        while (at := queue.take()) is not None:
            try:
                done[at] = work(jobs[at].item)
            except BaseException:
                queue.clear()
                raise
            finally:
                queue.give(at)

    with ThreadPoolExecutor(most) as pool:
        try:
            workers = [pool.submit(work_on) for _ in range(min(most, len(jobs)))]
            for worker in wait(workers, return_when=FIRST_EXCEPTION).done:
                worker.result()
        except BaseException:
            queue.clear()
            stop()
            raise
    return [done[at] for at in range(len(jobs))]
