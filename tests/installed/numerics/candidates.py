"""Runs many fuzz cases (flash_attn_rocm.suite.fuzz) in the verify container and records their execution.

    python candidates.py COUNT FILE [KERNEL]

Runs calls of each kernel whose name contains KERNEL, until they have every supported feature and COUNT in a
row execute nothing new.  FILE is JSON, for tests/tools/corpus.py: arch, kernels (the number of instructions
of each, by name) and calls.  A call has kernel, number, features, executed (wave-instructions), ran and
outcomes (by kernel, as a hexadecimal number; see ``Launch``) and failure ("" for a right answer).
"""

import json
import sys
from pathlib import Path

import flash_attn_rocm
import torch
from flash_attn_rocm.suite.fuzz import draw, kernels, made, served
from flash_attn_rocm.suite.target import Shown, Target, arch

from wheel_builder.machine_code.fake_hip.control import FakeHip, kernels_on_host_memory


class Noting(FakeHip):
    """Keeps the launches of every report."""

    def __init__(self):
        super().__init__()
        self.launches = []

    def report(self):
        found = super().report()
        self.launches = found.launches
        return found


def call(target, kernel, number):
    case, shown = draw(kernel, number), Shown()
    failure = ""
    try:
        made(case, target.device).check(target, shown)
    except (AssertionError, RuntimeError) as error:
        failure = f"{type(error).__name__}: {error}"
    launches = target.runtime.launches
    return {
        "kernel": str(kernel),
        "number": number,
        "features": sorted(case.features),
        "executed": sum(launch.executed for launch in launches),
        "ran": {launch.kernel: hex(launch.ran) for launch in launches},
        "outcomes": {launch.kernel: hex(launch.outcomes) for launch in launches},
        "failure": failure,
    }


def calls_of(target, kernel, count):
    """Until they have every feature and this many in a row execute nothing new."""
    ran, number, last, missing = {}, 0, 0, set(served(kernel))
    while missing or number - last < count:
        made_call = call(target, kernel, number)
        missing.difference_update(made_call["features"])
        number += 1
        for name, digits in made_call["ran"].items():
            before = ran.get(name, 0)
            ran[name] = before | int(digits, 16)
            last = number if ran[name] != before else last
        yield made_call


def main(count, file, wanted=""):
    flash_attn_rocm.set_strict(True)
    torch.set_num_threads(1)
    fake_hip = Noting()
    with kernels_on_host_memory(fake_hip):
        target = Target(fake_hip, Shown())
        asked = [kernel for kernel in kernels() if wanted in str(kernel)]
        calls = [each for kernel in asked for each in calls_of(target, kernel, int(count))]
        names = {name for each in calls for name in each["ran"]}
        sizes = {name: len(fake_hip.listing(name)) for name in sorted(names)}
    Path(file).write_text(json.dumps({"arch": arch(), "kernels": sizes, "calls": calls}))


if __name__ == "__main__":
    main(*sys.argv[1:])
