"""Turns a code object and a workload into both models' figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.model.bound import Bound, busy_bound
from wheel_builder.extras.perf.model.disputed import disputed
from wheel_builder.extras.perf.model.lds import orders
from wheel_builder.extras.perf.model.memory import WORKGROUPS, Decode, Moved, decode, moved
from wheel_builder.extras.perf.model.residency import resident_workgroups
from wheel_builder.extras.perf.model.schedule import ROUNDS, Schedule, play
from wheel_builder.extras.perf.model.trace import Charges, LdsUse, Trace, trace_of
from wheel_builder.extras.perf.workloads.workload import Workload
from wheel_builder.machine_code.disassembly.kernels import parse_disassembly
from wheel_builder.machine_code.disassembly.resources import Resources, function_sizes, read_resources
from wheel_builder.machine_code.emulator.machine import Machine, Options, Result
from wheel_builder.machine_code.emulator.memory import pack_arguments
from wheel_builder.tables.archs import Timing, arch_named


@dataclass(frozen=True)
class Subject:
    """A code object: loaded, as text from the LLVM tools, and itself."""

    machine: Machine
    disassembly: str
    code: bytes


@dataclass(frozen=True)
class Charged:
    """Results dependent on the phases of the LDS. ``order`` names them (perf/model/lds.py).

    ``port``: the schedule with charges for the way to the LDS, or the plain one if only figures are wanted.
    ``exclusive``: the schedule with exclusive VALU instructions, which never run during a matrix instruction,
    or the plain one for an ISA without them. ``disputed``: the plain schedule with rates of
    ``model/disputed.py``, by name, none if only figures are wanted.
    """

    order: str
    bound: Bound
    schedule: Schedule
    port: Schedule
    exclusive: Schedule
    uses: tuple[LdsUse, ...]
    disputed: Mapping[str, Schedule] = field(default_factory=dict)

    @property
    def ways(self) -> int:
        """The worst conflict in a loop. 1: conflict-free."""
        return max([1, *(use.ways for use in self.uses if use.looped)])


@dataclass(frozen=True)
class Modelled:
    """One workgroup of one kernel under both models. ``executed`` wave-instructions, ``flop`` useful work.

    ``workgroups``: the size of the whole launch. ``free``: the schedule with an LDS of ``lds_bytes`` a clock
    at any address, or the plain one if only figures are wanted. ``charged``: by order of phases, the arch's
    own first.
    """

    arch: str
    label: str
    kernel: str
    op: str
    dtype: str
    head_dim: int
    executed: int
    flop: int
    workgroups: int
    taken: Resources
    moved: Moved
    looped_bytes: int
    free: Schedule
    charged: tuple[Charged, ...]

    @property
    def bound(self) -> Bound:
        return self.charged[0].bound

    @property
    def schedule(self) -> Schedule:
        return self.charged[0].schedule

    @property
    def bound_flop(self) -> float:
        """FLOP per clock per compute unit by the busy bound."""
        return self.flop / self.bound.clocks

    @property
    def schedule_flop(self) -> float:
        """FLOP per clock per compute unit by the schedule."""
        return self.flop / self.schedule.clocks_per_workgroup


def measure(
    subject: Subject, workload: Workload, *, only_figures: bool = False, rounds: int = ROUNDS
) -> Modelled:
    """Run one workgroup on the emulator and apply both models to it.

    ``only_figures``: leave out the schedules shown only in the table, half of all. ``rounds``: workgroups
    played in each slot. Raises ``PerfError`` when the run stops early, or when the models lack a number.
    """
    arch = subject.machine.arch
    taken = resources_of(subject, workload)
    result = run(subject.machine, workload)
    flop = workload.flop(workload.memory)
    trace = traced(subject, workload.kernel, result)
    others = [
        traced(subject, workload.kernel, run(subject.machine, replace(workload, workgroup=other)))
        for other in workload.others
    ]
    resident = resident_of(subject, workload)
    charged = _charged(trace, others, result, resident, only_figures=only_figures, rounds=rounds)
    free = charged[0].schedule
    if not only_figures:
        free = play(arch, trace.uncharged(), resident, others=[other.uncharged() for other in others])
    return Modelled(
        arch=arch,
        label=workload.label,
        kernel=workload.kernel,
        op=workload.op,
        dtype=workload.dtype,
        head_dim=workload.head_dim,
        executed=result.executed,
        flop=flop,
        workgroups=prod(workload.launch.grid),
        taken=replace(taken, lds_bytes=taken.lds_bytes + workload.launch.dynamic_lds),
        moved=moved(result.counts),
        looped_bytes=trace.looped_bytes,
        free=free,
        charged=charged,
    )


@dataclass(frozen=True)
class Decoded:
    """A kernel's shares of memory bandwidth: a decode, or another memory-bound kernel with a ``name``.

    ``resident``: workgroups fitting on one compute unit or workgroup processor.
    """

    arch: str
    label: str
    dtype: str
    head_dim: int
    loaded: int
    resident: int
    decode: Decode
    name: str = ""
    of: str = ""

    @property
    def named(self) -> str:
        return self.name or f"{self.of} {self.dtype} d{self.head_dim}".lstrip()


def measure_decode(
    subject: Subject, workload: Workload, useful: int, name: str = "", of: str = "",
    counts: Sequence[int] = WORKGROUPS,
) -> Decoded:  # fmt: skip
    """Run one workgroup on the emulator and play it against memory.

    ``useful``: bytes of its keys and values, or of all its necessary loads. ``of``: which decode, before its
    dtype. ``counts``: workgroups at a time. Raises as ``measure``.
    """
    result = run(subject.machine, workload)
    resident = resident_of(subject, workload)
    return Decoded(
        arch=subject.machine.arch,
        label=workload.label,
        dtype=workload.dtype,
        head_dim=workload.head_dim,
        loaded=moved(result.counts).loaded,
        resident=resident,
        decode=decode(traced(subject, workload.kernel, result), useful, resident, counts),
        name=name,
        of=of,
    )


def run(machine: Machine, workload: Workload) -> Result:
    """Execute the workload's workgroup and record it. Raises ``PerfError`` if it stops early."""
    options = Options(checks=(), only_group=workload.workgroup, record=True)
    arguments = pack_arguments(workload.arguments)
    memory = tuple(workload.memory.values())
    result = machine.run(workload.kernel, workload.launch, arguments, memory, options)
    problems = [result.error] * bool(result.error) + [str(finding) for finding in result.findings]
    if problems:
        title = f"{workload.label}: {workload.kernel} did not run to its end"
        raise PerfError(title, problems, advice="correct its launch's description, or the kernel")
    return result


def resources_of(subject: Subject, workload: Workload) -> Resources:
    """The resources of the workload's kernel, which may be assembled."""
    return read_resources(subject.code, assembled=True)[workload.kernel]


def resident_of(subject: Subject, workload: Workload) -> int:
    """Workgroups of the workload that fit on a compute unit. Raises as ``resident_workgroups``."""
    launch, taken = workload.launch, resources_of(subject, workload)
    return resident_workgroups(
        subject.machine.arch, taken, threads=prod(launch.block), dynamic_lds=launch.dynamic_lds
    )


def traced(subject: Subject, kernel: str, result: Result) -> Trace:
    """A run of a kernel for the schedule."""
    names = function_sizes(subject.code)
    functions = {function.name: function for function in parse_disassembly(subject.disassembly, names)}
    return trace_of(subject.machine.arch, functions[kernel], subject.machine.program, result)


def has_exclusive(arch: str) -> bool:
    """Whether the arch has exclusive VALU instructions, which never run during a matrix instruction."""
    return bool(arch_named(arch).isa.never_coissued)


def _charged(
    trace: Trace, others: Sequence[Trace], result: Result, resident: int, *, only_figures: bool, rounds: int
) -> tuple[Charged, ...]:
    """By order of phases. Orders with equal cost of every access are played once."""
    known: list[tuple[Sequence[Charges], Charged]] = []
    for order in orders(trace.arch):
        charges = [each.charges(order) for each in (trace, *others)]
        found = next((each for given, each in known if given == charges), None)
        if found is None:
            found = _played(
                trace, others, result, order, charges, resident, only_figures=only_figures, rounds=rounds
            )
        known.append((charges, replace(found, order=order)))
    return tuple(charged for _, charged in known)


def _played(
    trace: Trace, others: Sequence[Trace], result: Result, order: str, charges: Sequence[Charges],
    resident: int, *, only_figures: bool, rounds: int,
) -> Charged:  # fmt: skip
    own, *further = charges

    def played(*, port: bool = False, exclusive: bool = False, machine: Timing | None = None) -> Schedule:
        first, *rest = (replace(each, machine=machine) for each in (trace, *others))
        paths = [other.paths(clocks, port=port) for other, clocks in zip(rest, further, strict=True)]
        own_paths = first.paths(own, port=port)
        return play(trace.arch, own_paths, resident, rounds, others=paths, exclusive=exclusive)

    costs = [(own[access], count) for access, count in trace.accesses.items()]
    schedule = played()
    return Charged(
        order=order,
        bound=busy_bound(trace.arch, result.counts, costs),
        schedule=schedule,
        port=schedule if only_figures else played(port=True),
        exclusive=played(exclusive=True) if has_exclusive(trace.arch) else schedule,
        uses=trace.uses(own),
        disputed={}
        if only_figures
        else {name: played(machine=timing) for name, timing in disputed(arch_named(trace.arch)).items()},
    )
