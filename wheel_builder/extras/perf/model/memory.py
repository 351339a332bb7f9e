"""Memory: a workgroup's demand on the caches and the GPU's memory, and a decode's share of bandwidth.

Sources of the figures of the modelled GPUs (``model`` in kernels/tables/gpus.toml):

- Memory bandwidth and engine clocks: AMD's product pages, on paper.
- L2: the MI100's was measured (2.53 TB/s, rocm-amdgpu-bench issue 4). The MI300X's is 128 bytes a clock of
  each of 16 channels in 8 dies (CDNA3 white paper). Assumed for RDNA: 64 bytes a clock of each channel,
  one channel for 256 KB of L2.
- Instruction caches: AMD's architecture white papers and, for the MI300X, amd-shark-ai's optimization guide.
- Latencies of memory under load: we found no measurement, so decode is modelled over a range of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from wheel_builder.extras.perf.model import cost
from wheel_builder.extras.perf.model.bound import Executed
from wheel_builder.extras.perf.model.lds import orders
from wheel_builder.extras.perf.model.schedule import play
from wheel_builder.extras.perf.model.trace import Trace
from wheel_builder.tables.archs import arch_named


@dataclass(frozen=True)
class Moved:
    """Bytes loaded and stored by the active lanes of a workgroup."""

    loaded: int
    stored: int


def moved(counts: Mapping[str, Executed]) -> Moved:
    """Bytes from the executed instructions. Raises ``PerfError`` for one of unknown width.

    Scalar loads are left out. Scratch memory is left out too: the table lists it as spills.
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
    """The demand of all compute units together at the schedule's speed.

    ``rate``: bytes a clock and compute unit. Shares of the available bandwidth: ``l2`` if every load comes
    from the L2, ``memory`` if every load comes from the GPU's memory, ``once`` if each byte comes from memory
    once.
    """

    rate: float
    l2: float
    memory: float
    once: float

    @property
    def binds(self) -> str:
        """The bandwidth exceeded even with perfect caches, or else the required reuse."""
        if self.l2 > 1:
            return "L2"
        if self.once > 1:
            return "memory"
        return f"reuse {self.memory:.1f}" if self.memory > 1 else "no"


def demand(arch: str, loaded: int, once: int, clocks_per_workgroup: float) -> Demand:
    """The demand of workgroups loading ``loaded`` bytes each in ``clocks_per_workgroup`` per compute unit.

    ``once``: a workgroup's share of the bytes of the launch's tensors.
    """
    hardware, rate = arch_named(arch), loaded / clocks_per_workgroup
    gpu, asked = hardware.model, rate * hardware.model.clock * hardware.compute_units
    return Demand(rate, asked / gpu.l2, asked / gpu.memory, asked / gpu.memory * once / loaded)


LATENCIES = (500, 800, 1000, 2000)  # nanoseconds
WORKGROUPS = (1, 2, 4)


@dataclass(frozen=True)
class Share:
    """A decode's share of paper bandwidth, and the clocks of one round of ``workgroups``."""

    latency: int
    workgroups: int
    share: float
    clocks: int = 0


@dataclass(frozen=True)
class Decode:
    """``needed``: bytes in flight for full bandwidth, by latency, on one compute unit or processor."""

    needed: Mapping[int, float]
    shares: tuple[Share, ...]


def decode(trace: Trace, useful: int, resident: int, counts: Sequence[int] = WORKGROUPS) -> Decode:
    """Shares over ``LATENCIES`` and ``counts`` of workgroups up to ``resident``.

    Every load comes from the GPU's memory. The latency is one under load: it includes other loads' turns.
    ``useful``: the keys and values of the traced workgroup in bytes.
    """
    hardware = arch_named(trace.arch)
    gpu, isa = hardware.model, hardware.isa
    width = gpu.memory / gpu.clock / hardware.compute_units * isa.cus_of_workgroup
    charges = trace.charges(orders(trace.arch)[0])
    needed, shares = {}, []
    for latency in LATENCIES:
        clocks = round(latency * 1e-9 * gpu.clock)
        needed[latency] = width * clocks
        far = replace(trace, machine=replace(isa.timing, vmem=clocks))
        paths = far.paths(charges, port=False)
        for workgroups in (n for n in counts if n <= resident):
            played = play(trace.arch, paths, workgroups)
            share = min(1, useful * played.workgroups / (played.clocks * width))
            each = round(played.clocks * workgroups / played.workgroups)
            shares.append(Share(latency, workgroups, share, each))
    return Decode(needed, tuple(shares))
