"""This machine: its CPU time so far, its distribution."""

import os
from pathlib import Path


def os_release(text: str) -> dict[str, str]:
    """The fields of an os-release file."""
    fields = (line.partition("=") for line in text.splitlines())
    return {name: value.strip("\"'") for name, _, value in fields}


def cpu_seconds(stat: Path = Path("/proc/stat")) -> float:
    """CPU-seconds of the whole machine since boot, containers and services included."""
    fields = stat.read_text(encoding="ascii").splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = map(int, fields[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
