"""The main job: every stage for every job of a plan, from nothing to a wheel installed by pip.

    image -> device code per arch -> wheel (repaired) -> audit -> verify -> publish -> first use

This module passes the results between stages and shows each stage as a step. The stages do the work.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from wheel_builder.audit import stage as audit
from wheel_builder.audit.stage import AuditReport
from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import WheelBuilderError, WheelError
from wheel_builder.base.store import Artifact
from wheel_builder.base.words import shown
from wheel_builder.build import device_code, runtime_image, wheel
from wheel_builder.build.source import read_source
from wheel_builder.build.zstd import fetch_zstd
from wheel_builder.index import first_use, local, publish
from wheel_builder.matrix.catalogue import Catalogue
from wheel_builder.matrix.model import PROJECT, Job, Package, Plan, platform_of
from wheel_builder.matrix.plan import jobs_to_build
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.images import begin, builder_image, hip_image, testers
from wheel_builder.pipeline.progress import Progress
from wheel_builder.pipeline.progress import Step as Shown
from wheel_builder.pipeline.shim import Wheels, finish_shims
from wheel_builder.pipeline.step_costs import RELEASE, STEP_COSTS, write_section
from wheel_builder.pipeline.steps import Part, Step, Steps
from wheel_builder.pipeline.verification import (
    Candidate,
    demand_of,
    expectation,
    verify_one,
)
from wheel_builder.provenance.attest import finished_at, write_provenance
from wheel_builder.provenance.provenance import SOURCE, Provenance, make_provenance, run_details
from wheel_builder.provenance.records import require_attachments, write_record


@dataclass(frozen=True)
class Released:
    """One published wheel and its measurements. ``cpu_seconds`` is the compilers', per arch.

    ``cache`` are the hits and misses of ccache in this run, (0, 0) if nothing was compiled. ``dirty``: the
    wheel is from a checkout with changes, and only the local index accepts it. ``replaced``: that index had
    another wheel of its name.
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


@dataclass(frozen=True)
class Attempt:
    """The progress of one job. A field is set after its stage has passed. ``failure`` stopped the job."""

    job: Job
    wheel: Artifact | None = None
    audited: bool = False
    record: Mapping[str, Any] | None = None
    published: Path | None = None
    released: Released | None = None
    failure: WheelBuilderError | None = None
    passed: tuple[str, ...] = ()  # the names of its successful steps


@dataclass(frozen=True)
class Building:
    """The steps of a job up to the audit. ``part`` holds all steps of the job.

    ``runtimes`` are images of ROCm versions without a job. The wheel is loaded under their runtimes.
    """

    job: Job
    part: Part
    builder: Step[Artifact]
    codes: Sequence[Step[Artifact]]
    wheel: Step[Artifact]
    audit: Step[AuditReport]
    runtimes: Mapping[Job, Step[Artifact]]

    def file(self) -> Path:
        return self.wheel.result.path / str(self.wheel.result.facts["wheel"])


# Plans distributions of candidates for a job's finished wheels, in the given folder.
Distributions = Callable[[Steps, Wheels, Job, Step[Artifact], Path], list[Step[Path]]]


def no_candidates(*_: object) -> list[Step[Path]]:
    """A release without distributions of candidates."""
    return []


@dataclass(frozen=True)
class Finishing:
    """The steps of a job from the audit on."""

    record: Step[Artifact]
    published: Step[tuple[publish.Published, Provenance]]
    released: Step[Released]


@dataclass(frozen=True)
class Release:
    """The steps of a release, and of each job."""

    steps: Steps
    jobs: Sequence[tuple[Building, Finishing]]

    def run(self, *, plain: bool | None = None) -> tuple[Attempt, ...]:
        """Run all. The other jobs are published even if one fails."""
        context = self.steps.context
        local.refuse_public(context.index, "nothing was built")
        with self.steps.progress(plain) as progress, costs_kept(progress, context):
            self.steps.run_shown(progress)
            print(progress.summary(), file=sys.stderr)  # noqa: T201  the progress' own last line
        return tuple(_attempt(*steps, progress.passed(steps[0].job.id)) for steps in self.jobs)


def _attempt(building: Building, finishing: Finishing, passed: tuple[str, ...]) -> Attempt:
    record, published = finishing.record.made, finishing.published.made
    return Attempt(
        job=building.job,
        wheel=building.wheel.made,
        audited=building.audit.made is not None,
        record=record.facts if record else None,
        published=published[0].simple if published else None,
        released=finishing.released.made,
        failure=building.part.failure,
        passed=passed,
    )


def release(
    plan: Plan, context: RunContext, catalogue: Catalogue, candidates: Distributions = no_candidates
) -> Release:
    """Plan all jobs: every wheel is built before the first is verified, because each is loaded under every
    runtime, and candidates belong to the wheels of all platforms."""
    steps, jobs = begin(context, plan.package), jobs_to_build(plan)
    images_of_tests = testers(steps, jobs)
    building = [_build(steps, job, plan) for job in jobs]
    images = {one.job: one.builder for one in building if not one.job.for_windows}
    finishing = [
        _finish(
            steps.of(one.part), one, images_of_tests[one.job.platform], images, catalogue,
            partial(candidates, steps.of(one.part), partial(_twins, one, building)),
        )
        for one in building
    ]  # fmt: skip
    return Release(steps, list(zip(building, finishing, strict=True)))


def _twins(one: Building, building: Sequence[Building]) -> list[Path]:
    """The wheels of a version, for all platforms: those that were built."""
    mine = (each for each in building if each.job.name == one.job.name)
    return [each.file() for each in mine if each.wheel.made]


@contextmanager
def costs_kept(progress: Progress, context: RunContext) -> Iterator[None]:
    """Write the costs of a release's steps at its end, even after a failure."""
    try:
        yield
    finally:
        write_section(context.build / STEP_COSTS, RELEASE, progress.costs)


def until(stage: str, plan: Plan, context: RunContext) -> tuple[Steps, list[Step[Artifact]]]:
    """Plan all jobs up to ``stage``, "image", "device-code" or "wheel": all steps, and the stage's."""
    steps = begin(context, plan.package)
    made: list[Step[Artifact]] = []
    for job in jobs_to_build(plan):
        builder = builder_image(steps, job)
        codes = compile_device_code(steps, job, builder) if stage != "image" else [builder]
        made += [build_wheel(steps, job, builder, codes, stated=True)] if stage == "wheel" else codes
    return steps, made


def runtime_images(
    jobs: Sequence[Job],
    wheels: Mapping[str, Path],
    package: Package,
    context: RunContext,
    *,
    slim: bool = False,
    for_gpu: bool = False,
) -> tuple[Steps, list[Step[Artifact]]]:
    """Plan the runtime image of each job: all steps, and the images' steps. ``wheels`` are by job."""
    steps = begin(context, package)

    def work(job: Job, shown: Shown) -> Artifact:
        return runtime_image.build_runtime_image(
            job, wheels[job.id], context.store, package=package, checkout=context.checkout,
            logs=context.logs, slim=slim, for_gpu=for_gpu, host=context.host,
            torch_index=context.torch_index, tell=shown.note,
        )  # fmt: skip

    kind = "-slim" if slim else ""
    return steps, [
        steps.add(
            "runtime image", partial(work, job), job=job.id, weight=90,
            log=f"image-runtime-{job.rocm.version}{kind}",
        )
        for job in jobs
    ]  # fmt: skip


def newest_wheel(job: Job, dist: Path) -> Path:
    """The job's newest finished wheel. Raises ``WheelError`` if there is none."""
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


def compile_device_code(steps: Steps, job: Job, builder: Step[Artifact]) -> list[Step[Artifact]]:
    """Compile the job's device code, one result for each arch."""
    context = steps.context

    def work(arch: str, shown: Shown) -> Artifact:
        return device_code.compile_arch(
            arch, image=builder.result, checkout=context.checkout, store=context.store, jobs=context.jobs,
            log=shown.own_log, cache=context.cache,
        )  # fmt: skip

    return [
        steps.add(
            f"device code {arch}", partial(work, arch), job=job.id, weight=20,
            log=f"device-code-{job.id}-{arch}",
        )
        for arch in job.archs
    ]  # fmt: skip


def build_wheel(
    steps: Steps, job: Job, builder: Step[Artifact], codes: Sequence[Step[Artifact]], *, stated: bool = False
) -> Step[Artifact]:
    """Build and repair the job's wheel. ``stated`` writes its statement next to it."""
    context = steps.context

    def work(shown: Shown) -> Artifact:
        compiled = [code.result for code in codes]
        zstd = fetch_zstd(context.checkout, context.store, log=shown.own_log)
        made = wheel.build_wheel(
            job, steps.package, image=builder.result, device_code=compiled, zstd=zstd.path,
            checkout=context.checkout, store=context.store, log=shown.own_log, cache=context.cache,
        )  # fmt: skip
        if stated:
            provenance = provenance_of(job, steps.package, builder.result, compiled, made, context)
            write_provenance(made.path / provenance.wheel, provenance)
        return made

    return steps.add("wheel and repair", work, job=job.id, weight=25, log=f"wheel-{job.id}")


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


def _build(steps: Steps, job: Job, plan: Plan) -> Building:
    part = Part()
    steps = steps.of(part)
    builder = builder_image(steps, job)
    codes = compile_device_code(steps, job, builder)
    built = build_wheel(steps, job, builder, codes)

    def audited(_: Shown) -> AuditReport:
        file = built.result.path / str(built.result.facts["wheel"])
        return audit.audit_wheel(file, expectation(job, plan.package, steps.context.checkout))

    audit_step = steps.add("audit", audited, job=job.id)
    runtimes = plan.runtimes if job.under_every_runtime else ()
    loaded_under = {other: hip_image(steps, other) for other in runtimes}
    return Building(job, part, builder, codes, built, audit_step, loaded_under)


def _finish(
    steps: Steps,
    one: Building,
    tester: Step[Artifact],
    images: Mapping[Job, Step[Artifact]],
    catalogue: Catalogue,
    candidates: Callable[[Job, Step[Artifact], Path], list[Step[Path]]],
) -> Finishing:
    """Verify, publish and install the wheel of a job."""
    job, context = one.job, steps.context
    others = {other: image for other, image in {**images, **one.runtimes}.items() if other != job}
    record = verify_one(steps, Candidate(one.file, job, one.builder, tester), others=others)
    # Pure Python: tested together with a wheel for Linux.
    shims: list[Step[Path]] = []
    if not job.for_windows:
        shims = finish_shims(steps, lambda: [one.file()], job, one.builder, tester, context.dist)
        shims += candidates(job, one.builder, context.dist)

    def published(shown: Shown) -> tuple[publish.Published, Provenance]:
        codes = [code.result for code in one.codes]
        statement = provenance_of(job, steps.package, one.builder.result, codes, one.wheel.result, context)
        files = [one.file(), *(shim.result for shim in shims)]
        found = publish_wheel(files, record.result, statement, job, context, catalogue)
        if not found.added:
            shown.skipped("the index has this file")
        return found, statement

    publication = steps.add("publish", published, job=job.id)
    work = partial(_install, one, publication, record, tester, context)
    released = steps.add("install from the index", work, job=job.id, weight=10, log=f"install-{job.id}")
    return Finishing(record, publication, released)


def _install(
    one: Building,
    publication: Step[tuple[publish.Published, Provenance]],
    record: Step[Artifact],
    tester: Step[Artifact],
    context: RunContext,
    shown: Shown,
) -> Released:
    (published, provenance), built = publication.result, one.wheel.result
    codes, name = [code.result for code in one.codes], one.file().name
    requirement = f"flash-attn-rocm=={name.split('-')[1]}"
    used = first_use.install_and_call(
        requirement, index=context.index, simple=published.simple, image=tester.result,
        checkout=context.checkout, log=shown.own_log, under_wine=one.job.for_windows,
    )  # fmt: skip
    caches = [code.facts["cache"] for code in codes if not code.reused and "cache" in code.facts]
    return Released(
        job=one.job,
        wheel=context.dist / name,
        bytes=built.facts["bytes"],
        sha256=built.facts["sha256"],
        cpu_seconds={str(code.facts["arch"]): code.facts["cpu_seconds"] for code in codes},
        cache=(sum(found["hits"] for found in caches), sum(found["misses"] for found in caches)),
        index_url=published.simple.absolute().as_uri(),
        requirement=requirement,
        first_use=used,
        record=record.result.facts,
        dirty=bool(provenance.dependency(SOURCE).annotations.dirty),
        replaced=name in published.replaced,
    )


def publish_wheel(
    files: Sequence[Path],
    record: Artifact,
    provenance: Provenance,
    job: Job,
    context: RunContext,
    catalogue: Catalogue,
) -> publish.Published:
    """Put the first of ``files``, the job's wheel, into ``dist`` with record and statement. Publish all."""
    file, *shims = files
    finished = context.dist / file.name
    ensure(finished, file.read_bytes())
    write_record(finished, record.facts)
    write_provenance(finished, provenance)
    require_attachments({finished: demand_of(job, record.facts["serves"])})
    return publish.publish(
        [finished, *shims], context.index, job.name, catalogue=catalogue, now=datetime.now(UTC),
        to_others=False,
    )  # fmt: skip
