"""Memory: what a workgroup asks of the caches and of the GPU's memory, and a decode's share of its bandwidth.

Figures of the GPUs that the archs stand for:

- Memory bandwidth and engine clocks: AMD's product pages, on paper.
- L2: the MI100's was measured (2.53 TB/s, rocm-amdgpu-bench issue 4); the MI300X's is 128 bytes a clock of
  each of 16 channels in 8 dies (CDNA3 white paper).  Assumed for RDNA: 64 bytes a clock of each of 16
  channels (gfx1030) or 24.
- Instruction caches: AMD's architecture white papers and, for the MI300X, amd-shark-ai's optimization guide.
- Latencies of memory under load: no measurement was found, so decode is modelled over a range of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from wheel_builder.base.archs import arch_named
from wheel_builder.base.errors import PerfError
from wheel_builder.perf import cost
from wheel_builder.perf.bound import Executed
from wheel_builder.perf.lds import orders
from wheel_builder.perf.numbers import numbers
from wheel_builder.perf.schedule import play
from wheel_builder.perf.trace import Trace


@dataclass(frozen=True)
class Gpu:
    """The GPU that an arch is modelled as: Hz, bytes a second of the whole device, bytes."""

    name: str
    clock: float
    memory: float
    l2: float
    instruction_cache: int


GPUS: Mapping[str, Gpu] = {
    "gfx908": Gpu("MI100", 1.502e9, 1.2288e12, 2.53e12, 32 << 10),
    "gfx942": Gpu("MI300X", 2.1e9, 5.3e12, 8 * 16 * 128 * 2.1e9, 64 << 10),
    "gfx1030": Gpu("RX 6900 XT", 2.25e9, 512e9, 16 * 64 * 2.25e9, 32 << 10),
    "gfx1100": Gpu("RX 7900 XTX", 2.5e9, 960e9, 24 * 64 * 2.5e9, 32 << 10),
}


def gpu_of(arch: str) -> Gpu:
    """Raises ``PerfError`` for an arch without one."""
    if arch not in GPUS:
        title = f"no GPU is known for {arch}"
        raise PerfError(title, [f"known: {', '.join(GPUS)}"], advice="add it to perf/memory.py")
    return GPUS[arch]


@dataclass(frozen=True)
class Moved:
    """Bytes that the active lanes of a workgroup load and store."""

    loaded: int
    stored: int


def moved(counts: Mapping[str, Executed]) -> Moved:
    """From the executed instructions; raises ``PerfError`` for one of unknown width.

    Scalar loads are left out, and scratch memory, which the table has as spills.
    """
    loaded = stored = 0
    for name, count in counts.items():
        if name.startswith(("buffer_", "global_", "flat_")):
            size = count.lanes * cost.vmem_bytes(name)
            if "_store_" in name:
                stored += size
            else:
                loaded += size
    return Moved(loaded, stored)


@dataclass(frozen=True)
class Demand:
    """What all compute units together ask for at the schedule's speed.

    ``rate``: bytes a clock and compute unit.  Shares of what there is: ``l2`` if every load comes from the
    L2, ``memory`` if every load comes from the GPU's memory, ``once`` if each byte comes from there once.
    """

    rate: float
    l2: float
    memory: float
    once: float

    @property
    def binds(self) -> str:
        """What has less than is asked for, however well caches do their work; else the reuse that is
        needed.
        """
        if self.l2 > 1:
            return "L2"
        if self.once > 1:
            return "memory"
        return f"reuse {self.memory:.1f}" if self.memory > 1 else "no"


def demand(arch: str, loaded: int, once: int, clocks_per_workgroup: float) -> Demand:
    """Of workgroups that load ``loaded`` bytes each, ``once`` for each of which is a workgroup's share of the
    launch's tensors.  ``clocks_per_workgroup``: of one compute unit.
    """
    gpu, rate = gpu_of(arch), loaded / clocks_per_workgroup
    asked = rate * gpu.clock * arch_named(arch).compute_units
    return Demand(rate, asked / gpu.l2, asked / gpu.memory, asked / gpu.memory * once / loaded)


LATENCIES = (500, 800, 1000, 2000)  # nanoseconds
WORKGROUPS = (1, 2, 4)


@dataclass(frozen=True)
class Share:
    """A decode's share of paper bandwidth with ``workgroups`` at a time on what runs one."""

    latency: int
    workgroups: int
    share: float


@dataclass(frozen=True)
class Decode:
    """``needed``: bytes that have to be on their way for all the bandwidth, by latency, on what runs a
    workgroup.
    """

    needed: Mapping[int, float]
    shares: tuple[Share, ...]


def decode(trace: Trace, useful: int, resident: int) -> Decode:
    """Shares over ``LATENCIES`` and ``WORKGROUPS``, as far as so many are ``resident``.

    Every load comes from the GPU's memory, after a latency in which other loads' turns are included: it is
    one under load.  ``useful``: the keys and values of the traced workgroup in bytes.
    """
    gpu, hardware = gpu_of(trace.arch), arch_named(trace.arch)
    width = gpu.memory / gpu.clock / hardware.compute_units * hardware.cus_of_workgroup
    charges = trace.charges(orders(trace.arch)[0])
    needed, shares = {}, []
    for latency in LATENCIES:
        clocks = round(latency * 1e-9 * gpu.clock)
        needed[latency] = width * clocks
        far = replace(trace, machine=replace(numbers(trace.arch), vmem=clocks))
        paths = far.paths(charges, port=False)
        for workgroups in (n for n in WORKGROUPS if n <= resident):
            played = play(trace.arch, paths, workgroups)
            shares.append(
                Share(latency, workgroups, min(1, useful * played.workgroups / (played.clocks * width)))
            )
    return Decode(needed, tuple(shares))
