"""This machine: cores and memory for compilers, its CPU time so far, its distribution.

Standard library only: ``kernels/build/instances/build.py`` imports it in the builder image.
"""

import math
import os
from pathlib import Path

# Compiling one attention kernel for one arch stays below this.
JOB_BYTES = 2 * 1024**3


def default_jobs(cores: int, memory_bytes: int) -> int:
    """One compiler per core, fewer when memory is short, at least one."""
    return max(1, min(cores, memory_bytes // JOB_BYTES))


def usable_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores usable by this process, after affinity and the container's quota."""
    allowed = len(os.sched_getaffinity(0))
    quota, _, period = _read(cgroup / "cpu.max").partition(" ")
    return min(allowed, math.ceil(int(quota) / int(period))) if quota.isdigit() else allowed


def usable_memory(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes of memory usable by this process, after the container's limit."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # Version 2 of cgroups, then version 1.
    limits = map(_read, (cgroup / "memory.max", cgroup / "memory/memory.limit_in_bytes"))
    return min([physical, *(int(limit) for limit in limits if limit.isdigit())])


def _read(path: Path) -> str:
    # Outside of a container this file may be missing, and memory unlimited.
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


def os_release(text: str) -> dict[str, str]:
    """The fields of an os-release file."""
    fields = (line.partition("=") for line in text.splitlines())
    return {name: value.strip("\"'") for name, _, value in fields}


def cpu_seconds(stat: Path = Path("/proc/stat")) -> float:
    """CPU-seconds of the whole machine since boot, containers and services included."""
    fields = stat.read_text(encoding="ascii").splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = map(int, fields[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
