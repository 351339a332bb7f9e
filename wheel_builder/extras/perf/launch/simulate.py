"""A launch on a whole GPU: workgroups in slots of compute units, an L2 a die, and shared bandwidths.

Every workgroup reads its rows in chunks. A chunk is asked for while the one before it is computed; it comes
from the die's L2, or from the last cache of the GPU, or from memory. Each of these serves one request after
another at its bandwidth. Workgroups of a compute unit share it: with ``n`` of them one chunk takes
``Speed.clocks[n - 1]``. A free slot gets the die's next workgroup.

Left out: conflicts of addresses, TLBs, writes of results, clocks under load, and what other kernels leave in
the caches. Assumed: dies share the memory's bandwidth equally, and caches replace the least recently used.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from wheel_builder.extras.perf.launch.order import Queues
from wheel_builder.extras.perf.launch.shapes import Work

CHUNK = 128  # rows that are asked for at once


@dataclass(frozen=True)
class Speed:
    """A kernel on one arch.

    ``clocks``: of a chunk of ``CHUNK`` rows, for one, two, ... workgroups at a time on a compute unit, up to
    as many as fit (RDNA: on a workgroup processor). ``start``: clocks of a workgroup besides its chunks.
    ``row_bytes``: of each row that is read.
    """

    clocks: tuple[float, ...]
    start: float
    row_bytes: int

    @property
    def fit(self) -> int:
        return len(self.clocks)


@dataclass(frozen=True)
class Die:
    """A die, or the whole GPU if it has one. Bandwidths in bytes a clock, capacities in bytes.

    ``far`` is the die's share of the last cache (Infinity Cache), 0 bytes for none. ``latency``: clocks from
    a request to its first byte, from memory.
    """

    units: int
    l2_bytes: int
    l2: float
    far_bytes: int
    far: float
    memory: float
    latency: int
    dispatch: float


@dataclass(frozen=True)
class Outcome:
    """``clocks`` of the launch. ``ideal``: all work spread evenly over full units, without memory.

    Bytes that came from the last cache and from memory.
    """

    clocks: float
    ideal: float
    far_bytes: int
    memory_bytes: int

    @property
    def busy(self) -> float:
        """Share of the launch in which the units compute at full speed."""
        return self.ideal / self.clocks if self.clocks else 1.0


def simulate(queues: Queues, speed: Speed, die: Die) -> Outcome:
    """Play the launch. Dies with equal work, apart from the numbers of heads, are played once."""
    known: dict[tuple[tuple[int, int, int], ...], _Played] = {}
    played = []
    for queue in queues:
        key = _canonical(queue)
        if key not in known:
            known[key] = _play(queue, speed, die)
        played.append(known[key])
    work = sum(_work(each, speed) for queue in queues for each in queue)
    return Outcome(
        clocks=max((each.clocks for each in played), default=0.0),
        ideal=work / (die.units * len(queues)),
        far_bytes=sum(each.far_bytes for each in played),
        memory_bytes=sum(each.memory_bytes for each in played),
    )


def _canonical(queue: Sequence[Work]) -> tuple[tuple[int, int, int], ...]:
    numbers: dict[int, int] = {}
    return tuple((numbers.setdefault(work.head, len(numbers)), work.begin, work.end) for work in queue)


def _work(work: Work, speed: Speed) -> float:
    """Clocks of a full unit."""
    return speed.start / speed.fit + speed.clocks[-1] / speed.fit * work.length / CHUNK


@dataclass
class _Cache:
    """The least recently used chunks go first."""

    capacity: int
    held: OrderedDict[tuple[int, int], int] = field(default_factory=OrderedDict)
    size: int = 0

    def take(self, chunk: tuple[int, int], size: int) -> bool:
        """Whether the chunk is there. It is afterwards, if it fits."""
        if chunk in self.held:
            self.held.move_to_end(chunk)
            return True
        if size > self.capacity:
            return False
        self.held[chunk] = size
        self.size += size
        while self.size > self.capacity:
            self.size -= self.held.popitem(last=False)[1]
        return False


@dataclass
class _Server:
    """Serves one request after another. ``rate``: bytes a clock."""

    rate: float
    free: float = 0.0

    def serve(self, now: float, size: int) -> float:
        self.free = max(self.free, now) + size / self.rate
        return self.free


@dataclass
class _Played:
    clocks: float = 0.0
    far_bytes: int = 0
    memory_bytes: int = 0


@dataclass
class _Running:
    """A workgroup in a slot, and its next row."""

    work: Work
    unit: int
    at: int


class _Chip:
    """The caches and bandwidths of a die."""

    def __init__(self, die: Die, row_bytes: int) -> None:
        self.die, self.row_bytes = die, row_bytes
        self.l2, self.far = _Cache(die.l2_bytes), _Cache(die.far_bytes)
        self.from_l2, self.from_far = _Server(die.l2), _Server(die.far or 1.0)
        self.from_memory = _Server(die.memory)
        self.played = _Played()

    def ask(self, now: float, head: int, first: int, rows: int) -> float:
        """When the rows arrive."""
        size, chunk = rows * self.row_bytes, (head, first // CHUNK)
        near = self.from_l2.serve(now, size)
        if self.l2.take(chunk, size):
            return near
        if self.far.take(chunk, size):
            self.played.far_bytes += size
            return max(near, self.from_far.serve(now, size) + self.die.latency / 2)
        self.played.memory_bytes += size
        return max(near, self.from_memory.serve(now, size) + self.die.latency)


def _play(queue: Sequence[Work], speed: Speed, die: Die) -> _Played:
    chip = _Chip(die, speed.row_bytes)
    events: list[tuple[float, int, _Running]] = []
    resident = [0] * die.units
    places = [unit for _ in range(speed.fit) for unit in range(die.units)]
    waiting = iter(queue)
    number = 0

    def begin(now: float, unit: int) -> None:
        nonlocal number
        work = next(waiting, None)
        if work is None:
            return
        resident[unit] += 1
        running = _Running(work, unit, work.begin)
        ready = chip.ask(now, work.head, work.begin, _rows(running)) if work.length else now
        number += 1
        heappush(events, (max(now + speed.start, ready), number, running))

    for place, unit in enumerate(places):
        begin(place * die.dispatch, unit)
    while events:
        now, _, running = heappop(events)
        rows = _rows(running)
        if rows == 0:
            chip.played.clocks = now
            resident[running.unit] -= 1
            begin(now + die.dispatch, running.unit)
            continue
        running.at += rows
        ready = now
        if ahead := _rows(running):
            ready = chip.ask(now, running.work.head, running.at, ahead)
        takes = speed.clocks[resident[running.unit] - 1] * rows / CHUNK
        number += 1
        heappush(events, (max(now + takes, ready), number, running))
    return chip.played


def _rows(running: _Running) -> int:
    """Rows of the next chunk: up to the next multiple of ``CHUNK``."""
    return min(CHUNK - running.at % CHUNK, running.work.end - running.at)
