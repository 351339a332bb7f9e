"""What this machine has: cores and memory for compilers, and the CPU time that was spent on it."""

import math
import os
from pathlib import Path

# One compile of an attention kernel for one arch stays below this.
JOB_BYTES = 2 * 1024**3


def default_jobs(cores: int, memory_bytes: int) -> int:
    """One compiler for each core, as long as each has its memory; at least one."""
    return max(1, min(cores, memory_bytes // JOB_BYTES))


def usable_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores that this process may use, after affinity and the container's quota."""
    allowed = len(os.sched_getaffinity(0))
    quota, _, period = _read(cgroup / "cpu.max").partition(" ")
    return min(allowed, math.ceil(int(quota) / int(period))) if quota.isdigit() else allowed


def usable_memory(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes of memory that this process may use, after the container's limit."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _read(cgroup / "memory.max")
    return min(physical, int(limit)) if limit.isdigit() else physical


def _read(path: Path) -> str:
    # Outside a cgroup v2 container there is no such file, and no limit.
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


def cpu_seconds(stat: Path = Path("/proc/stat")) -> float:
    """CPU-seconds that the whole machine has spent since it started, containers and services included."""
    fields = stat.read_text(encoding="ascii").splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = map(int, fields[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
