"""In the verify container: the command line's ``tune --apply`` with the installed candidates, then a call.

The emulator takes the GPU's place: calls are short, and a row's time is from a table. With a row that hangs
as the third argument, the process is killed while it runs. Without, ``tune`` is ended by Ctrl-C, and meets
another process and a full disk, before it comes to its end.
"""

import contextlib
import errno
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import torch
from flash_attn_rocm import explain, flash_attn_func
from flash_attn_rocm.__main__ import main
from flash_attn_rocm.library import tuned
from flash_attn_rocm.tuning import command
from flash_attn_rocm.tuning.bins import Sizes
from row_clock import clock_of, in_use, timed

from wheel_builder.machine_code.fake_hip.control import HOST_MEMORY, FakeHip, kernels_on_host_memory

FASTER, OUT, HANGS = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
REPORT = OUT / "report.json"
ARGUMENTS = ["tune", "--seqlen", "40", "--runs", "1", "--report", str(REPORT)]
TIMES = 2 * 2  # of a kernel without a right candidate: causal or not, two widths
SLEEPS = "import time; time.sleep(600)"
# Ends the process by force, as a task manager does, two seconds after the row begins.
KILLER = """
import json, os, sys, time
from pathlib import Path
folder, row, pid = sys.argv[1:]
def runs():
    for file in Path(folder).glob("tune-*.json"):
        try:
            return row in (json.loads(file.read_text())["running"] or ())
        except (OSError, ValueError):
            pass
while not runs():
    time.sleep(0.1)
time.sleep(2)
os.kill(int(pid), 9)
"""
clock = clock_of({"": 2.0, FASTER: 1.0})


def tune(*more):
    return main([*ARGUMENTS, *more])


def interrupted(call, where):
    """Ctrl-C while the second kernel is timed."""
    if len(timed) == TIMES:
        signal.raise_signal(signal.SIGINT)
    return clock(call, where)


def after_ctrl_c():
    command.main.__kwdefaults__["clock"] = interrupted
    status = tune()
    command.main.__kwdefaults__["clock"] = clock
    return {"status": status, "kernels": kept()}


def kept():
    return [*json.loads(REPORT.read_text())["kernels"]]


def beside_another():
    """While a process that lives has the lock. Afterwards the lock is that of one that ended."""
    [progress] = tuned.folder().glob("tune-*.json")
    with subprocess.Popen([sys.executable, "-c", SLEEPS]) as other:
        progress.with_suffix(".pid").write_text(str(other.pid))
        with contextlib.redirect_stdout(io.StringIO()) as said:
            status = tune()
        other.kill()
    return {"status": status, "said": said.getvalue()}


def on_a_full_disk():
    def full(*_given, **_named):
        raise OSError(errno.ENOSPC, "No space left on device")

    write, Path.write_text = Path.write_text, full
    try:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            status = tune()
    finally:
        Path.write_text = write
    return {"status": status, "said": said.getvalue(), "kernels": kept()}


command.main.__kwdefaults__["clock"] = clock
command.Sizes = lambda lengths: Sizes(lengths, tokens=40, heads=4)
fake_hip = FakeHip()
with kernels_on_host_memory(fake_hip):
    if HANGS:
        subprocess.Popen([sys.executable, "-c", KILLER, str(tuned.folder()), *HANGS, str(os.getpid())])
        tune()
        (OUT / "ended").touch()
        sys.exit()
    shown = {"ctrl_c": after_ctrl_c(), "second": beside_another(), "full": on_a_full_disk()}
    status = tune("--apply")
    HOST_MEMORY.checks_kernels = True
    in_use[0] = ""
    q = torch.randn(1, 17, 4, 64).half()
    out = flash_attn_func(q, q, q, causal=True)
    shown |= {
        "status": status,
        "row": explain(q, q, q, causal=True).row,
        "in_use": in_use[0],
        "launched": fake_hip.report().launches[-1].kernel,
        "error": float((out - torch.nn.functional.scaled_dot_product_attention(
            *(3 * [q.float().transpose(1, 2)]), is_causal=True).transpose(1, 2)).abs().max()),
    }  # fmt: skip
(OUT / "shown.json").write_text(json.dumps(shown))
