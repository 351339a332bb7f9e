"""The main job: every stage for every job of a plan, from nothing to a wheel that pip installed.

    image -> device code per arch -> wheel (repaired) -> audit -> verify -> publish -> first use

This module hands the results of one stage to the next and shows each as a step; the stages do the work.
"""

import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from wheel_builder.audit_rules import Expectation
from wheel_builder.docker import remove_orphans
from wheel_builder.emulator.binding import Core
from wheel_builder.emulator.command import Workshop
from wheel_builder.emulator.disassembly import ImageLlvm
from wheel_builder.engine import ensure_engine
from wheel_builder.errors import WheelError
from wheel_builder.hostenv import HostSettings
from wheel_builder.model import Job, Matrix, Package, Plan, Selection
from wheel_builder.plan import jobs_to_build
from wheel_builder.plan import plan as make_plan
from wheel_builder.progress import Planned, Progress, Step
from wheel_builder.records import require_records, write_record
from wheel_builder.stages import (
    audit,
    device_code,
    emulated,
    first_use,
    image,
    publish,
    runtime_image,
    standin,
    static,
    verify,
    wheel,
)
from wheel_builder.stages.audit import AuditReport
from wheel_builder.standin.container import LIBRARY
from wheel_builder.store import Artifact, Store
from wheel_builder.support_table import planned_kernels
from wheel_builder.words import shown

ENGINE = Planned("container engine", weight=15)
VERIFY_IMAGE = Planned("verify image", weight=60)


@dataclass(frozen=True)
class Workplace:
    """Where a run reads and writes, and how: stages' results in ``build``, finished wheels in ``dist``."""

    checkout: Path
    build: Path
    dist: Path
    index: Path
    jobs: int
    install_engine: bool = False
    torch_index: str = ""
    host: HostSettings | None = None

    @property
    def store(self) -> Store:
        return Store(self.build)

    def log(self, name: str) -> Path:
        return self.build / "logs" / f"{name}.log"


@dataclass(frozen=True)
class Released:
    """One published wheel and what was measured on the way; ``cpu_seconds`` is the compilers', per arch."""

    job: Job
    wheel: Path
    bytes: int
    sha256: str
    cpu_seconds: Mapping[str, float]
    index_url: str
    requirement: str
    first_use: Mapping[str, Any]
    record: Mapping[str, Any]

    @property
    def install_line(self) -> str:
        return f"pip install {self.requirement} --index-url {self.index_url}"


def release(plan: Plan, place: Workplace, *, plain: bool | None = None) -> tuple[Released, ...]:
    """Run all jobs of the plan, one after another.  Raises the error of the first stage that fails."""
    jobs = jobs_to_build(plan)
    with progress_of(planned(jobs), place, plain) as progress:
        start_engine(place, progress)
        tester = verify_image(plan.package, place, progress)
        released = tuple(_release_job(job, plan.package, place, tester, progress) for job in jobs)
        print(progress.summary(), file=sys.stderr)  # noqa: T201  the progress' own last line
    return released


def run_until(stage: str, plan: Plan, place: Workplace, *, plain: bool | None = None) -> list[Path]:
    """Run all jobs of the plan up to ``stage`` ("image", "device-code" or "wheel"); the results' folders."""
    jobs = jobs_to_build(plan)
    build_steps = [step for job in jobs for step in _steps_until(stage, job)]
    results: list[Path] = []
    with progress_of([ENGINE, *build_steps], place, plain) as progress:
        start_engine(place, progress)
        for job in jobs:
            builder = builder_image(job, plan.package, place, progress)
            made = [builder]
            if stage != "image":
                made = list(compile_device_code(job, builder, place, progress))
            if stage == "wheel":
                made = [build_wheel(job, plan.package, builder, made, place, progress)]
            results += [artifact.path for artifact in made]
    return results


def audit_file(file: Path, matrix: Matrix, checkout: Path) -> AuditReport:
    """Audit a finished wheel of the checkout's matrix; raises ``AuditError``."""
    return audit.audit_wheel(file, expectation(job_of(file, matrix), matrix.package, checkout))


def verify_files(
    files: Sequence[Path],
    matrix: Matrix,
    place: Workplace,
    *,
    update: bool = False,
    plain: bool | None = None,
) -> list[Path]:
    """Audit and verify finished wheels; the paths of their records.  Raises the first failure.

    ``update`` puts what the wheels' kernels take into the golden file first.
    """
    jobs = [job_of(file, matrix) for file in files]
    records = []
    with progress_of(planned_verification(jobs), place, plain) as progress:
        start_engine(place, progress)
        tester = verify_image(matrix.package, place, progress)
        for file, job in zip(files, jobs, strict=True):
            audit.audit_wheel(file, expectation(job, matrix.package, place.checkout))
            builder = builder_image(job, matrix.package, place, progress)
            record = _verify(file, job, place, builder, tester, progress, update=update)
            records.append(write_record(file, record.facts))
    return records


def publish_files(files: Sequence[Path], matrix: Matrix, index: Path, checkout: Path) -> list[Path]:
    """Audit finished wheels and ask for their records before the first is published; their indexes."""
    jobs = [job_of(file, matrix) for file in files]
    for file, job in zip(files, jobs, strict=True):
        audit.audit_wheel(file, expectation(job, matrix.package, checkout))
    require_records({file: job.archs for file, job in zip(files, jobs, strict=True)})
    now = datetime.now(UTC)
    return [
        publish.publish([file], index, job.rocm.version, now=now).simple
        for file, job in zip(files, jobs, strict=True)
    ]


def runtime_images(plan: Plan, place: Workplace, *, plain: bool | None = None) -> list[str]:
    """The runtime image of each job, from its finished wheel in ``dist``; the names to run."""
    jobs = jobs_to_build(plan)
    wheels = {job.id: newest_wheel(job, place.dist) for job in jobs}
    steps = [Planned("runtime image", job.id, weight=90) for job in jobs]
    refs = []
    with progress_of([ENGINE, *steps], place, plain) as progress:
        start_engine(place, progress)
        for job in jobs:
            log = place.log(f"image-runtime-{job.id}")
            with progress.step("runtime image", job=job.id, log=log) as step:
                made = runtime_image.build_runtime_image(
                    job, wheels[job.id], place.store, package=plan.package, logs=log.parent,
                    host=place.host, torch_index=place.torch_index,
                )  # fmt: skip
                refs.append(str(_told(step, made).facts["ref"]))
    return refs


def emulator_workshop(
    source: Path, matrix: Matrix, place: Workplace, *, plain: bool | None = None
) -> Workshop:
    """What ``emulate`` needs for a wheel's kernels, or for a code object with the default ROCm version."""
    job = (
        job_of(source, matrix)
        if source.suffix == ".whl"
        else jobs_to_build(make_plan(matrix, Selection()))[0]
    )
    with progress_of([ENGINE, builder_step(job), emulator_step(job)], place, plain) as progress:
        start_engine(place, progress)
        builder = builder_image(job, matrix.package, place, progress)
        emulator = build_emulator(job, builder, place, progress)
    return Workshop(
        Core(emulator.path / LIBRARY),
        place.store,
        llvm_of(job, builder),
        place.checkout / "kernels" / "include",
        place.log("").parent,
    )


def llvm_of(job: Job, builder: Artifact) -> ImageLlvm:
    """The LLVM tools of the job's builder image."""
    return ImageLlvm(str(builder.facts["ref"]), str(builder.facts["image_id"]), job.rocm.llvm)


def newest_wheel(job: Job, dist: Path) -> Path:
    """The job's newest finished wheel; raises ``WheelError`` when there is none."""
    wheels = sorted(dist.glob(f"*+{job.id}-*.whl"), key=lambda file: file.stat().st_mtime)
    if not wheels:
        message = f"there is no finished wheel for {job.id} in {shown(dist)}"
        raise WheelError(message, advice=f"make it first: scripts/release --rocm {job.rocm.version}")
    return wheels[-1]


def job_of(file: Path, matrix: Matrix) -> Job:
    """The job that a finished wheel belongs to, by the local label of its version: all archs of its ROCm."""
    try:
        label = str(parse_wheel_filename(file.name)[1].local)
    except InvalidWheelFilename as error:
        message = f"{file.name} is not a wheel's file name"
        raise WheelError(message, advice="name a .whl file") from error
    selection = Selection(rocm=(label.removeprefix("rocm"),))
    return jobs_to_build(make_plan(matrix, selection))[0]


def progress_of(steps: Sequence[Planned], place: Workplace, plain: bool | None) -> Progress:  # noqa: FBT001
    return Progress(steps, sys.stderr, place.build / "durations.json", plain=plain)


def planned(jobs: Sequence[Job]) -> list[Planned]:
    """The steps of ``release`` in their order; weights are rough seconds on two cores."""
    return [ENGINE, VERIFY_IMAGE, *(step for job in jobs for step in _planned_job(job))]


def planned_verification(jobs: Sequence[Job]) -> list[Planned]:
    """The steps of ``verify_files`` in their order, for wheels of these jobs."""
    steps = (step for job in jobs for step in (builder_step(job), *verify_steps(job)))
    return [ENGINE, VERIFY_IMAGE, *steps]


def _steps_until(stage: str, job: Job) -> Iterator[Planned]:
    yield builder_step(job)
    if stage != "image":
        yield from (Planned(f"device code {arch}", job.id, weight=20) for arch in job.archs)
    if stage == "wheel":
        yield Planned("wheel and repair", job.id, weight=25)


def builder_step(job: Job) -> Planned:
    return Planned("builder image", job.id, weight=200)


def emulator_step(job: Job) -> Planned:
    return Planned("emulator", job.id, weight=100)


def verify_steps(job: Job) -> Iterator[Planned]:
    """The steps of verifying one of the job's wheels."""
    yield emulator_step(job)
    yield Planned("static checks", job.id, weight=20)
    yield from (Planned(f"emulate {arch}", job.id, weight=60) for arch in job.archs)
    yield Planned("verify", job.id, weight=90)


def _planned_job(job: Job) -> Iterator[Planned]:
    yield from _steps_until("wheel", job)
    yield Planned("audit", job.id)
    yield from verify_steps(job)
    yield Planned("publish", job.id)
    yield Planned("install from the index", job.id, weight=10)


def start_engine(place: Workplace, progress: Progress) -> None:
    """Make sure that a container engine answers, and clear away what a killed run left in it."""
    log = place.log("engine")
    with progress.step("container engine", log=log):
        ensure_engine(install=place.install_engine, log=log)
        remove_orphans()


def verify_image(package: Package, place: Workplace, progress: Progress) -> Artifact:
    """The image that wheels are verified in."""
    log = place.log("image-verify")
    with progress.step("verify image", log=log) as step:
        made = image.build_verify_image(
            package, place.store, logs=log.parent, host=place.host, torch_index=place.torch_index
        )
        return _told(step, made)


def builder_image(job: Job, package: Package, place: Workplace, progress: Progress) -> Artifact:
    """The image that the job's code and wheel are built in."""
    log = place.log(f"image-{job.id}")
    with progress.step("builder image", job=job.id, log=log) as step:
        made = image.build_image(
            job, package, place.store, logs=log.parent, host=place.host, torch_index=place.torch_index
        )
        return _told(step, made)


def compile_device_code(
    job: Job, builder: Artifact, place: Workplace, progress: Progress
) -> tuple[Artifact, ...]:
    """The job's device code, one result for each arch."""
    codes = []
    for arch in job.archs:
        log = place.log(f"device-code-{job.id}-{arch}")
        with progress.step(f"device code {arch}", job=job.id, log=log) as step:
            code = device_code.compile_arch(
                arch, image=builder, checkout=place.checkout, store=place.store, jobs=place.jobs, log=log
            )
            codes.append(_told(step, code))
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
        )
        return _told(step, made)


def _release_job(
    job: Job, package: Package, place: Workplace, tester: Artifact, progress: Progress
) -> Released:
    builder = builder_image(job, package, place, progress)
    codes = compile_device_code(job, builder, place, progress)
    built = build_wheel(job, package, builder, codes, place, progress)
    file = built.path / str(built.facts["wheel"])
    with progress.step("audit", job=job.id):
        audit.audit_wheel(file, expectation(job, package, place.checkout))
    record = _verify(file, job, place, builder, tester, progress)
    simple = _publish(file, record, job, place, progress)
    version = file.name.split("-")[1]
    requirement = f"flash-attn-rocm=={version}"
    log = place.log(f"install-{job.id}")
    with progress.step("install from the index", job=job.id, log=log):
        used = first_use.install_and_call(
            requirement, index=place.index, simple=simple, image=tester, checkout=place.checkout, log=log
        )
    return Released(
        job=job,
        wheel=place.dist / file.name,
        bytes=built.facts["bytes"],
        sha256=built.facts["sha256"],
        cpu_seconds={str(code.facts["arch"]): code.facts["cpu_seconds"] for code in codes},
        index_url=simple.absolute().as_uri(),
        requirement=requirement,
        first_use=used,
        record=record.facts,
    )


def _verify(
    file: Path,
    job: Job,
    place: Workplace,
    builder: Artifact,
    tester: Artifact,
    progress: Progress,
    *,
    update: bool = False,
) -> Artifact:
    runtime = build_emulator(job, builder, place, progress)
    checked, code = _static_checks(file, job, place, builder, runtime, progress, update=update)
    shown = {arch: _emulate(file, arch, job, place, tester, runtime, code, progress) for arch in job.archs}
    log = place.log(f"verify-{job.id}")
    with progress.step("verify", job=job.id, log=log) as step:
        record = verify.verify_wheel(
            file, shown, static=checked, image=tester, standin=runtime, disassembly=code,
            checkout=place.checkout, store=place.store, log=log,
        )  # fmt: skip
        return _told(step, record)


def _static_checks(
    file: Path,
    job: Job,
    place: Workplace,
    builder: Artifact,
    emulator: Artifact,
    progress: Progress,
    *,
    update: bool,
) -> tuple[Artifact, Artifact]:
    """What the checks found, and the wheel's disassembly."""
    log = place.log(f"static-checks-{job.id}")
    with progress.step("static checks", job=job.id, log=log) as step:
        checked = static.check_static(
            file, builder, checkout=place.checkout, store=place.store, log=log, update=update
        )
        code = static.disassemble_wheel(file, builder, store=place.store, log=log)
        static.refuse_unimplemented(file.name, Core(emulator.path / LIBRARY), code)
        return _told(step, checked), code


def build_emulator(job: Job, builder: Artifact, place: Workplace, progress: Progress) -> Artifact:
    """The emulator with its stand-in HIP runtime; its file is ``LIBRARY``."""
    log = place.log(f"emulator-{job.id}")
    with progress.step("emulator", job=job.id, log=log) as step:
        made = standin.build_standin(builder, checkout=place.checkout, store=place.store, log=log)
        return _told(step, made)


def _emulate(
    file: Path,
    arch: str,
    job: Job,
    place: Workplace,
    tester: Artifact,
    runtime: Artifact,
    code: Artifact,
    progress: Progress,
) -> Artifact:
    log = place.log(f"emulate-{job.id}-{arch}")
    kernels = planned_kernels(place.checkout, [arch])[arch]
    with progress.step(f"emulate {arch}", job=job.id, log=log) as step:
        shown = emulated.run_emulated(
            file, arch, kernels, image=tester, standin=runtime, disassembly=code, checkout=place.checkout,
            store=place.store, jobs=place.jobs, log=log,
        )  # fmt: skip
        return _told(step, shown)


def _publish(file: Path, record: Artifact, job: Job, place: Workplace, progress: Progress) -> Path:
    with progress.step("publish", job=job.id) as step:
        place.dist.mkdir(parents=True, exist_ok=True)
        finished = place.dist / file.name
        shutil.copy2(file, finished)
        write_record(finished, record.facts)
        require_records({finished: job.archs})
        published = publish.publish([finished], place.index, job.rocm.version, now=datetime.now(UTC))
        if not published.added:
            step.skipped("the index has this file")
    return published.simple


def expectation(job: Job, package: Package, checkout: Path) -> Expectation:
    """What the audit holds the job's wheel to: the plan and the support table."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    return Expectation(
        kernels=planned_kernels(checkout, job.archs),
        rocm=job.rocm.version,
        base_version=project["tool"]["flash-attn-rocm"]["version"],
        platform_tag=package.platform_tag,
        requires_python=project["project"]["requires-python"],
        torch_floor=package.torch_floor,
        max_mib=package.max_wheel_mib,
    )


def _told(step: Step, made: Artifact) -> Artifact:
    if made.reused:
        step.skipped("unchanged")
    return made
