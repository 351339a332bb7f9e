"""Verification of a finished wheel before it may be published, each part a step.

    audit -> emulator -> static checks -> emulated suite per arch -> tests without a GPU and under HIP errors

Of a wheel for Windows all of these are executed under wine, but for loading it under HIP runtimes.
Results are in the record that lies beside the wheel afterwards.
"""

import os
import time
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType
from typing import Any

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from wheel_builder.audit import stage as audit
from wheel_builder.audit.rules import Expectation
from wheel_builder.audit.stage import AuditReport
from wheel_builder.base.errors import WheelBuilderError, WheelError
from wheel_builder.base.machine import usable_memory
from wheel_builder.base.store import Artifact
from wheel_builder.build.product import Product, read_product
from wheel_builder.images.docker import threads
from wheel_builder.images.wheel_tests import FULL, NIGHTLY_TIER, RELEASE_TIER, suite_cost
from wheel_builder.machine_code.disassembly.listing import tools_in
from wheel_builder.machine_code.emulator.binding import Core
from wheel_builder.machine_code.emulator.command import Workshop
from wheel_builder.machine_code.fake_hip import stage as fake_hip
from wheel_builder.machine_code.fake_hip.container import LIBRARY
from wheel_builder.machine_code.static_checks import stage as static
from wheel_builder.matrix.model import (
    LINUX,
    PUBLIC,
    WINDOWS,
    WINDOWS_TAG,
    Job,
    Matrix,
    Package,
    Selection,
)
from wheel_builder.matrix.plan import jobs_to_build
from wheel_builder.matrix.plan import plan as make_plan
from wheel_builder.matrix.support_table import planned_kernels
from wheel_builder.pipeline.context import (
    ENGINE,
    RunContext,
    builder_image,
    builder_step,
    hip_image,
    hip_step,
    progress_of,
    start_engine,
    tester_steps,
    testers,
    told,
)
from wheel_builder.pipeline.progress import Planned, Progress
from wheel_builder.provenance.attest import product_of, refresh_provenance
from wheel_builder.provenance.records import Demand, refuse_published, write_record
from wheel_builder.verify import numerics as emulated
from wheel_builder.verify import runtimes, wine
from wheel_builder.verify import stage as verify
from wheel_builder.verify.seen import subject_of

# Twice the most memory that the emulated suite of one arch took: 1.5 GiB, of gfx942.
SUITE_BYTES = 3 * 1024**3
COMPILES = "compiling it takes some minutes, once; release, verify and emulate keep their builds in build/"


EMULATOR_FOR_WINDOWS, UNDER_WINE = "emulator for Windows", "under wine"


def emulator_step(job: Job) -> Planned:
    return Planned("emulator", job.id, weight=100)


def verify_steps(job: Job) -> Iterator[Planned]:
    """The steps of verifying one of the job's wheels."""
    yield emulator_step(job)
    yield Planned("static checks", job.id, weight=20)
    if job.for_windows:
        yield Planned(EMULATOR_FOR_WINDOWS, job.id, weight=120)
        yield from (Planned(f"emulate {arch} {UNDER_WINE}", job.id, weight=180) for arch in _emulated(job))
        yield Planned(f"verify {UNDER_WINE}", job.id, weight=60)
        return
    yield from (Planned(f"emulate {arch}", job.id, weight=60) for arch in job.archs)
    yield Planned("load under HIP runtimes", job.id, weight=5)
    yield Planned("verify", job.id, weight=90)


def planned_verification(jobs: Sequence[Job], others: Sequence[Job] = ()) -> list[Planned]:
    """The steps of ``verify_files`` in their order, for wheels of these jobs; ``others`` as there."""
    steps = (step for job in jobs for step in (builder_step(job), *verify_steps(job)))
    return [ENGINE, *tester_steps(jobs), *map(hip_step, others), *steps]


def verify_files(
    files: Sequence[Path],
    matrix: Matrix,
    context: RunContext,
    *,
    archs: Sequence[str] = (),
    update: bool = False,
    others: Sequence[str] = (),
    plain: bool | None = None,
) -> list[Path]:
    """Audit and verify finished wheels, none of which may lie in an index; returns the paths of their
    records.  Raises the first failure.

    ``archs`` as in ``job_of``; ``update`` first writes the resources of the wheels' kernels into the golden
    file; ``others`` are further ROCm versions under whose runtimes the wheels are loaded.
    """
    refuse_published(files)
    jobs = [job_of(file, matrix, archs) for file in files]
    more = jobs_of(others, matrix)
    records = []
    with progress_of(planned_verification(jobs, more), context, plain) as progress:
        start_engine(context, progress)
        images_of_tests = testers(jobs, matrix.package, context, progress)
        images = {job: hip_image(job, matrix.package, context, progress) for job in more}
        for file, job in zip(files, jobs, strict=True):
            audit_of_job(file, job, matrix.package, context.checkout)
            builder = builder_image(job, matrix.package, context, progress)
            elsewhere = {other: image for other, image in images.items() if other.rocm != job.rocm}
            record = verify_one(
                file, job, context, builder, images_of_tests[job.platform], progress,
                others=elsewhere, update=update,
            )  # fmt: skip
            records.append(write_record(file, record.facts))
            refresh_provenance(file)
    return records


def audit_file(file: Path, matrix: Matrix, checkout: Path, archs: Sequence[str] = ()) -> AuditReport:
    """Audit a finished wheel of the checkout's matrix, ``archs`` as in ``job_of``; raises ``AuditError``."""
    return audit_of_job(file, job_of(file, matrix, archs), matrix.package, checkout)


def audit_of_job(file: Path, job: Job, package: Package, checkout: Path) -> AuditReport:
    """Audit a finished wheel of ``job``; what is in it has to be what its commit puts in."""
    return audit.audit_wheel(file, expectation(job, package, checkout, product_of(file, checkout)))


def emulator_workshop(
    source: Path, matrix: Matrix, context: RunContext, *, plain: bool | None = None
) -> Workshop:
    """What ``emulate`` needs for a wheel's kernels, or for a code object with the default ROCm version."""
    job = (
        job_of(source, matrix)
        if source.suffix == ".whl"
        else jobs_to_build(make_plan(matrix, Selection()))[0]
    )
    with progress_of([ENGINE, builder_step(job), emulator_step(job)], context, plain) as progress:
        start_engine(context, progress)
        builder = builder_image(job, matrix.package, context, progress)
        emulator = build_emulator(job, builder, context, progress)
    return Workshop(
        Core(emulator.path / LIBRARY),
        context.store,
        tools_in(builder),
        context.log("").parent,
    )


def job_of(file: Path, matrix: Matrix, archs: Sequence[str] = ()) -> Job:
    """The job that a finished wheel belongs to, by the local label of its version; without one the public's.

    ``archs`` are those for which it was built; empty means all of its ROCm version.  What its name says is
    compared with the whole tag by the audit.
    """
    try:
        _, version, _, tags = parse_wheel_filename(file.name)
    except InvalidWheelFilename as error:
        message = f"{file.name} is not a wheel's file name"
        raise WheelError(message, advice="name a .whl file") from error
    name = version.local.removeprefix("rocm") if version.local else PUBLIC
    windows = any(tag.platform == WINDOWS_TAG for tag in tags)
    selection = Selection((name,), tuple(archs), platforms=(WINDOWS if windows else LINUX,))
    return jobs_to_build(make_plan(matrix, selection))[0]


def demand_of(job: Job, versions: Collection[str]) -> Demand:
    """What the record of the job's wheel has to say; ``versions`` are the ROCm versions that it may serve.

    For Linux that it passed for every arch; for Windows only for those that the release tier executes under
    wine, and that the others were not executed.
    """
    if not job.for_windows:
        return Demand(job.archs, versions)
    executed = wine.archs_under_wine(job.archs, full=False)
    others = [arch for arch in job.archs if arch not in executed]
    return Demand(executed, others=others, how=wine.HOW, not_executed=wine.NOT_EXECUTED)


def jobs_of(rocm: Sequence[str], matrix: Matrix) -> tuple[Job, ...]:
    """The jobs of these ROCm versions, with all their archs; raises ``SelectionError`` for unknown ones."""
    return jobs_to_build(make_plan(matrix, Selection(rocm=tuple(rocm)))) if rocm else ()


def expectation(job: Job, package: Package, checkout: Path, product: Product | None = None) -> Expectation:
    """What the audit expects of the job's wheel: the plan, the support table, and its sources' ``product``.

    Without ``product`` it is that of the checkout as it is now.
    """
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    return Expectation(
        kernels=planned_kernels(checkout, job.archs),
        rocm="" if job.public else job.rocm.version,
        base_version=project["tool"]["flash-attn-rocm"]["version"],
        platform_tag=job.platform_tag(package),
        torch_floor=package.torch_floor,
        max_mib=package.max_wheel_mib,
        torch_headers=package.torch_headers,
        product=product or read_product(checkout),
    )


def verify_one(
    file: Path,
    job: Job,
    context: RunContext,
    builder: Artifact,
    tester: Artifact,
    progress: Progress,
    *,
    others: Mapping[Job, Artifact] = MappingProxyType({}),
    update: bool = False,
) -> Artifact:
    """Run every check of ``verify`` on a wheel; returns its record.

    ``others`` are other jobs' images, under whose runtimes the wheel is loaded too.  ``tester`` is
    the image of the job's platform.
    """
    runtime = build_emulator(job, builder, context, progress)
    checked, code = _static_checks(file, job, context, builder, runtime, progress, update=update)
    if job.for_windows:
        return _verify_under_wine(file, job, context, builder, tester, checked, code, progress)
    shown = _emulate(file, job, context, tester, runtime, code, progress)
    loads = _load(file, {job: builder, **others}, job, context, progress)
    log = context.log(f"verify-{job.id}")
    with progress.step("verify", job=job.id, log=log) as step:
        record = verify.verify_wheel(
            file, shown, static=checked, job=job, image=tester, fake_hip=runtime,
            disassembly=code, runtimes=loads, checkout=context.checkout, store=context.store,
            jobs=context.jobs, log=log, tier=chosen_tier(),
        )  # fmt: skip
        return told(step, record)


def _verify_under_wine(
    file: Path,
    job: Job,
    context: RunContext,
    builder: Artifact,
    tester: Artifact,
    checked: Artifact,
    code: Artifact,
    progress: Progress,
) -> Artifact:
    runtime = _emulator_for_windows(job, builder, context, progress)
    shown = _emulate(file, job, context, tester, runtime, code, progress)
    log = context.log(f"verify-{job.id}")
    with progress.step(f"verify {UNDER_WINE}", job=job.id, log=log) as step:
        record = wine.verify_under_wine(
            file, shown, static=checked, job=job, image=tester, fake_hip=runtime, disassembly=code,
            checkout=context.checkout, store=context.store, log=log,
        )  # fmt: skip
        return told(step, record)


def chosen_tier() -> str:
    """Which tests of a wheel are to be run: those of a release, or with FA_FULL=1 the nightly ones."""
    return NIGHTLY_TIER if os.environ.get(FULL, "") not in {"", "0"} else RELEASE_TIER


def _static_checks(
    file: Path,
    job: Job,
    context: RunContext,
    builder: Artifact,
    emulator: Artifact,
    progress: Progress,
    *,
    update: bool,
) -> tuple[Artifact, Artifact]:
    """The checks' report and the wheel's disassembly."""
    log = context.log(f"static-checks-{job.id}")
    with progress.step("static checks", job=job.id, log=log) as step:
        checked = static.check_static(
            file, builder, rocm=job.rocm.version, checkout=context.checkout, store=context.store, log=log,
            update=update,
        )  # fmt: skip
        code = static.disassemble_wheel(file, builder, store=context.store, log=log)
        core = Core(emulator.path / LIBRARY)
        static.refuse_unimplemented(file.name, core, code, emulator=emulator, store=context.store)
        return told(step, checked), code


def _load(
    file: Path, images: Mapping[Job, Artifact], own: Job, context: RunContext, progress: Progress
) -> Mapping[str, Artifact]:
    """The result of loading the wheel beside each image's runtime, by ROCm version."""
    log = context.log(f"load-{own.id}")
    with progress.step("load under HIP runtimes", job=own.id, log=log) as step:
        loads = {
            job.rocm.version: runtimes.load_wheel(file, job, image=image, store=context.store, log=log)
            for job, image in images.items()
        }
        if all(load.reused for load in loads.values()):
            step.skipped("unchanged")
        return loads


def build_emulator(job: Job, builder: Artifact, context: RunContext, progress: Progress) -> Artifact:
    """Build the emulator with its fake HIP runtime; its file is ``LIBRARY``."""
    log = context.log(f"emulator-{job.id}")
    with progress.step("emulator", job=job.id, log=log) as step:
        if not fake_hip.is_built(builder, context.checkout, context.store):
            progress.note(step, COMPILES)
        made = fake_hip.build_fake_hip(builder, checkout=context.checkout, store=context.store, log=log)
        return told(step, made)


def _emulator_for_windows(job: Job, builder: Artifact, context: RunContext, progress: Progress) -> Artifact:
    """The same as a DLL."""
    log = context.log(f"emulator-{job.id}-dll")
    with progress.step(EMULATOR_FOR_WINDOWS, job=job.id, log=log) as step:
        made = fake_hip.build_fake_hip(
            builder, checkout=context.checkout, store=context.store, log=log, platform=WINDOWS,
            cache=context.cache,
        )  # fmt: skip
        return told(step, made)


def _emulated(job: Job) -> tuple[str, ...]:
    """The archs whose emulated suite runs."""
    full = chosen_tier() == NIGHTLY_TIER
    return wine.archs_under_wine(job.archs, full=full) if job.for_windows else job.archs


def _emulate(
    file: Path,
    job: Job,
    context: RunContext,
    tester: Artifact,
    runtime: Artifact,
    code: Artifact,
    progress: Progress,
) -> Mapping[str, Artifact]:
    """The result of each arch's emulated suite; a step each, while several run side by side.

    A failure ends the run after the suites that run already, whose results are kept.
    """
    archs = _emulated(job)
    workers = side_by_side(len(archs), context.jobs, usable_memory())
    logs = {arch: context.log(f"emulate-{job.id}-{arch}") for arch in archs}
    where = f" {UNDER_WINE}" if job.for_windows else ""

    def one(arch: str) -> tuple[Artifact, float]:
        kernels, begin = planned_kernels(context.checkout, [arch])[arch], time.monotonic()
        made = emulated.run_emulated(
            subject_of(file, arch), kernels, image=tester, fake_hip=runtime, disassembly=code,
            checkout=context.checkout, store=context.store, jobs=max(1, context.jobs // workers),
            log=logs[arch], tier=chosen_tier(), under_wine=job.for_windows,
        )  # fmt: skip
        return made, time.monotonic() - begin

    def show(arch: str) -> Artifact:
        with progress.step(f"emulate {arch}{where}", job=job.id, log=logs[arch]) as step:
            made, seconds = running[arch].result()
            cost = None if made.reused else suite_cost(made.path)
            step.took(seconds, beside=workers, cpu_seconds=cost)
            return told(step, made)

    running: dict[str, Future[tuple[Artifact, float]]] = {}
    try:
        with threads(workers) as pool:
            running |= {arch: pool.submit(one, arch) for arch in archs}
            return {arch: show(arch) for arch in archs}
    except WheelBuilderError:
        # Those that ended well meanwhile are not to be missed in what is told of the run.
        for arch in archs:
            if _ended_well(running[arch]) and f"emulate {arch}{where}" not in progress.passed(job.id):
                show(arch)
        raise


def _ended_well(future: Future[Any]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def side_by_side(archs: int, jobs: int, memory_bytes: int) -> int:
    """How many archs' suites run at a time: as many as there are cores and memory for, one at least."""
    return max(1, min(archs, jobs, memory_bytes // SUITE_BYTES))
