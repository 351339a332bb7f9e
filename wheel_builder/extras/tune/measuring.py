"""A candidate's figures under every line of the models, and its execution against float64.

Both are stored by the code object: rows that make the same code have the same figures.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import PerfError
from wheel_builder.base.store import Artifact, Store, sha256_tree
from wheel_builder.extras.perf.launch import calls
from wheel_builder.extras.perf.launch.kernels import Kernel as Launched
from wheel_builder.extras.perf.launch.table import FORWARDS, shapes_on
from wheel_builder.extras.perf.measure import Modelled, Subject, has_exclusive, measure, resident_of
from wheel_builder.extras.perf.speed import forward_speed
from wheel_builder.extras.perf.workloads import ours
from wheel_builder.extras.tune.ranking import LAUNCH, Lines
from wheel_builder.extras.tune.rows import Kernel
from wheel_builder.machine_code.emulator.attention import Case, compare, make_call
from wheel_builder.machine_code.emulator.machine import Launch, Options
from wheel_builder.tables.tiles import Workgroup

FIGURES, EXECUTED = "tuned-figures", "tuned-runs"
# What figures depend on, besides the code object: the models, the emulator and the tables of hardware.
MODELS = (
    "kernels/tables/gpus.toml",
    "kernels/tables/isas.toml",
    "wheel_builder/extras/perf/launch",
    "wheel_builder/extras/perf/measure.py",
    "wheel_builder/extras/perf/model",
    "wheel_builder/extras/perf/speed.py",
    "wheel_builder/extras/perf/workloads",
    "wheel_builder/extras/tune/measuring.py",
    "wheel_builder/machine_code/disassembly",
    "wheel_builder/machine_code/emulator",
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

    def make(_out: Path) -> Mapping[str, Any]:
        try:
            return asdict(_figures(subject, kernel, tile))
        except PerfError as error:
            return asdict(Figures({}, problem=error.message))

    return Figures(**_stored(FIGURES, subject, kernel, tile, results, make).facts)


def executed(subject: Subject, kernel: Kernel, tile: Workgroup, keys: int, results: Results) -> str:
    """What is wrong with a candidate's results on the emulator, or "". Stored."""

    def make(_out: Path) -> Mapping[str, Any]:
        return {"problem": next(_problems(subject, kernel, tile, keys), "")}

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
    of_machine = subject.machine.kernels[kernel.name]
    dies, heads = ours.dies_of(kernel.arch), ours.heads_of(kernel.arch, of_machine)
    whole = measure(subject, ours.forward(of_machine, dies=dies))
    causal = ours.causal_forward(of_machine, rows=tile.rows, heads=heads, dies=dies)
    lines = {**dict(_lines(whole)), **dict(_lines(measure(subject, causal)))}
    taken = whole.taken
    return Figures(
        lines={**lines, **dict(_launches(subject, kernel, tile))},
        vgpr=taken.vgpr,
        agpr=taken.agpr,
        lds_bytes=taken.lds_bytes,
        code_bytes=taken.code_bytes,
        resident=resident_of(subject, ours.forward(of_machine, dies=dies)),
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


def _launches(subject: Subject, kernel: Kernel, tile: Workgroup) -> Iterator[tuple[str, float]]:
    speed = forward_speed(subject, subject.machine.kernels[kernel.name])
    launched = Launched(f"{kernel.op} {kernel.dtype} d{kernel.head_dim}", tile.rows, speed)
    for shape in shapes_on(kernel.arch, FORWARDS):
        seconds = calls.forward(kernel.arch, launched, shape, together=True).seconds
        yield f"{LAUNCH} {shape.name}", 1 / seconds


def cases_of(kernel: Kernel, tile: Workgroup, keys: int) -> tuple[Case, ...]:
    """Calls that use all waves, whole tiles and parts of tiles, a mask, and heads sharing keys."""
    of_v = ours.value_dim(kernel.op, kernel.head_dim)

    def case(rows: int, keys: int, **more: Any) -> Case:  # noqa: ANN401 - fields of Case
        return Case(kernel.dtype, kernel.head_dim, rows, keys, v_head_dim=of_v, **more)

    return (
        case(tile.rows + 5, 2 * keys + 9),
        case(37, 3 * keys + 1, nheads=2, causal=True, pad=8, seed=1),
    )


def _problems(subject: Subject, kernel: Kernel, tile: Workgroup, keys: int) -> Iterator[str]:
    for case in cases_of(kernel, tile, keys):
        call = make_call(case)
        grid = call.order.grid(-(-case.seqlen_q // tile.rows), case.nheads, case.batch)
        launch = Launch(grid, (tile.threads, 1, 1))
        run = subject.machine.run(kernel.name, launch, call.kernarg(grid), call.memory, Options())
        yield from filter(None, [run.error, *map(str, run.findings)])
        if (first := compare(call).first) is not None:
            yield f"{first.what}{list(first.index)} is {first.found:g}, expected {first.expected:g}"
