"""The figures of both models as text; every digit is repeatable."""

from collections.abc import Iterable, Iterator, Sequence

from wheel_builder.base.words import aligned
from wheel_builder.perf.measure import Charged, Modelled

TITLE = """\
Modelled, not measured: instructions that one workgroup executed on an ISA emulator, under two models.
Nothing was run on a GPU.  Read rankings and shares; these are no predictions of TFLOP/s.
share: busy matrix units (on gfx1030: dot2 instructions' part of the VALU).  FLOP: useful ones, per clock and
compute unit.  bound: a ceiling.  schedule: with latencies, waits, the waves that fit, and the LDS's banks; "+ port":
also with the way to the LDS; "no LDS": with neither, as until version 0.1.0.
phases: the order in which the LDS serves lanes (perf/lds.py)."""
HEAD = (
    "arch", "kernel", "of", "phases", "executed", "VGPR", "spills", "LDS", "waves/SIMD",
    "bound share", "FLOP", "schedule share", "FLOP", "+ port", "no LDS",
)  # fmt: skip
LDS_TITLE = """\
LDS instructions that a wave executes more than once.  ways: the most dwords that one phase of lanes needs of a bank, in
the worst execution; 1 is free of conflicts.  extra: clocks of conflicts in all executions of the workgroup."""
LDS_HEAD = ("arch", "kernel", "of", "phases", "offset", "executed", "ways", "extra", "instruction")
TOTAL = "bwd"  # all kernels of a backward together
BACKWARD = "bwd_"
FULL = "bwd_dkdv"
# Of the five products that a backward needs, dK and dV's kernel forms four.
USEFUL = 5 / 4


def table(rows: Iterable[Modelled]) -> str:
    """Title, header and a line per kernel and order of phases, by arch, kernel and maker; backwards also as a
    whole.  Then the LDS instructions of their loops.
    """
    ordered = sorted(rows, key=_order)
    lines = [_cells(row, charged) for row in ordered for charged in row.charged]
    cells = [HEAD, *lines, *_totals(ordered)]
    return "\n".join([TITLE, "", *aligned(cells, left=4), "", lds_table(ordered)])


def lds_table(rows: Iterable[Modelled]) -> str:
    """The LDS instructions in the kernels' loops, with their conflicts."""
    cells = [
        (
            *_name(row),
            charged.order,
            f"+{use.offset:#x}",
            str(use.executed),
            str(use.ways),
            str(use.extra),
            use.text,
        )
        for row in sorted(rows, key=_order)
        for charged in row.charged
        for use in charged.uses
        if use.looped
    ]
    return "\n".join([LDS_TITLE, "", *aligned([LDS_HEAD, *cells], left=4), ""])


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
        f"{max(bound.matrix_busy, bound.dot2_busy):.3f}",
        f"{row.flop / bound.clocks:.0f}",
        f"{max(schedule.matrix_busy, schedule.dot2_busy):.3f}",
        *(f"{row.flop / play.clocks_per_workgroup:.0f}" for play in (schedule, charged.port, row.free)),
    )


def _totals(rows: Sequence[Modelled]) -> Iterator[tuple[str, ...]]:
    """Whole backwards: useful FLOP of all workgroups over the clocks of all workgroups of all kernels."""
    for full in (row for row in rows if row.op == FULL):
        parts = [row for row in rows if row.op.startswith(BACKWARD) and _family(row) == _family(full)]
        useful = USEFUL * full.flop * full.workgroups
        bound = sum(row.bound.clocks * row.workgroups for row in parts)
        schedule = sum(row.schedule.clocks_per_workgroup * row.workgroups for row in parts)
        name = f"{TOTAL} {full.dtype} d{full.head_dim}"
        figures = ("", f"{useful / bound:.0f}", "", f"{useful / schedule:.0f}")
        yield (full.arch, name, _maker(full), *[""] * 5, *figures)


def _family(row: Modelled) -> tuple[str, str, int, str]:
    return (row.arch, row.dtype, row.head_dim, _maker(row))


def _maker(row: Modelled) -> str:
    """The label without a tile's size."""
    return row.label.partition(",")[0]
