"""A candidate's figures under every line of the models, and its execution against float64.

Both are stored by the code object: rows that make the same code have the same figures.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import PerfError
from wheel_builder.base.store import Artifact, Store, sha256_tree
from wheel_builder.extras.perf.measure import Modelled, Subject, has_exclusive, measure, resident_of
from wheel_builder.extras.tune.ranking import Lines
from wheel_builder.extras.tune.rows import Kernel
from wheel_builder.extras.tune.works import works
from wheel_builder.machine_code.disassembly.listing import Listing
from wheel_builder.machine_code.static_checks.check import check_listing
from wheel_builder.tables.tiles import Workgroup

FIGURES, QUICK, EXECUTED = "tuned-figures", "tuned-quick", "tuned-runs"
# What figures depend on, besides the code object: the models, the emulator and the tables of hardware.
MODELS = (
    "kernels/tables/gpus.toml",
    "kernels/tables/isas.toml",
    "wheel_builder/extras/perf/launch",
    "wheel_builder/extras/perf/measure.py",
    "wheel_builder/extras/perf/model",
    "wheel_builder/extras/perf/speed.py",
    "wheel_builder/extras/perf/workloads",
    "wheel_builder/extras/tune/checks.py",
    "wheel_builder/extras/tune/decodes.py",
    "wheel_builder/extras/tune/exact.py",
    "wheel_builder/extras/tune/measuring.py",
    "wheel_builder/extras/tune/works.py",
    "wheel_builder/machine_code/disassembly",
    "wheel_builder/machine_code/emulator",
    "wheel_builder/machine_code/static_checks",
)


Make = Callable[[Path], Mapping[str, Any]]


@dataclass(frozen=True)
class Figures:
    """``lines``: useful FLOP a clock and compute unit; of launches: launches of that shape a second.

    ``problem``: why there are none. ``resident``: workgroups of a compute unit (RDNA: of a workgroup
    processor).
    """

    lines: Lines
    vgpr: int = 0
    agpr: int = 0
    lds_bytes: int = 0
    code_bytes: int = 0
    resident: int = 0
    problem: str = ""


@dataclass(frozen=True)
class Results:
    """The place of results, and the digest of what figures depend on."""

    store: Store
    models: str


def models_of(checkout: Path) -> str:
    return sha256_tree(checkout, [checkout / source for source in MODELS])


def figures_of(subject: Subject, kernel: Kernel, tile: Workgroup, results: Results) -> Figures:
    """The figures of a candidate, stored."""
    return _kept(FIGURES, _figures, subject, kernel, tile, results)


def quick_figures_of(subject: Subject, kernel: Kernel, tile: Workgroup, results: Results) -> Figures:
    """As ``figures_of``, with one round of the first workload's schedule alone: a twentieth of its time.

    Of kernels bound by memory: their launches.
    """
    return _kept(QUICK, _quick, subject, kernel, tile, results)


def _kept(
    name: str, find: Callable[[Subject, Kernel, Workgroup], Figures],
    subject: Subject, kernel: Kernel, tile: Workgroup, results: Results,
) -> Figures:  # fmt: skip
    """What ``find`` finds, or its problem, stored under ``name``."""

    def make(_out: Path) -> Mapping[str, Any]:
        try:
            return asdict(find(subject, kernel, tile))
        except PerfError as error:
            return asdict(Figures({}, problem=error.message))

    return Figures(**_stored(name, subject, kernel, tile, results, make).facts)


def executed(subject: Subject, kernel: Kernel, tile: Workgroup, step: int, results: Results) -> str:
    """What is wrong with a candidate, or "". Stored. ``step``: rows of a tile.

    Failed static checks, then results on the emulator.
    """

    def make(_out: Path) -> Mapping[str, Any]:
        checked = check_listing(Listing(kernel.arch, subject.disassembly, subject.code))
        failed = (finding.text for each in checked for finding in each.findings if finding.fails)
        return {"problem": next(chain(failed, works()[kernel.op].problems(subject, kernel, tile, step)), "")}

    made = _stored(EXECUTED, subject, kernel, tile, results, make)
    return str(made.facts["problem"])


def _stored(
    stage: str, subject: Subject, kernel: Kernel, tile: Workgroup, results: Results, make: Make
) -> Artifact:
    inputs = {
        "code": hashlib.sha256(subject.code).hexdigest(),
        "kernel": kernel.name,
        "rows": tile.rows,
        "models": results.models,
    }
    return results.store.get_or_make(stage, inputs, make)


def _figures(subject: Subject, kernel: Kernel, tile: Workgroup) -> Figures:
    work = works()[kernel.op]
    workloads = [*work.workloads(subject, kernel, tile)]
    rows = [measure(subject, each) for each in workloads]
    lines = {name: value for row in rows for name, value in _lines(row)}
    taken = rows[0].taken
    return Figures(
        lines=lines | dict(work.launches(subject, kernel, tile)),
        vgpr=taken.vgpr,
        agpr=taken.agpr,
        lds_bytes=taken.lds_bytes,
        code_bytes=taken.code_bytes,
        resident=resident_of(subject, workloads[0]),
    )


def _quick(subject: Subject, kernel: Kernel, tile: Workgroup) -> Figures:
    work = works()[kernel.op]
    if work.bound_by_memory:
        return Figures(dict(work.launches(subject, kernel, tile)))
    workload = next(iter(work.workloads(subject, kernel, tile)))
    row = measure(subject, workload, only_figures=True, rounds=1)
    return Figures(
        {f"{row.op}, schedule": min(row.flop / each.schedule.clocks_per_workgroup for each in row.charged)}
    )


def _lines(row: Modelled) -> Iterator[tuple[str, float]]:
    """The schedule, under every order of LDS phases and every disputed rate."""
    for charged in row.charged:
        schedules = {
            "schedule": charged.schedule,
            "port": charged.port,
            **({"exclusive": charged.exclusive} if has_exclusive(row.arch) else {}),
            **charged.disputed,
        }
        for name, schedule in schedules.items():
            yield f"{row.op}, {name}, {charged.order}", row.flop / schedule.clocks_per_workgroup
