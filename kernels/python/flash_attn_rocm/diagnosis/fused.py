"""Tests PyTorch's own fused attention on the first GPU, in child processes (``probe``).

In some builds of PyTorch for AMD GPUs, flash or memory-efficient attention fails, leaves its error to a later
operation, or returns zeros. A child process keeps such errors away from this one.
"""

import json
import signal
import subprocess
import sys

from flash_attn_rocm.diagnosis.facts import Fused

NAMES = ("flash", "memory-efficient")
PROBE = (sys.executable, "-m", "flash_attn_rocm.diagnosis.probe")
LONGEST = 120  # seconds, with the import of PyTorch


def look(argv: tuple[str, ...] = PROBE) -> tuple[Fused, ...]:
    """The state of each fused attention, from one process each, in parallel."""
    started = [
        subprocess.Popen(
            [*argv, name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        for name in NAMES
    ]
    return tuple(map(_ended, NAMES, started))


def _ended(name: str, process: "subprocess.Popen[str]") -> Fused:
    try:
        said, complaint = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Fused(name, "fails", f"it did not end within {LONGEST} s")
    if process.returncode < 0:
        return Fused(name, "fails", f"its process was ended by {signal.Signals(-process.returncode).name}")
    try:
        return Fused(**json.loads(said.splitlines()[-1]))
    except (ValueError, TypeError, LookupError):
        last = "".join(complaint.strip().splitlines()[-1:])[:200]
        return Fused(name, "fails", f"its process ended with status {process.returncode}: {last}")
