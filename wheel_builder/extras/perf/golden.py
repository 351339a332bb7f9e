"""The reviewed modelled figures, a file for each arch, checked by tests and shown in the documentation.

One figure of each kernel: the schedule's rate under the worst order of LDS phases. CDNA 3 and later have a
second figure under the rule of exclusive instructions. Decode has its share of the memory's bandwidth.
``scripts/wheel-builder perf`` prints all other results of the models.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.measure import Decoded, Modelled, has_exclusive
from wheel_builder.extras.perf.table import joined, maker_of
from wheel_builder.tables.archs import known_archs

FIGURES = Path("wheel_builder/extras/perf/figures")
COUNTERS = FIGURES / "published/counters.txt"
# Under load, and a single workgroup: with more of them most kernels reach the whole bandwidth.
LATENCY, WORKGROUPS = 1000, 1
# What calls with many sequences and heads have, where caches of 8 bits are compared with 16.
MANY, COMPARED = 4, (("fp16", 64), ("fp16", 128))
LATENT = ("bf16", 576)  # over 8 bits: over 16, one workgroup fits
HEADER = f"""\
# Modelled, not measured. `scripts/test --full tests/engine/perf --update` writes this: review the difference.
#   flop    useful FLOP per clock and compute unit, by the schedule, under the worst order of LDS phases
#   decode  percent of the memory's bandwidth for {WORKGROUPS} workgroup, at a latency of {LATENCY} ns
#   many    likewise for {MANY} workgroups, those that widen caches of 8 bits: up to 8
#   clocks  of the workgroup that finds the visible keys of a mask of so many keys, alone and at this latency
"""
HEADER_EXCLUSIVE = """\
#   exclusive  as flop, by the schedule where some VALU instructions never run during a matrix instruction
"""
FLOP, EXCLUSIVE, DECODE, MANY_DECODE, CLOCKS = "flop", "exclusive", "decode", "many", "clocks"
_Count = Annotated[int, Field(strict=True, ge=0)]
# figure name -> maker -> kernel without its head dim -> head dim -> figure
_FILE = TypeAdapter(
    dict[Literal["flop", "exclusive", "decode", "many", "clocks"], dict[str, dict[str, dict[str, _Count]]]]
)


class Figure(NamedTuple):
    """``what`` is ``FLOP``, ``EXCLUSIVE``, ``DECODE``, ``MANY_DECODE`` or ``CLOCKS``.

    ``kernel``: "fwd fp16 d64". ``maker`` without its tile.
    """

    what: str
    maker: str
    kernel: str
    value: int


def parse_figures(name: str, text: str) -> tuple[Figure, ...]:
    """The figures of an arch. Raises ``PerfError`` with all problems of the file ``name``."""
    title, advice = f"{name} is not right", "write it again: scripts/test --full tests/engine/perf --update"
    try:
        file = _FILE.validate_python(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise PerfError(title, [str(error)], advice=advice) from error
    except ValidationError as error:
        problems = [f"{' '.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise PerfError(title, problems, advice=advice) from error
    return tuple(
        Figure(what, maker, f"{kernel} {dim}", value)
        for what, makers in file.items()
        for maker, kernels in makers.items()
        for kernel, values in kernels.items()
        for dim, value in values.items()
    )


def accepted_figures(checkout: Path, archs: Sequence[str] = ()) -> Mapping[str, tuple[Figure, ...]]:
    """Those of ``archs``, by default of all, by arch."""
    files = {name: checkout / FIGURES / f"{name}.toml" for name in archs or known_archs()}
    return {name: parse_figures(file.name, file.read_text("utf-8")) for name, file in files.items()}


def to_text(figures: Iterable[Figure]) -> str:
    """The file of an arch."""
    tables: dict[tuple[str, str], dict[str, dict[str, int]]] = {}
    for each in figures:
        kernel, _, dim = each.kernel.rpartition(" ")
        tables.setdefault((each.what, each.maker), {}).setdefault(kernel, {})[dim] = each.value
    has_rule = any(what == EXCLUSIVE for what, _ in tables)
    lines = [HEADER + HEADER_EXCLUSIVE if has_rule else HEADER]
    for (what, maker), kernels in sorted(tables.items()):
        lines += [f'[{what}."{maker}"]', *(_line(*row) for row in sorted(kernels.items(), key=_order)), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _order(row: tuple[str, object]) -> tuple[str, str]:
    """By kernel and mask, then by dtype."""
    op, _, dtype = row[0].rpartition(" ")
    return (op, dtype)


def _line(kernel: str, values: Mapping[str, int]) -> str:
    by_size = sorted(values.items(), key=lambda value: (len(value[0]), value))
    return f'"{kernel}" = {{{", ".join(f"{dim} = {value}" for dim, value in by_size)}}}'


def figures_of(rows: Iterable[Modelled | Decoded]) -> Iterator[Figure]:
    """The figures of each kernel, and of each whole backward."""
    modelled = []
    for row in rows:
        if isinstance(row, Modelled):
            modelled.append(row)
            yield from _of_kernel(row)
        else:
            shares = {(each.latency, each.workgroups): each for each in row.decode.shares}
            found = shares[LATENCY, WORKGROUPS]
            if row.name:
                yield Figure(CLOCKS, row.label, row.name, found.clocks)
            else:
                yield Figure(DECODE, row.label, row.named, round(100 * found.share))
                yield from _of_many(row)
    yield from _of_wholes(modelled)


def _of_many(row: Decoded) -> Iterator[Figure]:
    """With fewer workgroups where no more fit."""
    kernel = (row.dtype, row.head_dim)
    if kernel in COMPARED or (kernel == LATENT and row.of):
        (*_, most) = (each for each in row.decode.shares if each.latency == LATENCY)
        yield Figure(MANY_DECODE, row.label, row.named, round(100 * most.share))


def _of_kernel(row: Modelled) -> Iterator[Figure]:
    maker, name = maker_of(row), f"{row.op} {row.dtype} d{row.head_dim}"
    slowest = max(charged.schedule.clocks_per_workgroup for charged in row.charged)
    yield Figure(FLOP, maker, name, round(row.flop / slowest))
    if has_exclusive(row.arch):
        slowest = max(charged.exclusive.clocks_per_workgroup for charged in row.charged)
        yield Figure(EXCLUSIVE, maker, name, round(row.flop / slowest))


def _of_wholes(modelled: Sequence[Modelled]) -> Iterator[Figure]:
    orders: dict[tuple[str, str, str], list[float]] = {}
    for whole in joined(modelled):
        _, schedule, _, exclusive, _ = whole.flop
        found = {FLOP: schedule, EXCLUSIVE: exclusive} if has_exclusive(whole.arch) else {FLOP: schedule}
        for what, flop in found.items():
            orders.setdefault((what, whole.maker, whole.kernel), []).append(flop)
    yield from (Figure(*name, round(min(flop))) for name, flop in orders.items())
