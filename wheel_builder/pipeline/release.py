"""The main job: every stage for every job of a plan, from nothing to a wheel that pip installed.

    image -> device code per arch -> wheel (repaired) -> audit -> verify -> publish -> first use

This module hands the results of one stage to the next and shows each as a step; the stages do the work.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from wheel_builder.audit import stage as audit
from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import PublishError, WheelBuilderError, WheelError
from wheel_builder.base.mend import files_error
from wheel_builder.base.store import Artifact
from wheel_builder.base.words import shown
from wheel_builder.build import device_code, runtime_image, wheel
from wheel_builder.build.shim import NAMES, shim_of
from wheel_builder.build.source import read_source
from wheel_builder.index import first_use, local, publish
from wheel_builder.matrix.catalogue import Catalogue, catalogue_of
from wheel_builder.matrix.hardware import read_reports
from wheel_builder.matrix.model import PROJECT, Job, Matrix, Package, Plan, platform_of
from wheel_builder.matrix.plan import jobs_to_build
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
from wheel_builder.pipeline.shim import audit_shim, finish_shims, shim_steps
from wheel_builder.pipeline.step_costs import RELEASE, STEP_COSTS, write_section
from wheel_builder.pipeline.verification import (
    audit_of_job,
    demand_of,
    expectation,
    job_of,
    verify_one,
    verify_steps,
)
from wheel_builder.provenance.attest import finished_at, require_provenance, write_provenance
from wheel_builder.provenance.provenance import SOURCE, Provenance, make_provenance, run_details
from wheel_builder.provenance.records import Demand, require_attachments, require_served, write_record


@dataclass(frozen=True)
class Released:
    """One published wheel and what was measured on the way; ``cpu_seconds`` is the compilers', per arch.

    ``cache`` are the hits and misses of ccache in this run, (0, 0) when nothing was compiled; ``dirty`` is a
    wheel of a checkout with changes, which only the local index takes; ``replaced`` when that index had
    another of its name.
    """

    job: Job
    wheel: Path
    bytes: int
    sha256: str
    cpu_seconds: Mapping[str, float]
    cache: tuple[int, int]
    index_url: str
    requirement: str
    first_use: Mapping[str, Any]
    record: Mapping[str, Any]
    dirty: bool = False
    replaced: bool = False

    @property
    def install_line(self) -> str:
        return f"pip install {self.requirement} --index-url {self.index_url}"


@dataclass
class Attempt:
    """How far one job got: a field is set once its stage has passed; ``failure`` is what stopped the job.

    ``runtimes`` are images of ROCm versions without a job, under whose runtimes the wheel is loaded.
    """

    job: Job
    builder: Artifact | None = None
    runtimes: dict[Job, Artifact] = field(default_factory=dict)
    codes: tuple[Artifact, ...] = ()
    wheel: Artifact | None = None
    audited: bool = False
    record: Mapping[str, Any] | None = None
    published: Path | None = None
    released: Released | None = None
    failure: WheelBuilderError | None = None
    passed: tuple[str, ...] = ()  # the names of its steps that ended well

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Record a failure, which ends this job and no other."""
        try:
            yield
        except WheelBuilderError as error:
            self.failure = error
        except BrokenPipeError:
            # Nobody reads the output any more, so the whole run ends.
            raise
        except OSError as error:
            self.failure = files_error(error)


def release(
    plan: Plan, context: RunContext, *, catalogue: Catalogue, plain: bool | None = None
) -> tuple[Attempt, ...]:
    """Run all jobs of the plan; a failing job does not keep the others from being published.

    Every wheel is built before the first is verified, because each is loaded under every runtime.
    """
    attempts = tuple(Attempt(job) for job in jobs_to_build(plan))
    local.refuse_public(context.index, "nothing was built")
    steps = planned([attempt.job for attempt in attempts], plan.runtimes)
    with progress_of(steps, context, plain) as progress, costs_kept(progress, context):
        start_engine(context, progress)
        images_of_tests = testers([one.job for one in attempts], plan.package, context, progress)
        for attempt in attempts:
            with attempt.going_on():
                _build(attempt, plan, context, progress)
        images = {one.job: one.builder for one in attempts if one.builder and not one.job.for_windows}
        for attempt in attempts:
            with attempt.going_on():
                tester = images_of_tests[attempt.job.platform]
                _finish(attempt, plan.package, context, tester, images, catalogue, progress)
        for attempt in attempts:
            attempt.passed = progress.passed(attempt.job.id)
        print(progress.summary(), file=sys.stderr)  # noqa: T201  the progress' own last line
    return attempts


@contextmanager
def costs_kept(progress: Progress, context: RunContext) -> Iterator[None]:
    """Write what the steps of a release cost at its end, also when it fails."""
    try:
        yield
    finally:
        write_section(context.build / STEP_COSTS, RELEASE, progress.costs)


def run_until(stage: str, plan: Plan, context: RunContext, *, plain: bool | None = None) -> list[Path]:
    """Run all jobs of the plan up to ``stage`` ("image", "device-code" or "wheel"); the results' folders."""
    jobs = jobs_to_build(plan)
    results: list[Path] = []
    with progress_of(planned_until(stage, jobs), context, plain) as progress:
        start_engine(context, progress)
        for job in jobs:
            builder = builder_image(job, plan.package, context, progress)
            made = [builder]
            if stage != "image":
                made = list(compile_device_code(job, builder, context, progress))
            if stage == "wheel":
                codes = made
                made = [build_wheel(job, plan.package, builder, codes, context, progress)]
                provenance = provenance_of(job, plan.package, builder, codes, made[0], context)
                write_provenance(made[0].path / provenance.wheel, provenance)
            results += [artifact.path for artifact in made]
    return results


def publish_files(
    files: Sequence[Path], matrix: Matrix, index: Path, checkout: Path, *, variants: bool = False
) -> list[Path]:
    """Check finished wheels and the files beside them, then publish all or none; their indexes.

    A wheel of flash-attn or flash-attn-3 goes to each index that one of flash-attn-rocm goes to.  With
    ``variants``, wheels with kernels have variants for installers that choose by GPU.
    """
    shims, kernels = _parted(files)
    if not kernels:
        title = f"nothing was published: a wheel of {' or '.join(sorted(NAMES))} alone belongs to no index"
        problems = [f"{file.name} is for every ROCm version" for file in shims]
        raise PublishError(title, problems, advice="name wheels of flash-attn-rocm with it")
    jobs = _fit_for_others(files, matrix, checkout)
    wheels: dict[str, list[Path]] = {job.name: [*shims] for job in jobs}
    for file, job in zip(kernels, jobs, strict=True):
        wheels[job.name].append(file)
    catalogue = catalogue_of(matrix, read_reports(checkout))
    now = datetime.now(UTC)
    published = publish.publish_all(wheels, index, catalogue=catalogue, now=now, variants=variants)
    return [published[job.name].simple for job in jobs]


def upload_files(files: Sequence[Path], matrix: Matrix, url: str, checkout: Path, *, log: Path) -> None:
    """Check finished wheels as ``publish_files`` does, then upload them to ``url``."""
    _fit_for_others(files, matrix, checkout)
    publish.upload(files, url, log=log)


def _fit_for_others(files: Sequence[Path], matrix: Matrix, checkout: Path) -> list[Job]:
    """Audit wheels, and check each against its record, its statement and its commit.

    The jobs of those with kernels.
    """
    shims, kernels = _parted(files)
    jobs = [job_of(file, matrix) for file in kernels]
    for file, job in zip(kernels, jobs, strict=True):
        audit_of_job(file, job, matrix.package, checkout)
    for file in shims:
        if shim := shim_of(file):
            audit_shim(shim, file, checkout)
    versions = tuple(dict.fromkeys((*(row.version for row in matrix.rocm), *matrix.public.fits)))
    demands = {
        file: replace(demand_of(job, versions), kernels=planned_kernels(checkout, job.archs))
        for file, job in zip(kernels, jobs, strict=True)
    }
    require_attachments(demands | dict.fromkeys(shims, Demand(())))
    public = [file for file, job in zip(kernels, jobs, strict=True) if job.under_every_runtime]
    require_served(public, matrix.public)
    require_provenance(files, checkout)
    return jobs


def _parted(files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Wheels of flash-attn and flash-attn-3, and those of flash-attn-rocm."""
    return [file for file in files if shim_of(file)], [file for file in files if not shim_of(file)]


def runtime_images(
    jobs: Sequence[Job],
    package: Package,
    context: RunContext,
    *,
    wheel: Path | None = None,
    slim: bool = False,
    for_gpu: bool = False,
    plain: bool | None = None,
) -> list[Artifact]:
    """The runtime image of each job, from ``wheel`` or from the job's newest finished wheel in ``dist``."""
    wheels = {job.id: wheel or newest_wheel(job, context.dist) for job in jobs}
    images = []
    with progress_of(planned_images(jobs), context, plain) as progress:
        start_engine(context, progress)
        for job in jobs:
            log = context.log(f"image-runtime-{job.rocm.version}{'-slim' if slim else ''}")
            with progress.step("runtime image", job=job.id, log=log) as step:
                made = runtime_image.build_runtime_image(
                    job, wheels[job.id], context.store, package=package, checkout=context.checkout,
                    logs=log.parent, slim=slim, for_gpu=for_gpu, host=context.host,
                    torch_index=context.torch_index, tell=partial(progress.note, step),
                )  # fmt: skip
                images.append(told(step, made))
    return images


def planned_images(jobs: Sequence[Job]) -> list[Planned]:
    """The steps of ``runtime_images`` in their order."""
    return [ENGINE, *(Planned("runtime image", job.id, weight=90) for job in jobs)]


def newest_wheel(job: Job, dist: Path) -> Path:
    """The job's newest finished wheel; raises ``WheelError`` when there is none."""
    files = dist.glob(f"{PROJECT.replace('-', '_')}-*.whl")
    own = [
        file
        for file in files
        if file.name.split("-")[1].partition("+")[2] == job.label and platform_of(file.name) == job.platform
    ]
    wheels = sorted(own, key=lambda file: file.stat().st_mtime)
    if not wheels:
        message = f"there is no finished wheel for {job.id} in {shown(dist)}"
        advice = f"make it first: scripts/release --rocm {job.name}; or name a published one"
        raise WheelError(message, advice=advice)
    return wheels[-1]


def planned(jobs: Sequence[Job], runtimes: Sequence[Job] = ()) -> list[Planned]:
    """The steps of ``release`` in their order; weights are rough seconds on two cores."""
    building = [
        step
        for job in jobs
        for step in (
            *_steps_until("wheel", job),
            Planned("audit", job.id),
            *map(hip_step, _loaded_under(job, runtimes)),
        )
    ]
    return [ENGINE, *tester_steps(jobs), *building, *(step for job in jobs for step in _finishing_steps(job))]


def planned_until(stage: str, jobs: Sequence[Job]) -> list[Planned]:
    """The steps of ``run_until`` in their order."""
    return [ENGINE, *(step for job in jobs for step in _steps_until(stage, job))]


def _steps_until(stage: str, job: Job) -> Iterator[Planned]:
    yield builder_step(job)
    if stage != "image":
        yield from (Planned(f"device code {arch}", job.id, weight=20) for arch in job.archs)
    if stage == "wheel":
        yield Planned("wheel and repair", job.id, weight=25)


def _finishing_steps(job: Job) -> Iterator[Planned]:
    yield from verify_steps(job)
    if not job.for_windows:
        yield from shim_steps(job)
    yield Planned("publish", job.id)
    yield Planned("install from the index", job.id, weight=10)


def compile_device_code(
    job: Job, builder: Artifact, context: RunContext, progress: Progress
) -> tuple[Artifact, ...]:
    """Compile the job's device code, one result for each arch."""
    codes = []
    for arch in job.archs:
        log = context.log(f"device-code-{job.id}-{arch}")
        with progress.step(f"device code {arch}", job=job.id, log=log) as step:
            code = device_code.compile_arch(
                arch,
                image=builder,
                checkout=context.checkout,
                store=context.store,
                jobs=context.jobs,
                log=log,
                cache=context.cache,
            )
            codes.append(told(step, code))
    return tuple(codes)


def build_wheel(
    job: Job,
    package: Package,
    builder: Artifact,
    codes: Sequence[Artifact],
    context: RunContext,
    progress: Progress,
) -> Artifact:
    """Build and repair the job's wheel."""
    log = context.log(f"wheel-{job.id}")
    with progress.step("wheel and repair", job=job.id, log=log) as step:
        made = wheel.build_wheel(
            job,
            package,
            image=builder,
            device_code=codes,
            checkout=context.checkout,
            store=context.store,
            log=log,
            cache=context.cache,
        )
        return told(step, made)


def provenance_of(
    job: Job,
    package: Package,
    builder: Artifact,
    codes: Sequence[Artifact],
    built: Artifact,
    context: RunContext,
) -> Provenance:
    """The statement about a wheel built from the checkout in its current state."""
    return make_provenance(
        job,
        package,
        read_source(context.checkout, platform=job.platform),
        version=wheel.wheel_version(job, context.checkout),
        image=builder,
        device_code=codes,
        wheel=built,
        run=run_details(os.environ, finished_at(built)),
    )


def _loaded_under(job: Job, runtimes: Sequence[Job]) -> Sequence[Job]:
    """Those of a plan's ``runtimes`` under which the job's wheel is loaded."""
    return runtimes if job.under_every_runtime else ()


def _build(attempt: Attempt, plan: Plan, context: RunContext, progress: Progress) -> None:
    job, package = attempt.job, plan.package
    attempt.builder = builder_image(job, package, context, progress)
    attempt.codes = compile_device_code(job, attempt.builder, context, progress)
    built = build_wheel(job, package, attempt.builder, attempt.codes, context, progress)
    attempt.wheel = built
    with progress.step("audit", job=job.id):
        audit.audit_wheel(_file(built), expectation(job, package, context.checkout))
    attempt.audited = True
    attempt.runtimes = {
        other: hip_image(other, package, context, progress) for other in _loaded_under(job, plan.runtimes)
    }


def _finish(
    attempt: Attempt,
    package: Package,
    context: RunContext,
    tester: Artifact,
    images: dict[Job, Artifact],
    catalogue: Catalogue,
    progress: Progress,
) -> None:
    """Verify, publish and install the wheel of an attempt that passed the audit."""
    job, builder, built = attempt.job, attempt.builder, attempt.wheel
    if builder is None or built is None or not attempt.audited:
        return
    others = {other: image for other, image in (images | attempt.runtimes).items() if other != job}
    record = verify_one(_file(built), job, context, builder, tester, progress, others=others)
    attempt.record = record.facts
    provenance = provenance_of(job, package, builder, attempt.codes, built, context)
    # Pure Python: they are tested beside a wheel for Linux.
    shims = (
        []
        if job.for_windows
        else finish_shims([_file(built)], job, builder, tester, context.dist, context, progress)
    )
    published = _publish(_file(built), shims, record, provenance, job, context, catalogue, progress)
    attempt.published = published.simple
    released = _install(attempt, published.simple, built, record, context, tester, progress)
    attempt.released = replace(
        released,
        dirty=bool(provenance.dependency(SOURCE).annotations.dirty),
        replaced=released.wheel.name in published.replaced,
    )


def _file(built: Artifact) -> Path:
    return built.path / str(built.facts["wheel"])


def _install(
    attempt: Attempt,
    simple: Path,
    built: Artifact,
    record: Artifact,
    context: RunContext,
    tester: Artifact,
    progress: Progress,
) -> Released:
    job, codes, name = attempt.job, attempt.codes, str(built.facts["wheel"])
    requirement = f"flash-attn-rocm=={name.split('-')[1]}"
    log = context.log(f"install-{job.id}")
    with progress.step("install from the index", job=job.id, log=log):
        used = first_use.install_and_call(
            requirement, index=context.index, simple=simple, image=tester, checkout=context.checkout, log=log,
            under_wine=job.for_windows,
        )  # fmt: skip
    caches = [code.facts["cache"] for code in codes if not code.reused and "cache" in code.facts]
    return Released(
        job=job,
        wheel=context.dist / name,
        bytes=built.facts["bytes"],
        sha256=built.facts["sha256"],
        cpu_seconds={str(code.facts["arch"]): code.facts["cpu_seconds"] for code in codes},
        cache=(sum(found["hits"] for found in caches), sum(found["misses"] for found in caches)),
        index_url=simple.absolute().as_uri(),
        requirement=requirement,
        first_use=used,
        record=record.facts,
    )


def _publish(
    file: Path,
    shims: Sequence[Path],
    record: Artifact,
    provenance: Provenance,
    job: Job,
    context: RunContext,
    catalogue: Catalogue,
    progress: Progress,
) -> publish.Published:
    with progress.step("publish", job=job.id) as step:
        finished = context.dist / file.name
        ensure(finished, file.read_bytes())
        write_record(finished, record.facts)
        write_provenance(finished, provenance)
        require_attachments({finished: demand_of(job, record.facts["serves"])})
        published = publish.publish(
            [finished, *shims], context.index, job.name, catalogue=catalogue, now=datetime.now(UTC),
            to_others=False,
        )  # fmt: skip
        if not published.added:
            step.skipped("the index has this file")
    return published
