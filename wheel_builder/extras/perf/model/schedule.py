"""The schedule: a clock-by-clock model of a compute unit's resident waves, issued in order.

Each slot replays the instructions of one workgroup, again and again, with as many slots as fit. A wave issues
its next instruction once the registers are ready, its wait counters are low enough and the port is free.
Among ready waves, the highest priority goes first (s_setprio), then the oldest (CDNA3 instruction set
manual). On RDNA the two compute units of a workgroup processor are played together, each pair of SIMDs with
its own LDS and memory path.

Deterministic: integers only, no random numbers. Nearly uncalibrated (``timing`` in kernels/tables/isas.toml):
for rankings and shares, always labelled modelled.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heappushpop

from wheel_builder.extras.perf.model.lds import PORTS
from wheel_builder.extras.perf.model.steps import Port, Step
from wheel_builder.tables.archs import Arch, Timing, arch_named

Path = Sequence[Step]

AGES = 1 << 20  # more waves than are ever played
HIGHEST = 3  # priority
ROUNDS = 2
UNITS = (Port.MATRIX, Port.EXPONENTIAL)  # besides the VALU


@dataclass(frozen=True)
class Schedule:
    """``workgroups`` finished in ``clocks`` on ``cus`` compute units, ``resident`` of them at a time.

    ``matrix`` and ``dot2`` are clocks summed over all ``simds`` of these units.
    """

    clocks: int
    workgroups: int
    resident: int
    cus: int
    simds: int
    matrix: int
    dot2: int
    waves_per_simd: float

    @property
    def matrix_busy(self) -> float:
        return self.matrix / (self.clocks * self.simds)

    @property
    def dot2_busy(self) -> float:
        return self.dot2 / (self.clocks * self.simds)

    @property
    def clocks_in_place(self) -> float:
        """Clocks from a workgroup's start to the next one's in the same slot."""
        return self.clocks * self.resident / self.workgroups

    @property
    def clocks_per_workgroup(self) -> float:
        """Clocks of one compute unit per workgroup."""
        return self.clocks * self.cus / self.workgroups


def play(
    arch: str,
    paths: Sequence[Path],
    resident: int,
    rounds: int = ROUNDS,
    *,
    others: Sequence[Sequence[Path]] = (),
    exclusive: bool = False,
) -> Schedule:
    """Play ``rounds`` workgroups in each of ``resident`` slots. ``paths`` are the waves of one workgroup.

    ``others``: waves of further workgroups of the launch, the same number each. Slots begin with them in
    turn. ``exclusive``: exclusive instructions, never issued during a matrix instruction of their own wave,
    also wait for matrix instructions of other waves of the SIMD.
    """
    hardware = arch_named(arch)
    groups = [paths, *others]
    unit = _Unit(hardware, hardware.isa.timing, groups, resident, rounds, exclusive)
    unit.run()
    total = resident * rounds
    steps = [step for number in range(total) for path in groups[number % len(groups)] for step in path]
    return Schedule(
        clocks=unit.clock,
        workgroups=total,
        resident=resident,
        cus=hardware.isa.cus_of_workgroup,
        simds=unit.simds,
        matrix=sum(step.busy for step in steps if step.port is Port.MATRIX),
        dot2=sum(step.busy for step in steps if step.dot2),
        waves_per_simd=resident * len(paths) / unit.simds,
    )


@dataclass(slots=True)
class _Wave:
    age: int
    simd: int
    place: int
    path: Path
    ready: list[int]
    matrix: list[int]  # by register, the value of ``ready`` when a matrix instruction wrote it
    counters: tuple[deque[int], ...] = field(default_factory=lambda: (deque(), deque(), deque(), deque()))
    position: int = 0
    turn: int = 0  # among waves: the lowest goes first

    def prioritise(self, priority: int) -> None:
        self.turn = (HIGHEST - priority) * AGES + self.age


@dataclass
class _Unit:
    """Everything running at a time on one compute unit, or on the two of a workgroup processor."""

    hardware: Arch
    machine: Timing
    groups: Sequence[Sequence[Path]]
    resident: int
    rounds: int
    exclusive: bool
    clock: int = 0
    started: int = 0
    heap: list[tuple[int, int]] = field(default_factory=list)
    waves: list[_Wave] = field(default_factory=list)

    def __post_init__(self) -> None:
        cus = self.hardware.isa.cus_of_workgroup
        self.simds = self.hardware.isa.simds * cus
        self.ports = {port: [0] * self.simds for port in Port}  # by SIMD, when each is free
        self.banks, self.vmem = [0] * cus, [0] * cus
        self.ways = [0] * (cus * PORTS)  # to the LDS
        self.left = [self.rounds] * self.resident
        self.running = [0] * self.resident
        self.arrived: list[list[_Wave]] = [[] for _ in range(self.resident)]
        paths = [path for group in self.groups for path in group]
        used = [r for path in paths for s in path for r in (*s.reads, *s.writes, *s.sums)]
        self.registers = max(used, default=-1) + 1

    def run(self) -> None:
        for place in range(self.resident):
            self._start(place, 0)
        heapify(self.heap)
        while self.heap:
            self._advance(*heappop(self.heap))
        self.clock = max(self.clock, *(free for units in self._moving() for free in units))

    def _moving(self) -> Iterator[Sequence[int]]:
        """When the ports and the LDS are free."""
        yield from self.ports.values()
        yield from (self.banks, self.ways)

    def _start(self, place: int, time: int) -> None:
        """Start the next workgroup in a slot, if there is one."""
        if not self.left[place]:
            return
        self.left[place] -= 1
        paths = self.groups[self.started % len(self.groups)]
        self.started += 1
        self.running[place] = len(paths)
        for number, path in enumerate(paths):
            simd = (place * len(paths) + number) % self.simds
            wave = _Wave(len(self.waves), simd, place, path, [0] * self.registers, [0] * self.registers)
            wave.prioritise(0)
            self.waves.append(wave)
            heappush(self.heap, (time, wave.turn))

    def _advance(self, time: int, turn: int) -> None:
        """From ``time`` on, issue instructions, always of the wave due first, until one goes to sleep."""
        while True:
            wave = self.waves[turn % AGES]
            step = wave.path[wave.position]
            # The matrix unit's port becomes free with the VALU's, or later.
            port = Port.MATRIX if step.exclusive and self.exclusive else step.port
            following = self.ports[port][wave.simd]
            if following <= time:
                following = self._issue(wave, step, time)
                if following < 0:
                    return
                wave.position += 1
                following = self._ready(wave, following)
            time, turn = heappushpop(self.heap, (following, wave.turn))

    def _ready(self, wave: _Wave, time: int) -> int:
        """When registers and counters let the wave issue its next instruction, ``time`` at the earliest."""
        step, ready = wave.path[wave.position], wave.ready
        for register in step.reads:
            if ready[register] > time:  # noqa: PLR1730 - max() takes three times as long, in the innermost loop
                time = ready[register]
        for register in step.sums:
            chained = ready[register] == wave.matrix[register]
            time = max(time, ready[register] - (self.machine.matrix_result if chained else 0))
        for counter, left in step.waits:
            pending = wave.counters[counter]
            while len(pending) > left:
                time = max(time, pending.popleft())
        if step.counter >= 0:
            time = self._room(
                wave.counters[step.counter], self.hardware.isa.counters.depth[step.counter], time
            )
        slot = self.machine.slot
        return -(-time // slot) * slot

    @staticmethod
    def _room(pending: deque[int], depth: int, time: int) -> int:
        """When the counter can be raised again: it counts to ``depth``."""
        while pending and pending[0] <= time:
            pending.popleft()
        return pending.popleft() if len(pending) >= depth else time

    def _issue(self, wave: _Wave, step: Step, time: int) -> int:
        """Take the port at ``time``.

        Returns the clock for the wave to go on, or -1 if another event wakes it.
        """
        port = step.port
        if port is Port.BARRIER:
            return self._barrier(wave, time + step.pause)
        if port is Port.END:
            return self._end(wave, time)
        if step.priority >= 0:
            wave.prioritise(step.priority)
        self._take(step, wave.simd, time)
        at = time + step.result
        for register in step.writes:
            wave.ready[register] = at
            if port is Port.MATRIX:
                wave.matrix[register] = at
        if step.counter >= 0:
            wave.counters[step.counter].append(self._turn(wave, step, time) + step.latency)
        return time + step.pause

    def _take(self, step: Step, simd: int, time: int) -> None:
        """Hold the ports needed by the instruction. Those with a unit of their own also take the VALU's."""
        ports, end = self.ports, time + step.busy
        if step.port is Port.VALU:
            self._take_valu(simd, end)
        elif step.port in UNITS:
            self._take_valu(simd, time + step.hold)
            ports[step.port][simd] = end
        elif step.port is Port.SALU:
            ports[Port.SALU][simd] = end

    def _take_valu(self, simd: int, end: int) -> None:
        """Other units' ports become free with the VALU's, or later."""
        self.ports[Port.VALU][simd] = end
        for port in UNITS:
            free = self.ports[port]
            if free[simd] < end:  # noqa: PLR1730 - as above
                free[simd] = end

    def _turn(self, wave: _Wave, step: Step, time: int) -> int:
        """When the memory path has moved the data. Waves continue past queued instructions."""
        if step.port is Port.SALU:
            return time
        cu = wave.simd // self.hardware.isa.simds
        if step.port is Port.VMEM:
            if step.hold:
                self._queue(self.banks, cu, time, step.hold)
            return self._queue(self.vmem, cu, time, step.busy)
        way = wave.simd * PORTS // self.hardware.isa.simds
        served = self._queue(self.banks, cu, time, step.busy)
        return max(served, self._queue(self.ways, way, time, step.hold))

    @staticmethod
    def _queue(free: list[int], place: int, time: int, clocks: int) -> int:
        """When the end of the queue is done."""
        free[place] = max(free[place], time) + clocks
        return free[place]

    def _barrier(self, wave: _Wave, time: int) -> int:
        arrived = self.arrived[wave.place]
        wave.position += 1
        arrived.append(wave)
        if len(arrived) == self.running[wave.place]:
            self._release(wave.place, time)
        return -1

    def _release(self, place: int, time: int) -> None:
        for wave in self.arrived[place]:
            heappush(self.heap, (self._ready(wave, time), wave.turn))
        self.arrived[place] = []

    def _end(self, wave: _Wave, time: int) -> int:
        self.clock = max(self.clock, time)
        self.running[wave.place] -= 1
        wave.ready, wave.matrix = [], []
        if not self.running[wave.place]:
            self._start(wave.place, time)
        elif len(self.arrived[wave.place]) == self.running[wave.place]:
            self._release(wave.place, time)
        return -1
