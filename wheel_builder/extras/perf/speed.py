"""The speed of a kernel's workgroups, for a launch: the schedule of a compute unit at two lengths."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from wheel_builder.extras.perf.launch.kernels import Kernel
from wheel_builder.extras.perf.launch.simulate import CHUNK, Speed
from wheel_builder.extras.perf.measure import Subject, has_exclusive, resident_of, run, traced
from wheel_builder.extras.perf.model.lds import orders
from wheel_builder.extras.perf.model.schedule import play
from wheel_builder.extras.perf.workloads import gradients, ours
from wheel_builder.extras.perf.workloads.workload import Workload
from wheel_builder.machine_code.emulator import machine
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.kinds import known_kinds
from wheel_builder.tables.tiles import workgroup_of

FORWARD_LENGTHS = (ours.SEQLEN, ours.LONG)
LENGTHS = (ours.SEQLEN, 2 * ours.SEQLEN)  # of a decode's keys, and of a backward's queries or keys
DECODE_LATENCY = 1e-6  # seconds, under load: a decode has nothing to compute meanwhile
BACKWARDS = ("bwd_dkdv", "bwd_dq", "bwd_fused")
FP32 = 4
# Files of single kernels, before any is read.
PLAYED = re.compile(rf"fa_(fwd|fwd_tall|decode|{'|'.join(BACKWARDS)})_fp16_d(64|128)$")


def speeds(subject: Subject) -> Iterator[Kernel]:
    """The kernels of a code object that the launch model plays. Raises as ``measure``."""
    arch = subject.machine.arch
    for name, kernel in subject.machine.kernels.items():
        if ours.is_plain_forward(name) and len(ours.lengths(kernel)) > 1:
            yield _forward(subject, arch, kernel)
        elif gradients.is_compared(name, BACKWARDS):
            yield _backward(subject, arch, kernel)
        elif ours.is_compared_decode(name):
            yield _decode(subject, arch, kernel)


def _forward(subject: Subject, arch: str, kernel: machine.Kernel) -> Kernel:
    op, dtype, head_dim = ours.named(kernel)
    return _kernel(arch, op, dtype, head_dim, forward_speed(subject, kernel))


def forward_speed(subject: Subject, kernel: machine.Kernel) -> Speed:
    """The speed of an unmasked forward, with whatever rows it was compiled with. Raises as ``measure``."""
    op, _, head_dim = ours.named(kernel)
    dies = ours.dies_of(subject.machine.arch)
    found = [_clocks(subject, ours.forward(kernel, dies=dies, keys=keys)) for keys in FORWARD_LENGTHS]
    row_bytes = 2 * (head_dim + ours.value_dim(op, head_dim))
    return _speed(found, FORWARD_LENGTHS, row_bytes)


def masked_speed(subject: Subject, kernel: machine.Kernel, kind: str) -> Speed:
    """As ``forward_speed``, with a mask, whose bytes are left out."""
    _, _, head_dim = ours.named(kernel)
    dies = ours.dies_of(subject.machine.arch)
    found = [
        _clocks(subject, ours.masked_forward(kernel, kind, dies=dies, keys=keys)) for keys in FORWARD_LENGTHS
    ]
    return _speed(found, FORWARD_LENGTHS, 2 * 2 * head_dim)


def _backward(subject: Subject, arch: str, kernel: machine.Kernel) -> Kernel:
    op, dtype, head_dim = gradients.named(kernel)
    return _kernel(arch, op, dtype, head_dim, backward_speed(subject, kernel))


def backward_speed(subject: Subject, kernel: machine.Kernel, rows: int = 0) -> Speed:
    """The speed of a backward's kernel. ``rows`` of its workgroups, if others than the table's."""
    op, _, head_dim = gradients.named(kernel)
    arch, kind = subject.machine.arch, known_kinds()[op]
    found = [
        _clocks(subject, gradients.backward(arch, kernel, length=length, rows=rows)) for length in LENGTHS
    ]
    # Of q and dout with lse and delta, or of k and v.
    row_bytes = 2 * (head_dim + kind.of_v(head_dim)) + 2 * FP32 * (kind.tile == gradients.BY_KEYS)
    return _speed(found, LENGTHS, row_bytes, FP32 * head_dim * (op == "bwd_fused"))


def _decode(subject: Subject, arch: str, kernel: machine.Kernel) -> Kernel:
    dtype, head_dim = ours.decoded(kernel)
    found = [_clocks(subject, ours.decoding(kernel, keys=keys), latency=DECODE_LATENCY) for keys in LENGTHS]
    return _kernel(arch, "decode", dtype, head_dim, _speed(found, LENGTHS, 2 * 2 * head_dim))


def _kernel(arch: str, op: str, dtype: str, head_dim: int, speed: Speed) -> Kernel:
    return Kernel(
        f"{op} {dtype} d{head_dim}", workgroup_of(arch_named(arch), op, dtype, head_dim).rows, speed
    )


def _speed(
    found: Sequence[tuple[float, ...]], lengths: tuple[int, int], row_bytes: int, added: int = 0
) -> Speed:
    """From the clocks at two lengths: those of a chunk, and those of a workgroup besides."""
    (short, long), (few, many) = found, (length / CHUNK for length in lengths)
    clocks = tuple(round((more - less) / (many - few), 1) for less, more in zip(short, long, strict=True))
    return Speed(clocks, round(max(0.0, short[-1] - clocks[-1] * few), 1), row_bytes, added)


def _clocks(subject: Subject, workload: Workload, *, latency: float = 0.0) -> tuple[float, ...]:
    """Clocks of a workgroup in its slot, for one, two, ... on a compute unit. By the slowest schedule.

    ``latency`` of memory in seconds, if another than the schedule's.
    """
    arch = subject.machine.arch
    fit = resident_of(subject, workload)
    trace = traced(subject, workload.kernel, run(subject.machine, workload))
    charges = trace.charges(orders(arch)[0])
    if latency:
        hardware = arch_named(arch)
        far = replace(hardware.isa.timing, vmem=round(latency * hardware.model.clock))
        trace = replace(trace, machine=far)
    paths, exclusive = trace.paths(charges, port=False), has_exclusive(arch)
    return tuple(play(arch, paths, n, exclusive=exclusive).clocks_in_place for n in range(1, fit + 1))
