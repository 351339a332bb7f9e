"""Runs many drawn calls (drawn.py) in the verify container and records what each executes.

    python candidates.py COUNT FILE [KERNEL]

COUNT calls of each kernel whose name contains KERNEL.  FILE is JSON, for tests/choose.py: arch, kernels (how
many instructions each has, by name) and calls.  A call has kernel, number, features, executed
(wave-instructions), ran (by kernel, the instructions of FakeHip.listing as bits of a hexadecimal number) and
failure, which is "" for a right answer.
"""

import json
import sys
from pathlib import Path

import flash_attn_rocm
import torch
from conftest import ARCH, DECODE, FORWARD, Shown, Target
from drawn import Call, Kernel, draw
from rule import DTYPES, judge

from wheel_builder.fake_hip.control import FakeHip, kernels_on_host_memory


class Noting(FakeHip):
    """Keeps the launches of every report."""

    def __init__(self):
        super().__init__()
        self.launches = []

    def report(self):
        found = super().report()
        self.launches = found.launches
        return found


def kernels(wanted=""):
    every = [
        *(Kernel("fwd", *each) for each in FORWARD),
        *(Kernel("decode", *each) for each in DECODE),
        *(Kernel("reference", dtype) for dtype in DTYPES),
    ]
    return [kernel for kernel in every if wanted in str(kernel)]


def call(target, kernel, number):
    case, shown = draw(kernel, number), Shown()
    failure = ""
    try:
        made = Call(case, target.device)
        judge(shown, str(kernel), repr(case), made.run(target), made.rules)
    except (AssertionError, RuntimeError) as error:
        failure = f"{type(error).__name__}: {error}"
    launches = target.fake_hip.launches
    return {
        "kernel": str(kernel),
        "number": number,
        "features": sorted(case.features),
        "executed": sum(launch.executed for launch in launches),
        "ran": {launch.kernel: hex(launch.ran) for launch in launches},
        "failure": failure,
    }


def main(count, file, wanted=""):
    flash_attn_rocm.set_strict(True)
    torch.set_num_threads(1)
    fake_hip = Noting()
    with kernels_on_host_memory(fake_hip):
        target = Target(fake_hip, Shown())
        calls = [call(target, kernel, number) for kernel in kernels(wanted) for number in range(int(count))]
        names = {name for each in calls for name in each["ran"]}
        sizes = {name: len(fake_hip.listing(name)) for name in sorted(names)}
    Path(file).write_text(json.dumps({"arch": ARCH, "kernels": sizes, "calls": calls}))


if __name__ == "__main__":
    main(*sys.argv[1:])
