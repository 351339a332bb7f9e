"""A launch on a whole GPU: workgroups in slots of compute units, an L2 a die, and shared bandwidths.

Every workgroup reads its rows in chunks. A chunk is asked for while the one before it is computed; it comes
from the die's L2, or from the last cache of the GPU, or from memory. Each of these serves one request after
another at its bandwidth. Workgroups of a compute unit share it: with ``n`` of them one chunk takes
``Speed.clocks[n - 1]``. A free slot gets the die's next workgroup.

A fused backward adds to a row of dq for each row that it reads. A workgroup goes on meanwhile, until the
additions of its last chunk but one are done. The L2 adds if all workgroups of a head are on its die.
Otherwise additions leave the die through a port of its own (``Die.leave``), and the last cache moves every
row twice. Additions to the same rows wait for each other.

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
IDLE = 400.0  # clocks of a workgroup without rows: it reads its arguments. Assumed


@dataclass(frozen=True)
class Speed:
    """A kernel on one arch.

    ``clocks``: of a chunk of ``CHUNK`` rows, for one, two, ... workgroups at a time on a compute unit, up to
    as many as fit (RDNA: on a workgroup processor). ``start``: clocks of a workgroup besides its chunks.
    ``row_bytes``: of each row that is read. ``added_bytes``: of dq, added to for each row that is read.
    """

    clocks: tuple[float, ...]
    start: float
    row_bytes: int
    added_bytes: int = 0

    @property
    def fit(self) -> int:
        return len(self.clocks)


@dataclass(frozen=True)
class Die:
    """A die, or the whole GPU if it has one. Bandwidths in bytes a clock, capacities in bytes.

    ``far`` is the die's share of the last cache (Infinity Cache), 0 bytes for none. ``latency``: clocks from
    a request to its first byte, from memory. ``adds``: bytes that the L2 adds to. ``leave``: bytes of
    additions that leave the die. ``turn``: clocks between two additions to a line.
    """

    units: int
    l2_bytes: int
    l2: float
    far_bytes: int
    far: float
    memory: float
    latency: int
    dispatch: float
    adds: float = 1e9
    leave: float = 1e9
    turn: float = 0.0


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


def simulate(queues: Queues, speed: Speed, die: Die, *, leaves: bool = False) -> Outcome:
    """Play the launch. Dies with equal work, apart from the numbers of heads, are played once.

    ``leaves``: all additions leave their die, not only those to rows of heads on several dies.
    """
    known: dict[tuple[tuple[int, int, int, bool], ...], _Played] = {}
    played = []
    shared = _on_several(queues, leaves=leaves) if speed.added_bytes else frozenset()
    for queue in queues:
        key = _canonical(queue, shared)
        if key not in known:
            known[key] = _play(queue, speed, die, shared)
        played.append(known[key])
    work = sum(_work(each, speed) for queue in queues for each in queue)
    return Outcome(
        clocks=max((each.clocks for each in played), default=0.0),
        ideal=work / (die.units * len(queues)),
        far_bytes=sum(each.far_bytes for each in played),
        memory_bytes=sum(each.memory_bytes for each in played),
    )


def _on_several(queues: Queues, *, leaves: bool) -> frozenset[int]:
    """Heads with workgroups on several dies, or all of them."""
    dies: dict[int, set[int]] = {}
    for die, queue in enumerate(queues):
        for work in queue:
            dies.setdefault(work.head, set()).add(die)
    return frozenset(head for head, found in dies.items() if leaves or len(found) > 1)


def _canonical(queue: Sequence[Work], shared: frozenset[int]) -> tuple[tuple[int, int, int, bool], ...]:
    numbers: dict[int, int] = {}
    return tuple(
        (
            numbers.setdefault(work.head, len(numbers)),
            work.begin,
            -1 if work.idle else work.end,
            work.head in shared,
        )
        for work in queue
    )


def _work(work: Work, speed: Speed) -> float:
    """Clocks of a full unit."""
    if work.idle:
        return 0.0
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
    """A workgroup in a slot, its next row, and when all of its additions are done."""

    work: Work
    unit: int
    at: int
    added: float = 0.0


class _Chip:
    """The caches and bandwidths of a die. ``shared``: heads whose additions leave it."""

    def __init__(self, die: Die, speed: Speed, shared: frozenset[int]) -> None:
        self.die, self.speed, self.shared = die, speed, shared
        self.l2, self.far = _Cache(die.l2_bytes), _Cache(die.far_bytes)
        self.from_l2, self.from_far = _Server(die.l2), _Server(die.far or 1.0)
        self.from_memory, self.leaving = _Server(die.memory), _Server(die.leave)
        self.lines: dict[tuple[int, int], float] = {}
        self.played = _Played()

    def ask(self, now: float, head: int, first: int, rows: int) -> float:
        """When the rows arrive. Chunks are known by their first row."""
        size, chunk = rows * self.speed.row_bytes, (head, first)
        near = self.from_l2.serve(now, size)
        return near if self.l2.take(chunk, size) else max(near, self._beyond(now, chunk, size, size))

    def add(self, now: float, head: int, first: int, rows: int) -> float:
        """When as many rows of dq are added to. Rows of several dies have no place in an L2."""
        size, chunk = rows * self.speed.added_bytes, (-1 - head, first)
        if head in self.shared:
            done = max(self.leaving.serve(now, size), self._beyond(now, chunk, size, 2 * size))
        else:
            done = self.from_l2.serve(now, round(size * self.die.l2 / self.die.adds))
            if not self.l2.take(chunk, size):
                done = max(done, self._beyond(now, chunk, size, 2 * size))
        self.lines[chunk] = max(self.lines.get(chunk, 0.0), now) + self.die.turn
        return max(done, self.lines[chunk])

    def _beyond(self, now: float, chunk: tuple[int, int], size: int, moved: int) -> float:
        """When the last cache or memory has moved so many bytes of the chunk."""
        if self.far.take(chunk, size):
            self.played.far_bytes += moved
            return self.from_far.serve(now, moved) + self.die.latency / 2
        self.played.memory_bytes += moved
        return self.from_memory.serve(now, moved) + self.die.latency


def _play(queue: Sequence[Work], speed: Speed, die: Die, shared: frozenset[int] = frozenset()) -> _Played:
    chip = _Chip(die, speed, shared)
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
        heappush(events, (max(now + (IDLE if work.idle else speed.start), ready), number, running))

    for place, unit in enumerate(places):
        begin(place * die.dispatch, unit)
    while events:
        now, _, running = heappop(events)
        rows = _rows(running)
        if rows == 0:
            chip.played.clocks = max(chip.played.clocks, now, running.added)
            resident[running.unit] -= 1
            begin(now + die.dispatch, running.unit)
            continue
        head, first = running.work.head, running.at
        running.at += rows
        ready = running.added
        if ahead := _rows(running):
            ready = max(ready, chip.ask(now, head, running.at, ahead))
        if speed.added_bytes:
            running.added = chip.add(now, head, first, rows)
        takes = speed.clocks[resident[running.unit] - 1] * rows / CHUNK
        number += 1
        heappush(events, (max(now + takes, ready), number, running))
    return chip.played


def _rows(running: _Running) -> int:
    """Rows of the next chunk: up to the next multiple of ``CHUNK``."""
    return min(CHUNK - running.at % CHUNK, running.work.end - running.at)
