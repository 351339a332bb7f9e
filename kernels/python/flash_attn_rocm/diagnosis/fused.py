"""Whether PyTorch's own fused attention works on the first GPU, as processes of its own find out (``probe``).

Some builds of PyTorch for AMD GPUs have a flash or memory-efficient attention that fails, or that leaves its
error to an operation after it, or returns zeros: in this process one of these would spoil what follows.
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
    """What each of them does, by a process for each, side by side."""
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
