"""Runs compilers side by side as long as there is memory for what each is known to take.

Standard library only: this runs in the builder image.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

MIB = 1024**2
# Version 2 of cgroups, then version 1; a container sees its own limit there.
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
# For Python, the sources and what the kernel keeps of files.
RESERVED_MIB = 64

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Job(Generic[T]):
    """Something to do, and the memory that it takes."""

    item: T
    mib: int


def usable_mib(limits: Sequence[Path] = LIMITS) -> int:
    """What this process and its children may take: the machine's memory, or the container's limit."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    texts = [path.read_text(encoding="ascii").strip() for path in limits if path.is_file()]
    return min([physical, *(int(text) for text in texts if text.isdigit())]) // MIB


def run_all(jobs: Sequence[Job[T]], work: Callable[[T], R], *, most: int, mib: int) -> list[R]:
    """``work`` of every job, in the order of ``jobs``; at most ``most`` at a time, and of ``mib`` together.

    The largest begin first.  A job that is larger than ``mib`` runs alone: it may fit, since what is known
    is the most that it took elsewhere.
    """
    left = sorted(range(len(jobs)), key=lambda at: -jobs[at].mib)
    taken = 0
    running = 0
    changed = threading.Condition()

    def take() -> int:
        nonlocal taken, running
        with changed:
            while True:
                fits = next((at for at in left if taken + jobs[at].mib <= mib or not running), None)
                if fits is not None:
                    left.remove(fits)
                    taken += jobs[fits].mib
                    running += 1
                    return fits
                changed.wait()

    def give(at: int) -> None:
        nonlocal taken, running
        with changed:
            taken -= jobs[at].mib
            running -= 1
            changed.notify_all()

    def one(_: int) -> tuple[int, R]:
        at = take()
        try:
            return at, work(jobs[at].item)
        finally:
            give(at)

    with ThreadPoolExecutor(most) as pool:
        done = dict(pool.map(one, range(len(jobs))))
    return [done[at] for at in range(len(jobs))]
