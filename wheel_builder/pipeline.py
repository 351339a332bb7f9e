"""The main job: every stage for every job of a plan, from nothing to a wheel that pip installed.

    image -> device code per arch -> wheel (repaired) -> audit -> verify -> publish -> first use

This module hands the results of one stage to the next and shows each as a step; the stages do the work.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wheel_builder.attest import finished_at, write_provenance
from wheel_builder.catalogue import Catalogue, catalogue_of
from wheel_builder.durable import ensure
from wheel_builder.errors import FilesError, WheelBuilderError, WheelError
from wheel_builder.model import Job, Matrix, Package, Plan
from wheel_builder.plan import jobs_to_build
from wheel_builder.progress import Planned, Progress
from wheel_builder.provenance import Provenance, make_provenance, run_details
from wheel_builder.records import require_attachments, write_record
from wheel_builder.source import read_source
from wheel_builder.stages import (
    audit,
    device_code,
    first_use,
    publish,
    runtime_image,
    wheel,
)
from wheel_builder.store import Artifact
from wheel_builder.verification import expectation, job_of, verify_one, verify_steps
from wheel_builder.words import shown
from wheel_builder.workplace import (
    ENGINE,
    VERIFY_IMAGE,
    Workplace,
    builder_image,
    builder_step,
    progress_of,
    start_engine,
    told,
    verify_image,
)


@dataclass(frozen=True)
class Released:
    """One published wheel and what was measured on the way; ``cpu_seconds`` is the compilers', per arch.

    ``cache`` are the hits and misses of ccache in this run, (0, 0) when nothing was compiled.
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

    @property
    def install_line(self) -> str:
        return f"pip install {self.requirement} --index-url {self.index_url}"


@dataclass
class Attempt:
    """How far one job came: each is there when its stage was passed; ``failure`` is what stopped it."""

    job: Job
    builder: Artifact | None = None
    codes: tuple[Artifact, ...] = ()
    wheel: Artifact | None = None
    audited: bool = False
    record: Mapping[str, Any] | None = None
    published: Path | None = None
    released: Released | None = None
    failure: WheelBuilderError | None = None

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Keep a failure for later: it ends this job and no other."""
        try:
            yield
        except WheelBuilderError as error:
            self.failure = error
        except BrokenPipeError:
            # Nobody reads what the run says any more: that ends all of it.
            raise
        except OSError as error:
            self.failure = FilesError.of(error)


def release(
    plan: Plan, place: Workplace, *, catalogue: Catalogue, plain: bool | None = None
) -> tuple[Attempt, ...]:
    """Run all jobs of the plan; one that fails does not keep the others from being published.

    Every wheel is built before the first is verified, so that each can be loaded under every runtime.
    """
    attempts = tuple(Attempt(job) for job in jobs_to_build(plan))
    with progress_of(planned([attempt.job for attempt in attempts]), place, plain) as progress:
        start_engine(place, progress)
        tester = verify_image(plan.package, place, progress)
        for attempt in attempts:
            with attempt.going_on():
                _build(attempt, plan.package, place, progress)
        images = {one.job: one.builder for one in attempts if one.builder}
        for attempt in attempts:
            with attempt.going_on():
                _finish(attempt, plan.package, place, tester, images, catalogue, progress)
        print(progress.summary(), file=sys.stderr)  # noqa: T201  the progress' own last line
    return attempts


def run_until(stage: str, plan: Plan, place: Workplace, *, plain: bool | None = None) -> list[Path]:
    """Run all jobs of the plan up to ``stage`` ("image", "device-code" or "wheel"); the results' folders."""
    jobs = jobs_to_build(plan)
    results: list[Path] = []
    with progress_of(planned_until(stage, jobs), place, plain) as progress:
        start_engine(place, progress)
        for job in jobs:
            builder = builder_image(job, plan.package, place, progress)
            made = [builder]
            if stage != "image":
                made = list(compile_device_code(job, builder, place, progress))
            if stage == "wheel":
                codes = made
                made = [build_wheel(job, plan.package, builder, codes, place, progress)]
                provenance = provenance_of(job, plan.package, builder, codes, made[0], place)
                write_provenance(made[0].path / provenance.wheel, provenance)
            results += [artifact.path for artifact in made]
    return results


def publish_files(files: Sequence[Path], matrix: Matrix, index: Path, checkout: Path) -> list[Path]:
    """Audit finished wheels and ask for what lies beside them, then publish all or none; their indexes."""
    jobs = [job_of(file, matrix) for file in files]
    for file, job in zip(files, jobs, strict=True):
        audit.audit_wheel(file, expectation(job, matrix.package, checkout))
    require_attachments({file: job.archs for file, job in zip(files, jobs, strict=True)})
    wheels: dict[str, list[Path]] = {}
    for file, job in zip(files, jobs, strict=True):
        wheels.setdefault(job.rocm.version, []).append(file)
    published = publish.publish_all(wheels, index, catalogue=catalogue_of(matrix), now=datetime.now(UTC))
    return [published[job.rocm.version].simple for job in jobs]


def runtime_images(
    jobs: Sequence[Job],
    package: Package,
    place: Workplace,
    *,
    wheel: Path | None = None,
    slim: bool = False,
    plain: bool | None = None,
) -> list[Artifact]:
    """The runtime image of each job, from ``wheel`` or from the job's newest finished wheel in ``dist``."""
    wheels = {job.id: wheel or newest_wheel(job, place.dist) for job in jobs}
    images = []
    with progress_of(planned_images(jobs), place, plain) as progress:
        start_engine(place, progress)
        for job in jobs:
            log = place.log(f"image-runtime-{job.rocm.version}{'-slim' if slim else ''}")
            with progress.step("runtime image", job=job.id, log=log) as step:
                made = runtime_image.build_runtime_image(
                    job, wheels[job.id], place.store, package=package, checkout=place.checkout,
                    logs=log.parent, slim=slim, host=place.host, torch_index=place.torch_index,
                )  # fmt: skip
                images.append(told(step, made))
    return images


def planned_images(jobs: Sequence[Job]) -> list[Planned]:
    """The steps of ``runtime_images`` in their order."""
    return [ENGINE, *(Planned("runtime image", job.id, weight=90) for job in jobs)]


def newest_wheel(job: Job, dist: Path) -> Path:
    """The job's newest finished wheel; raises ``WheelError`` when there is none."""
    wheels = sorted(dist.glob(f"*+{job.id}-*.whl"), key=lambda file: file.stat().st_mtime)
    if not wheels:
        message = f"there is no finished wheel for {job.id} in {shown(dist)}"
        advice = f"make it first: scripts/release --rocm {job.rocm.version}; or name a published one"
        raise WheelError(message, advice=advice)
    return wheels[-1]


def planned(jobs: Sequence[Job]) -> list[Planned]:
    """The steps of ``release`` in their order; weights are rough seconds on two cores."""
    building = [step for job in jobs for step in (*_steps_until("wheel", job), Planned("audit", job.id))]
    return [ENGINE, VERIFY_IMAGE, *building, *(step for job in jobs for step in _finishing_steps(job))]


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
    yield Planned("publish", job.id)
    yield Planned("install from the index", job.id, weight=10)


def compile_device_code(
    job: Job, builder: Artifact, place: Workplace, progress: Progress
) -> tuple[Artifact, ...]:
    """The job's device code, one result for each arch."""
    codes = []
    for arch in job.archs:
        log = place.log(f"device-code-{job.id}-{arch}")
        with progress.step(f"device code {arch}", job=job.id, log=log) as step:
            code = device_code.compile_arch(
                arch,
                image=builder,
                checkout=place.checkout,
                store=place.store,
                jobs=place.jobs,
                log=log,
                cache=place.cache,
            )
            codes.append(told(step, code))
    return tuple(codes)


def build_wheel(
    job: Job,
    package: Package,
    builder: Artifact,
    codes: Sequence[Artifact],
    place: Workplace,
    progress: Progress,
) -> Artifact:
    """The job's wheel, repaired."""
    log = place.log(f"wheel-{job.id}")
    with progress.step("wheel and repair", job=job.id, log=log) as step:
        made = wheel.build_wheel(
            job,
            package,
            image=builder,
            device_code=codes,
            checkout=place.checkout,
            store=place.store,
            log=log,
            cache=place.cache,
        )
        return told(step, made)


def provenance_of(
    job: Job,
    package: Package,
    builder: Artifact,
    codes: Sequence[Artifact],
    built: Artifact,
    place: Workplace,
) -> Provenance:
    """The statement about a wheel that was built from the checkout as it is now."""
    return make_provenance(
        job,
        package,
        read_source(place.checkout),
        version=wheel.wheel_version(job, place.checkout),
        image=builder,
        device_code=codes,
        wheel=built,
        run=run_details(os.environ, finished_at(built)),
    )


def _build(attempt: Attempt, package: Package, place: Workplace, progress: Progress) -> None:
    job = attempt.job
    attempt.builder = builder_image(job, package, place, progress)
    attempt.codes = compile_device_code(job, attempt.builder, place, progress)
    built = build_wheel(job, package, attempt.builder, attempt.codes, place, progress)
    attempt.wheel = built
    with progress.step("audit", job=job.id):
        audit.audit_wheel(_file(built), expectation(job, package, place.checkout))
    attempt.audited = True


def _finish(
    attempt: Attempt,
    package: Package,
    place: Workplace,
    tester: Artifact,
    images: Mapping[Job, Artifact],
    catalogue: Catalogue,
    progress: Progress,
) -> None:
    """Verify, publish and install the wheel of an attempt that passed the audit."""
    job, builder, built = attempt.job, attempt.builder, attempt.wheel
    if builder is None or built is None or not attempt.audited:
        return
    others = {other: image for other, image in images.items() if other != job}
    record = verify_one(_file(built), job, place, builder, tester, progress, others=others)
    attempt.record = record.facts
    provenance = provenance_of(job, package, builder, attempt.codes, built, place)
    attempt.published = _publish(_file(built), record, provenance, job, place, catalogue, progress)
    attempt.released = _install(attempt, attempt.published, built, record, place, tester, progress)


def _file(built: Artifact) -> Path:
    return built.path / str(built.facts["wheel"])


def _install(
    attempt: Attempt,
    simple: Path,
    built: Artifact,
    record: Artifact,
    place: Workplace,
    tester: Artifact,
    progress: Progress,
) -> Released:
    job, codes, name = attempt.job, attempt.codes, str(built.facts["wheel"])
    requirement = f"flash-attn-rocm=={name.split('-')[1]}"
    log = place.log(f"install-{job.id}")
    with progress.step("install from the index", job=job.id, log=log):
        used = first_use.install_and_call(
            requirement, index=place.index, simple=simple, image=tester, checkout=place.checkout, log=log
        )
    caches = [code.facts["cache"] for code in codes if not code.reused and "cache" in code.facts]
    return Released(
        job=job,
        wheel=place.dist / name,
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
    record: Artifact,
    provenance: Provenance,
    job: Job,
    place: Workplace,
    catalogue: Catalogue,
    progress: Progress,
) -> Path:
    with progress.step("publish", job=job.id) as step:
        finished = place.dist / file.name
        ensure(finished, file.read_bytes())
        write_record(finished, record.facts)
        write_provenance(finished, provenance)
        require_attachments({finished: job.archs})
        published = publish.publish(
            [finished], place.index, job.rocm.version, catalogue=catalogue, now=datetime.now(UTC)
        )
        if not published.added:
            step.skipped("the index has this file")
    return published.simple
