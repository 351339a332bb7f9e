"""Wave-instructions per second of the finished wheel's forward kernels: a benchmark, not a test.

    python -m tests.engine.emulator.bench_speed [FOLDER]

Run it after a release.  FOLDER has pairs of ``<arch>-<n>.co`` and ``.s``, as the pipeline leaves them in
build/wheel-disassembly (default: the newest there).  Two workgroups, 1024 keys, no mask. The figure is the
best of the runs within 0.3 s: without checks, with each slow check, and with all of them. One thread is
measured in CPU time, independent of other work on the machine. Two threads are measured in wall-clock time,
so other work counts.
"""

import sys
import time
from pathlib import Path

from tests.tools.built import newest_built
from wheel_builder.machine_code.emulator.attention import Case, make_call
from wheel_builder.machine_code.emulator.binding import Core
from wheel_builder.machine_code.emulator.machine import ALL_CHECKS, Launch, Machine, Options
from wheel_builder.machine_code.fake_hip.container import LIBRARY

RUNS, SECONDS, KEYS, GROUPS = 3, 0.3, 1024, 2
SETTINGS = {
    "no checks": Options(checks=()),
    "uninit": Options(checks=("uninit",)),
    "race": Options(checks=("race",)),
    "all checks": Options(checks=ALL_CHECKS),
    "no checks, 2 threads": Options(checks=(), threads=2),
    "all checks, 2 threads": Options(checks=ALL_CHECKS, threads=2),
}


def speed(machine, call, options):
    """(wave-instructions of a run, millions of them a second)."""
    kernel = call.case.kernel
    launch = Launch((1, GROUPS, 1), (machine.kernels[kernel].max_threads, 1, 1))
    clock = time.process_time if options.threads == 1 else time.perf_counter
    best, executed, runs, begin = float("inf"), 0, 0, clock()
    while runs < RUNS or clock() - begin < SECONDS:
        runs += 1
        start = clock()
        result = machine.run(kernel, launch, call.kernarg(), call.memory, options)
        best = min(best, clock() - start)
        assert not result.error, result.error
        result.raise_on_findings()
        executed = result.executed
    return executed, executed / best / 1e6


def main(folder=""):
    core = Core(newest_built("fake_hip") / LIBRARY)
    print("arch     kernel            wave-instructions, millions a second: " + "; ".join(SETTINGS))  # noqa: T201
    for code in sorted(Path(folder or newest_built("wheel-disassembly")).glob("*.co")):
        machine = Machine(core, code.read_bytes(), code.with_suffix(".s").read_text())
        for kernel in sorted(machine.kernels):
            _, op, dtype, *dim = kernel.split("_")
            if op != "fwd":
                continue
            call = make_call(Case(dtype, int(dim[0][1:]), 128, KEYS, nheads=GROUPS))
            rates = [speed(machine, call, options) for options in SETTINGS.values()]
            shown = "  ".join(f"{rate:6.2f}" for _, rate in rates)
            print(f"{machine.arch:8} {kernel:18} {rates[0][0]:9,}  {shown}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
