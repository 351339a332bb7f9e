"""The figures of both models as text. Every digit is repeatable."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from wheel_builder.base.words import aligned
from wheel_builder.extras.perf.measure import Charged, Decoded, Modelled, has_exclusive
from wheel_builder.extras.perf.model.disputed import DISPUTES
from wheel_builder.extras.perf.model.memory import LATENCIES, demand
from wheel_builder.extras.perf.model.schedule import Schedule
from wheel_builder.extras.perf.workloads.gradients import MASKS
from wheel_builder.extras.perf.workloads.ours import RANGES_OP, bytes_once, has_no_mask, keys_of, rows_of
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.kinds import BACKWARD, answering, known_kinds

TITLE = """\
Modelled, not measured: instructions that one workgroup executed on an ISA emulator, under two models.
Nothing was run on a GPU.  Read rankings and shares; these are no predictions of TFLOP/s.
phases: the order in which the LDS serves lanes (perf/model/lds.py); archs that nobody measured are under two.
ways: the most dwords that a phase needs of one bank, in the worst LDS instruction of a loop; 1: no conflict.
share: busy matrix units (on gfx1030: dot2 instructions' part of the VALU).  FLOP: useful ones, per clock and
compute unit.  bound: a ceiling; banks, port: shares of it in which the LDS's banks, and the way to them, are
busy.  schedule: with latencies, waits, the waves that fit, and the LDS's banks; "+ port": and with the way
to them; "exclusive": without it, but what never_coissued of isas.toml lists never runs beside a matrix
instruction of its SIMD; "no LDS": without banks and ways, as in version 0.1.0.  separate, fused: all kernels
of a backward.  Atomics count as stores: how fast memory adds is not known."""
HEAD = (
    "arch", "kernel", "of", "phases", "executed", "VGPR", "spills", "LDS", "waves/SIMD", "ways",
    "bound share", "FLOP", "banks", "port", "schedule share", "FLOP", "+ port", "exclusive", "no LDS",
)  # fmt: skip
CONFLICTS = """\
Conflicts of LDS instructions that a wave executes more than once; those not listed have none.
offset: in the kernel.  extra: clocks of conflicts in all executions by the workgroup."""
CONFLICTS_HEAD = ("arch", "kernel", "of", "phases", "offset", "instruction", "executed", "ways", "extra")
MEMORY = """\
Memory, of forwards without a mask.
loaded, stored: KiB of a workgroup.  byte/clock: loaded, per compute unit in the schedule.
What all compute units then ask for, as a share of the GPU's bandwidth on paper (perf/model/memory.py): of its
L2; of its memory if nothing is reused; once: of its memory if each byte comes from there once.
binds: what has less than is asked for; "reuse n": memory does, unless caches serve all but one of n loads.
loop, code, cache: KiB of what waves execute more than once, of the kernel, and of the instruction cache."""
MEMORY_HEAD = (
    "arch", "kernel", "of", "loaded", "stored", "FLOP/byte", "byte/clock", "L2", "memory", "once", "binds",
    "loop", "code", "cache",
)  # fmt: skip
DECODE = f"""\
Decode: the share of the GPU's memory bandwidth on paper that workgroups of one query and 512 keys reach, by
the latency of memory under load, so many of them at a time on a compute unit (RDNA: workgroup processor).
8-bit: the same over a cache of 8 bits, whose bytes are half.
d576: the same of latent attention, with a query of as many heads as a workgroup has rows.
rows: the same over rows of 656 bytes, which hold codes and their scales.
{RANGES_OP}: the same of what finds the keys that a boolean mask of 4096 keys shows to the rows of a wave.
fit: how many fit.  in flight: KiB that have to be on their way there for the whole bandwidth."""
DECODE_HEAD = (
    "arch", "kernel", "of", "fit", "workgroups", *(f"{latency} ns" for latency in LATENCIES)
)  # fmt: skip


DISPUTED = "\n".join([
    "Disputed rates: useful FLOP per clock and compute unit, by the plain schedule and with a rate changed.",
    *(f"{name}: {dispute.source}" for name, dispute in DISPUTES.items()),
])  # fmt: skip
DISPUTED_HEAD = ("arch", "kernel", "of", "phases", "plain", *DISPUTES)


class Whole(NamedTuple):
    """All kernels of a backward, in the order of their launches."""

    name: str
    ops: tuple[str, ...]

    def products(self, head_dim: int) -> float:
        """A backward's five products over those of the middle kernel."""
        kind = known_kinds()[self.ops[1].partition(" ")[0]]
        (of_q, of_v), v_head_dim = kind.products, kind.of_v(head_dim)
        return (3 * head_dim + 2 * v_head_dim) / (of_q * head_dim + of_v * v_head_dim)


def _wholes() -> Iterator[Whole]:
    for answer, op in answering(known_kinds(), BACKWARD).items():
        first, *others = known_kinds()[op].launches
        if answer == "masked":
            yield from (
                Whole(f"separate {mask}", (first, *(f"{each} {mask}" for each in others))) for mask in MASKS
            )
        else:
            yield Whole(answer, (first, *others))


WHOLES = (*_wholes(),)


def report(rows: Iterable[Modelled | Decoded]) -> str:
    """All tables with at least one row."""
    found = [*rows]
    modelled = [row for row in found if isinstance(row, Modelled)]
    decoded = [row for row in found if isinstance(row, Decoded)]
    parts = [
        table(modelled), disputed_table(modelled), conflicts(modelled), memory_table(modelled)
    ] if modelled else []  # fmt: skip
    return "\n".join([*parts, decode_table(decoded)] if decoded else parts)


def table(rows: Iterable[Modelled]) -> str:
    """Title, header and a line per kernel and order of phases, by arch, kernel and maker.

    Backwards are also shown as a whole.
    """
    ordered = sorted(rows, key=_order)
    lines = [_cells(row, charged) for row in ordered for charged in row.charged]
    cells = [HEAD, *lines, *map(_total, joined(ordered))]
    return "\n".join([TITLE, "", *aligned(cells, left=4), ""])


def disputed_table(rows: Iterable[Modelled]) -> str:
    """A line per kernel and order of phases, with a column for each disputed rate."""
    cells = [
        (*_name(row), charged.order, _flop(row, charged.schedule), *_disputed(row, charged))
        for row in sorted(rows, key=_order)
        for charged in row.charged
        if charged.disputed
    ]
    return "\n".join([DISPUTED, "", *aligned([DISPUTED_HEAD, *cells], left=4), ""])


def _disputed(row: Modelled, charged: Charged) -> Iterator[str]:
    for name in DISPUTES:
        yield _flop(row, charged.disputed[name]) if name in charged.disputed else ""


def _flop(row: Modelled, schedule: Schedule) -> str:
    return f"{row.flop / schedule.clocks_per_workgroup:.0f}"


def conflicts(rows: Iterable[Modelled]) -> str:
    """A line for each LDS instruction with conflicts in a loop."""
    cells = [
        (
            *_name(row),
            charged.order,
            f"+{use.offset:#x}",
            use.text,
            *map(str, (use.executed, use.ways, use.extra)),
        )
        for row in sorted(rows, key=_order)
        for charged in row.charged
        for use in charged.uses
        if use.looped and use.ways > 1
    ]
    return "\n".join([CONFLICTS, "", *aligned([CONFLICTS_HEAD, *cells], left=6), ""])


def memory_table(rows: Iterable[Modelled]) -> str:
    """Memory demand of unmasked forwards, and the code size of their loops."""
    cells = [_memory(row) for row in sorted(rows, key=_order) if has_no_mask(row.op)]
    return "\n".join([MEMORY, "", *aligned([MEMORY_HEAD, *cells], left=3), ""])


def _memory(row: Modelled) -> tuple[str, ...]:
    rows = rows_of(row.flop, row.head_dim, keys_of(row.op), row.op)
    once = bytes_once(rows, row.head_dim, row.op)
    asked = demand(row.arch, row.moved.loaded, once, row.schedule.clocks_per_workgroup)
    cache = arch_named(row.arch).model.instruction_cache
    return (
        *_name(row),
        *(_kib(size) for size in (row.moved.loaded, row.moved.stored)),
        f"{row.flop / row.moved.loaded:.0f}",
        f"{asked.rate:.1f}",
        *(f"{share:.2f}" for share in (asked.l2, asked.memory, asked.once)),
        asked.binds,
        *(_kib(size) for size in (row.looped_bytes, row.taken.code_bytes, cache)),
    )


def _kib(size: float) -> str:
    return f"{size / 1024:.1f}"


def decode_table(rows: Iterable[Decoded]) -> str:
    """Shares of bandwidth, a line for each kernel and number of workgroups."""
    ordered = sorted(rows, key=lambda row: (row.arch, row.dtype, row.head_dim, row.of, row.label))
    cells = [
        (
            row.arch,
            row.named,
            row.label,
            str(row.resident),
            str(count),
            *_shares(row, count),
        )
        for row in ordered
        for count in sorted({share.workgroups for share in row.decode.shares})
    ]
    needs = [
        (arch, "in flight", arch_named(arch).model.name, "", "", *map(_kib, needed.values()))
        for arch, needed in {row.arch: row.decode.needed for row in ordered}.items()
    ]
    return "\n".join([DECODE, "", *aligned([DECODE_HEAD, *needs, *cells], left=3), ""])


def _shares(row: Decoded, workgroups: int) -> Iterator[str]:
    return (f"{share.share:.2f}" for share in row.decode.shares if share.workgroups == workgroups)


def _order(row: Modelled) -> tuple[str, str, str, int, str]:
    return (row.arch, row.op, row.dtype, row.head_dim, row.label)


def _name(row: Modelled) -> tuple[str, str, str]:
    return (row.arch, f"{row.op} {row.dtype} d{row.head_dim}", row.label)


def _cells(row: Modelled, charged: Charged) -> tuple[str, ...]:
    bound, schedule = charged.bound, charged.schedule
    return (
        *_name(row),
        charged.order,
        str(row.executed),
        str(row.taken.vgpr),
        str(row.taken.vgpr_spills),
        str(row.taken.lds_bytes),
        f"{schedule.waves_per_simd:.1f}",
        str(charged.ways),
        f"{max(bound.matrix_busy, bound.dot2_busy):.3f}",
        f"{row.flop / bound.clocks:.0f}",
        f"{bound.banks / bound.clocks:.2f}",
        f"{bound.port / bound.clocks:.2f}",
        f"{max(schedule.matrix_busy, schedule.dot2_busy):.3f}",
        *_shown(row.arch, (row.flop / play.clocks_per_workgroup for play in _plays(row, charged))),
    )


def _plays(row: Modelled, charged: Charged) -> tuple[Schedule, ...]:
    """As the columns have them."""
    return (charged.schedule, charged.port, charged.exclusive, row.free)


def _shown(arch: str, flop: Iterable[float]) -> list[str]:
    """FLOP of ``_plays``, with the exclusive schedule's where it is separate."""
    cells = [f"{each:.0f}" for each in flop]
    return cells if has_exclusive(arch) else [*cells[:2], "-", *cells[3:]]


class Joined(NamedTuple):
    """A whole backward under one order of phases. ``flop`` by the bound, then in the order of ``_clocks``."""

    arch: str
    kernel: str
    maker: str
    order: str
    flop: tuple[float, ...]


def joined(rows: Sequence[Modelled]) -> Iterator[Joined]:
    """Whole backwards: useful FLOP of all workgroups over the clocks of all workgroups of all kernels.

    Backwards with a missing kernel are left out.
    """
    for full, whole in ((row, whole) for row in rows for whole in WHOLES if row.op == whole.ops[1]):
        parts = [row for row in rows if row.op in whole.ops and _family(row) == _family(full)]
        if {row.op for row in parts} != {*whole.ops}:
            continue
        useful = whole.products(full.head_dim) * full.flop * full.workgroups
        for at, charged in enumerate(full.charged):
            clocks = zip(*(_clocks(row, row.charged[at]) for row in parts), strict=True)
            name = f"{whole.name} {full.dtype} d{full.head_dim}"
            flop = tuple(useful / sum(each) for each in clocks)
            yield Joined(full.arch, name, maker_of(full), charged.order, flop)


def _total(whole: Joined) -> tuple[str, ...]:
    bound, *schedules = whole.flop
    cells = [*[""] * 7, f"{bound:.0f}", *[""] * 3, *_shown(whole.arch, schedules)]
    return (whole.arch, whole.kernel, whole.maker, whole.order, *cells)


def _clocks(row: Modelled, charged: Charged) -> tuple[float, ...]:
    """Of all workgroups of a launch: by the bound, and by the schedules."""
    plays = (play.clocks_per_workgroup for play in _plays(row, charged))
    return tuple(row.workgroups * clocks for clocks in (charged.bound.clocks, *plays))


def _family(row: Modelled) -> tuple[str, str, int, str]:
    return (row.arch, row.dtype, row.head_dim, maker_of(row))


def maker_of(row: Modelled) -> str:
    """The label without a tile's size."""
    return row.label.partition(",")[0]
