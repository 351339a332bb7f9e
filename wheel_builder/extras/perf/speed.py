"""The speed of a kernel's workgroups, for a launch: the schedule of a compute unit at two lengths."""

from wheel_builder.extras.perf.launch.simulate import CHUNK, Die, Speed
from wheel_builder.extras.perf.measure import Subject, has_exclusive, resident_of, run, traced
from wheel_builder.extras.perf.model.lds import orders
from wheel_builder.extras.perf.model.schedule import play
from wheel_builder.extras.perf.workloads import ours
from wheel_builder.extras.perf.workloads.workload import Workload
from wheel_builder.machine_code.emulator.machine import Kernel
from wheel_builder.tables.archs import arch_named

LENGTHS = (ours.SEQLEN, ours.LONG)
FAR_LATENCY = 800e-9  # seconds from a request to its first byte, under load. Assumed
DISPATCH = 4.0  # clocks between two workgroups that a die starts. Assumed
LAST_CACHE_RATE = 3  # bandwidth of the last cache, in memory bandwidths. AMD's figures are 3.2 to 3.9 times


def forward_speed(subject: Subject, kernel: Kernel) -> Speed:
    """Of a forward without a mask, from two lengths of keys. Raises as ``measure``."""
    dies = ours.dies_of(subject.machine.arch)
    short, long = (_clocks(subject, ours.forward(kernel, dies=dies, keys=keys)) for keys in LENGTHS)
    chunks = (LENGTHS[1] - LENGTHS[0]) / CHUNK
    clocks = tuple((more - less) / chunks for less, more in zip(short, long, strict=True))
    _, _, head_dim = ours.named(kernel)
    value_dim = ours.value_dim("fwd", head_dim)
    return Speed(clocks, short[-1] - clocks[-1] * LENGTHS[0] / CHUNK, 2 * (head_dim + value_dim))


def _clocks(subject: Subject, workload: Workload) -> tuple[float, ...]:
    """Clocks of a workgroup in its slot, for one, two, ... on a compute unit. By the slowest schedule."""
    arch = subject.machine.arch
    fit = resident_of(subject, workload)
    trace = traced(subject, workload.kernel, run(subject.machine, workload))
    paths = trace.paths(trace.charges(orders(arch)[0]), port=False)
    exclusive = has_exclusive(arch)
    return tuple(play(arch, paths, n, exclusive=exclusive).clocks_in_place for n in range(1, fit + 1))


def die_of(arch: str) -> Die:
    """A die of the arch's modelled GPU, with its share of the last cache and of memory."""
    hardware = arch_named(arch)
    gpu, dies = hardware.model, ours.dies_of(arch) or 1
    memory = gpu.memory / gpu.clock / dies
    return Die(
        units=hardware.compute_units // hardware.isa.cus_of_workgroup // dies,
        l2_bytes=gpu.l2_bytes,
        l2=gpu.l2 / gpu.clock / dies,
        far_bytes=gpu.last_cache // dies,
        far=LAST_CACHE_RATE * memory,
        memory=memory,
        latency=round(FAR_LATENCY * gpu.clock),
        dispatch=DISPATCH,
    )
