"""``scripts/wheel-builder perf``: both models for the kernels of wheels, folders or single code objects."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from wheel_builder.base.errors import PerfError
from wheel_builder.base.store import Store
from wheel_builder.extras.perf.launch.kernels import Kernel
from wheel_builder.extras.perf.launch.table import report as launch_report
from wheel_builder.extras.perf.measure import Decoded, Modelled, Subject, measure, measure_decode
from wheel_builder.extras.perf.speed import speeds
from wheel_builder.extras.perf.table import report
from wheel_builder.extras.perf.workloads import coded, gradients, latent, ours, widening
from wheel_builder.extras.perf.workloads.workload import SUFFIX, Workload, read_workloads
from wheel_builder.files.binaries.elf import read_elf
from wheel_builder.files.device.fatbin import CodeObject, machine_arch
from wheel_builder.files.device.library import device_code
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.machine_code.disassembly.listing import Tools, list_code, tools_in
from wheel_builder.machine_code.emulator.binding import Core
from wheel_builder.machine_code.emulator.machine import Machine
from wheel_builder.machine_code.fake_hip.container import LIBRARY
from wheel_builder.matrix.model import Plan
from wheel_builder.matrix.plan import jobs_to_build
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.images import begin, builder_image
from wheel_builder.pipeline.progress import Step as Shown
from wheel_builder.pipeline.release import newest_wheel
from wheel_builder.pipeline.verification import build_emulator
from wheel_builder.tables.archs import arch_named

CODE_OBJECT = ".hsaco"
Row = TypeVar("Row")


@dataclass(frozen=True)
class Bench:
    """The tools of modelling: the emulator's core, LLVM's tools, and the store for listings."""

    core: Core
    tools: Tools
    store: Store
    log: Path


def default_paths(plan: Plan, context: RunContext) -> tuple[Path, ...]:
    """The newest finished wheel of each job. Raises ``WheelError`` when a job has none."""
    return tuple(newest_wheel(job, context.dist) for job in jobs_to_build(plan))


def perf(
    paths: Sequence[Path], plan: Plan, context: RunContext, *, archs: Sequence[str], plain: bool | None = None
) -> str:
    """The printed table, for all kernels in ``paths`` or only for ``archs``.

    Kernels are disassembled in the builder image of the plan's first job. Raises as ``model`` does.
    """
    return report(_rows(model, paths, plan, context, archs=archs, plain=plain))


def perf_launches(
    paths: Sequence[Path], plan: Plan, context: RunContext, *, archs: Sequence[str], plain: bool | None = None
) -> str:
    """As ``perf``, the table of whole launches."""
    found: dict[str, dict[str, Kernel]] = {}
    for arch, kernel in _rows(launched, paths, plan, context, archs=archs, plain=plain):
        found.setdefault(arch, {})[kernel.name] = kernel
    return "\n".join(launch_report(arch, kernels) for arch, kernels in found.items())


def _rows(
    rows_of: Callable[..., Iterator[Row]], paths: Sequence[Path], plan: Plan, context: RunContext, *,
    archs: Sequence[str], plain: bool | None,
) -> list[Row]:  # fmt: skip
    """What ``rows_of``, ``model`` or ``launched``, finds in all paths."""
    job = jobs_to_build(plan)[0]
    steps = begin(context, plan.package)
    builder = builder_image(steps, job)
    emulator = build_emulator(steps, job, builder)

    def work(path: Path, _: Shown) -> list[Row]:
        core, tools = Core(emulator.result.path / LIBRARY), tools_in(builder.result)
        bench = Bench(core, tools, context.store, context.log("listing"))
        return list(rows_of(path, bench, max_mib=plan.package.max_wheel_mib, archs=archs))

    made = [steps.add(f"model {path.name}", partial(work, path), weight=60) for path in paths]
    steps.run(plain=plain)
    return [row for step in made for row in step.result]


def model(
    path: Path, bench: Bench, *, max_mib: float, archs: Sequence[str] = (), only_figures: bool = False
) -> Iterator[Modelled | Decoded]:
    """Both models for every kernel in ``path``, one after another. For a decode, its share of bandwidth.

    A wheel holds this project's kernels. A code object, alone or in a folder, is foreign if a launch file
    lies in the same folder (workloads/workload.py), else one of ours. ``only_figures`` as for ``measure``.
    Raises ``PerfError`` for kernels without a workload and instructions without numbers, ``DeviceCodeError``
    and others for unreadable files.
    """
    wanted = _wanted(path, _parts(path, max_mib=max_mib), archs)
    for part, subject in zip(wanted, subjects([part.code for part in wanted], bench), strict=True):
        measured = partial(_measured, subject, only_figures=only_figures)
        if part.file:
            yield from map(measured, read_workloads(part.file))
        else:
            yield from _ours(part.label, subject, measured)


@dataclass(frozen=True)
class _Part:
    """A code object. ``file`` is set for a foreign one, with its launch file in the same folder."""

    code: CodeObject
    label: str = ours.LABEL
    file: Path | None = None


def _parts(path: Path, *, max_mib: float) -> list[_Part]:
    if path.suffix == ".whl":
        wheel = read_wheel(path, max_mib=max_mib)
        return [_Part(code, f"{ours.LABEL} {wheel.version}") for code in device_code(wheel)]
    files = sorted(path.rglob(f"*{CODE_OBJECT}")) if path.is_dir() else [path]
    return [_part(file) for file in files]


def _wanted(path: Path, parts: Sequence[_Part], archs: Sequence[str]) -> list[_Part]:
    found = [part for part in parts if not archs or part.code.gfx in archs]
    if not found:
        title = f"{path}: nothing to model" + (f" for {', '.join(archs)}" if archs else "")
        raise PerfError(title, [f"expected a wheel, a code object or a folder of {CODE_OBJECT} files"])
    return found


def _part(file: Path) -> _Part:
    try:
        data = file.read_bytes()
    except OSError as error:
        title = f"{file} cannot be read"
        raise PerfError(title, [str(error)]) from error
    code = CodeObject(machine_arch(read_elf(data)), data)
    return _Part(code, file=file if file.with_name(file.name + SUFFIX).is_file() else None)


def _ours(
    label: str, subject: Subject, measured: Callable[[Workload], Modelled]
) -> Iterator[Modelled | Decoded]:
    """Kernels lacking a workload are left out."""
    for name, kernel in subject.machine.kernels.items():
        yield from _bound_by_memory(label, subject, name)
        if gradients.has_backward(name):
            yield from map(measured, gradients.backwards(subject.machine.arch, kernel, label))
        if not ours.has_workload(name):
            continue
        dies = ours.dies_of(subject.machine.arch)
        if ours.reads_mask(name):
            for kind, keys in ours.masks(kernel):
                yield measured(ours.masked_forward(kernel, kind, label, dies=dies, keys=keys))
            continue
        heads = ours.heads_of(subject.machine.arch, kernel)
        fp8_values = arch_named(subject.machine.arch).isa.fp8 != "none"
        for keys in ours.lengths(kernel):
            whole = measured(ours.forward(kernel, label, dies=dies, keys=keys, fp8_values=fp8_values))
            yield whole
            if keys not in ours.causal_lengths(subject.machine.arch, kernel):
                continue
            rows = ours.rows_of(whole.flop, whole.head_dim, keys, whole.op)
            causal = ours.causal_forward(
                kernel, label, rows=rows, heads=heads, dies=dies, keys=keys, fp8_values=fp8_values
            )
            yield measured(causal)


def _bound_by_memory(label: str, subject: Subject, name: str) -> Iterator[Decoded]:
    kernel = subject.machine.kernels[name]
    if ours.has_decode(name):
        workload = ours.decoding(kernel, label)
        yield measure_decode(_checked(subject, workload), workload, ours.bytes_of_decode(workload.head_dim))
    if coded.has_coded(name):
        workload = coded.decoding(kernel, label)
        useful = coded.bytes_of(workload)
        yield measure_decode(_checked(subject, workload), workload, useful, of=coded.SHOWN)
    if widening.widens(name):
        workload = widening.widening(kernel, label)
        useful, counts = widening.bytes_of(), widening.WORKGROUPS
        yield measure_decode(_checked(subject, workload), workload, useful, of=widening.OP, counts=counts)
    if latent.has_latent(name):
        workload = latent.decoding(kernel, label)
        useful, of = latent.bytes_of(workload), latent.SHOWN[latent.op_of(name)]
        yield measure_decode(_checked(subject, workload), workload, useful, of=of)
    if ours.finds_ranges(name):
        workload, what = ours.finding_ranges(kernel, label), f"{ours.RANGES_OP} fp16 k{ours.RANGES_KEYS}"
        useful = ours.bytes_of_ranges(kernel)
        yield measure_decode(_checked(subject, workload), workload, useful, what)


def launched(
    path: Path, bench: Bench, *, max_mib: float, archs: Sequence[str] = ()
) -> Iterator[tuple[str, Kernel]]:
    """The kernels that the launch model plays, each with its arch. Raises as ``model``."""
    wanted = _wanted(path, _parts(path, max_mib=max_mib), archs)
    for subject in subjects([part.code for part in wanted], bench):
        yield from ((subject.machine.arch, kernel) for kernel in speeds(subject))


def subjects(objects: Sequence[CodeObject], bench: Bench) -> tuple[Subject, ...]:
    """Disassemble and load the code objects."""
    listings = list_code(objects, tools=bench.tools, store=bench.store, log=bench.log)
    return tuple(
        Subject(Machine(bench.core, code.data, text.disassembly), text.disassembly, code.data)
        for code, text in zip(objects, listings, strict=True)
    )


def _measured(subject: Subject, workload: Workload, *, only_figures: bool = False) -> Modelled:
    return measure(_checked(subject, workload), workload, only_figures=only_figures)


def _checked(subject: Subject, workload: Workload) -> Subject:
    if workload.kernel not in subject.machine.kernels:
        title = f"{workload.label}: no kernel {workload.kernel}"
        raise PerfError(title, [f"the code object has {', '.join(subject.machine.kernels)}"])
    if subject.machine.missing:
        title = f"{workload.label}: instructions missing in the emulator"
        raise PerfError(title, subject.machine.missing)
    return subject
