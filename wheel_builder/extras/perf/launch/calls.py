"""Whole calls: the launches of a forward, a backward or a decode, one after another."""

from dataclasses import dataclass, replace
from functools import cache

from wheel_builder.extras.perf.launch.kernels import Kernel, Kernels, die_of, dies_of
from wheel_builder.extras.perf.launch.order import as_numbered, heads_in_turn, most_in_turn
from wheel_builder.extras.perf.launch.shapes import Shape, Work, backward_works, decode_works, forward_works
from wheel_builder.extras.perf.launch.simulate import Outcome, Speed, simulate
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tuning import decode_rules

LAUNCH = 3e-6  # seconds between two launches that depend on each other. Assumed
MOST_PARTS = 512  # of the host's plan (kernels/host/plan)
FP32, FP16 = 4, 2
BY_KEYS = ("bwd_dkdv", "bwd_fused")  # how names begin


@dataclass(frozen=True)
class Cost:
    """A call: ``seconds``, and the busy share of its launches with products."""

    seconds: float
    busy: float
    memory_bytes: int


def head_dim_of(kernel: Kernel) -> int:
    """Of "fwd fp16 d64": 64."""
    return int(kernel.name.rpartition(" d")[2])


def forward(arch: str, kernel: Kernel, shape: Shape, *, together: bool) -> Cost:
    """In the library's order (``together``), or with whole heads on dies, one after another."""
    if not together:
        return _ordered(arch, kernel, shape, 1, dealt=False)
    return _ordered(arch, kernel, shape, _turn(arch, kernel, shape), dealt=bool(shape.lengths))


def _turn(arch: str, kernel: Kernel, shape: Shape) -> int:
    """Heads in turn, as the host chooses them. Only calls with unequal blocks need any."""
    dies = dies_of(arch_named(arch))
    if not shape.causal and not (shape.lengths and dies > 1):
        return 1
    of_head = shape.keys * (kernel.speed.row_bytes + kernel.speed.added_bytes) * shape.heads_k // shape.heads
    return most_in_turn(shape.heads, len(shape.sequences), 1 if shape.lengths else dies, of_head)


@cache
def _numbered(arch: str, kernel: Kernel, shape: Shape) -> Cost:
    """In the grid's own order."""
    queues = as_numbered(_works(kernel, shape), dies_of(arch_named(arch)))
    return _cost(arch, simulate(queues, kernel.speed, die_of(arch)))


@cache
def _ordered(arch: str, kernel: Kernel, shape: Shape, turn: int, *, dealt: bool, worst: bool = False) -> Cost:
    """``turn`` heads start their blocks in turn. A die gets whole heads, or is ``dealt`` workgroups.

    The library deals those of packed sequences, whose lengths differ.
    """
    dies, die = dies_of(arch_named(arch)), die_of(arch)
    if worst:
        die = replace(die, adds=die.adds / 2)
    works = _works(kernel, shape)
    if dealt:
        queues = as_numbered(heads_in_turn(turn)(works, 1)[0], dies)
    else:
        queues = heads_in_turn(turn)(works, dies)
    return _cost(arch, simulate(queues, kernel.speed, die, leaves=worst and dies > 1))


def _works(kernel: Kernel, shape: Shape) -> tuple[Work, ...]:
    by_keys = kernel.name.startswith(BY_KEYS)
    return tuple((backward_works if by_keys else forward_works)(shape, kernel.rows))


def backward(
    arch: str, kernels: Kernels, shape: Shape, path: str, what: str, *, together: bool, worst: bool = False
) -> Cost:
    """``path``: "separate" or "fused". ``what``: dtype and head dim.

    Without ``together`` in the grid's order: heads one after another, blocks round robin over the dies.
    Otherwise a head stays on a die, and causal heads take turns.
    ``worst``: additions leave a die even if all workgroups of a head are on it. With one die they take twice
    as long as assumed.
    """
    ops = ("bwd_fused",) if path == "fused" else ("bwd_dkdv", "bwd_dq")
    found = [gradient(arch, kernels[f"{op} {what}"], shape, together=together, worst=worst) for op in ops]
    elements = (
        sum(each.queries for each in shape.sequences) * shape.heads * head_dim_of(kernels[f"bwd_dq {what}"])
    )
    moved = 2 * FP16 * elements  # out and dout, of delta
    if path == "fused":
        moved += (FP32 + FP32 + FP16) * elements  # the sums are cleared, and converted
    rest = moved / arch_named(arch).model.memory + LAUNCH * (2 if path == "separate" else 3)
    seconds = sum(each.seconds for each in found)
    busy = sum(each.seconds * each.busy for each in found) / seconds
    return Cost(seconds + rest, busy, moved + sum(each.memory_bytes for each in found))


def gradient(arch: str, kernel: Kernel, shape: Shape, *, together: bool, worst: bool) -> Cost:
    """One kernel of a backward."""
    if together:
        worst = worst and kernel.speed.added_bytes > 0
        return _ordered(
            arch, kernel, shape, _turn(arch, kernel, shape), dealt=bool(shape.lengths), worst=worst
        )
    return _numbered(arch, kernel, shape)


def decode(arch: str, kernel: Kernel, shape: Shape, parts: int) -> Cost:
    """One query a sequence. With several parts their rows are stored and read again by another launch."""
    hardware = arch_named(arch)
    queues = as_numbered(tuple(decode_works(shape, parts)), dies_of(hardware))
    found = _cost(arch, simulate(queues, kernel.speed, die_of(arch)))
    if parts == 1:
        return found
    rows = shape.batch * shape.heads * parts * (head_dim_of(kernel) + 1)
    joined = 2 * FP32 * rows / hardware.model.memory + LAUNCH
    return replace(found, seconds=found.seconds + joined)


def planned_parts(arch: str, shape: Shape) -> int:
    """The parts that the host's plan takes: the fewest that fill the device."""
    rules = decode_rules()
    places = rules.places * arch_named(arch).compute_units
    workgroups = shape.batch * shape.heads_k
    if workgroups >= rules.filled * places:
        return 1

    def filled(parts: int) -> float:
        return workgroups * parts / (-(-workgroups * parts // places) * places)

    most = min(MOST_PARTS, max(1, -(-shape.keys // rules.keys)))
    best = max(filled(parts) for parts in range(1, most + 1))
    return next(parts for parts in range(1, most + 1) if filled(parts) >= min(best, rules.filled))


def taller(kernel: Kernel, times: int) -> Kernel | None:
    """The kernel with ``times`` the rows, whose workgroup reads as much and takes the place of as many.

    None if so many do not fit on a compute unit.
    """
    clocks = kernel.speed.clocks[times - 1 :: times]
    if not clocks:
        return None
    speed = Speed(clocks, kernel.speed.start, kernel.speed.row_bytes)
    return Kernel(kernel.name, kernel.rows * times, speed)


def _cost(arch: str, found: Outcome) -> Cost:
    return Cost(found.clocks / arch_named(arch).model.clock, found.busy, found.memory_bytes)
