"""Cores and memory for compilers on this machine, or in this container.

Standard library only: this runs in the builder image.
"""

import math
import os
from pathlib import Path

# Compiling one attention kernel for one arch stays below this.
JOB_BYTES = 2 * 1024**3


def default_jobs(cores: int, memory_bytes: int) -> int:
    """One compiler per core, or fewer if memory is short. At least one."""
    return max(1, min(cores, memory_bytes // JOB_BYTES))


def usable_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores available to this process, by affinity and the container's quota."""
    allowed = len(os.sched_getaffinity(0))
    quota, _, period = _read(cgroup / "cpu.max").partition(" ")
    return min(allowed, math.ceil(int(quota) / int(period))) if quota.isdigit() else allowed


def usable_memory(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes of memory available to this process, by the container's limit."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # Version 2 of cgroups, then version 1.
    limits = map(_read, (cgroup / "memory.max", cgroup / "memory/memory.limit_in_bytes"))
    return min([physical, *(int(limit) for limit in limits if limit.isdigit())])


def _read(path: Path) -> str:
    # Outside of a container there may be no such file and no limit.
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""
