"""What is shown of a finished wheel before it may be published, each part as a step.

    audit -> emulator -> static checks -> emulated suite per arch -> tests without a GPU and under HIP errors

Results are in the record that lies beside the wheel afterwards.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from wheel_builder.attest import refresh_provenance
from wheel_builder.audit_rules import Expectation
from wheel_builder.emulator.binding import Core
from wheel_builder.emulator.command import Workshop
from wheel_builder.emulator.disassembly import ImageLlvm
from wheel_builder.errors import WheelError
from wheel_builder.model import Job, Matrix, Package, Selection
from wheel_builder.plan import jobs_to_build
from wheel_builder.plan import plan as make_plan
from wheel_builder.progress import Planned, Progress
from wheel_builder.records import refuse_published, write_record
from wheel_builder.stages import (
    audit,
    emulated,
    runtimes,
    standin,
    static,
    verify,
)
from wheel_builder.stages.audit import AuditReport
from wheel_builder.standin.container import LIBRARY
from wheel_builder.store import Artifact
from wheel_builder.support_table import planned_kernels
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


def emulator_step(job: Job) -> Planned:
    return Planned("emulator", job.id, weight=100)


def verify_steps(job: Job) -> Iterator[Planned]:
    """The steps of verifying one of the job's wheels."""
    yield emulator_step(job)
    yield Planned("static checks", job.id, weight=20)
    yield from (Planned(f"emulate {arch}", job.id, weight=60) for arch in job.archs)
    yield Planned("load under HIP runtimes", job.id, weight=5)
    yield Planned("verify", job.id, weight=90)


def planned_verification(jobs: Sequence[Job], others: Sequence[Job] = ()) -> list[Planned]:
    """The steps of ``verify_files`` in their order, for wheels of these jobs; ``others`` as there."""
    steps = (step for job in jobs for step in (builder_step(job), *verify_steps(job)))
    return [ENGINE, VERIFY_IMAGE, *map(builder_step, others), *steps]


def verify_files(
    files: Sequence[Path],
    matrix: Matrix,
    place: Workplace,
    *,
    archs: Sequence[str] = (),
    update: bool = False,
    others: Sequence[str] = (),
    plain: bool | None = None,
) -> list[Path]:
    """Audit and verify finished wheels; the paths of their records.  Raises the first failure.
    No file may lie in an index.

    ``archs`` as in ``job_of``; ``update`` puts what the wheels' kernels take into the golden file first;
    ``others`` are ROCm versions whose runtimes the wheels are loaded under, besides their own.
    """
    refuse_published(files)
    jobs = [job_of(file, matrix, archs) for file in files]
    more = jobs_of(others, matrix)
    records = []
    with progress_of(planned_verification(jobs, more), place, plain) as progress:
        start_engine(place, progress)
        tester = verify_image(matrix.package, place, progress)
        images = {job: builder_image(job, matrix.package, place, progress) for job in more}
        for file, job in zip(files, jobs, strict=True):
            audit.audit_wheel(file, expectation(job, matrix.package, place.checkout))
            builder = builder_image(job, matrix.package, place, progress)
            elsewhere = {other: image for other, image in images.items() if other.rocm != job.rocm}
            record = verify_one(file, job, place, builder, tester, progress, others=elsewhere, update=update)
            records.append(write_record(file, record.facts))
            refresh_provenance(file)
    return records


def audit_file(file: Path, matrix: Matrix, checkout: Path, archs: Sequence[str] = ()) -> AuditReport:
    """Audit a finished wheel of the checkout's matrix, ``archs`` as in ``job_of``; raises ``AuditError``."""
    return audit.audit_wheel(file, expectation(job_of(file, matrix, archs), matrix.package, checkout))


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


def job_of(file: Path, matrix: Matrix, archs: Sequence[str] = ()) -> Job:
    """The job that a finished wheel belongs to, by the local label of its version.

    ``archs`` are those that it was built for; empty: all of its ROCm version.
    """
    try:
        label = str(parse_wheel_filename(file.name)[1].local)
    except InvalidWheelFilename as error:
        message = f"{file.name} is not a wheel's file name"
        raise WheelError(message, advice="name a .whl file") from error
    selection = Selection(rocm=(label.removeprefix("rocm"),), archs=tuple(archs))
    return jobs_to_build(make_plan(matrix, selection))[0]


def jobs_of(rocm: Sequence[str], matrix: Matrix) -> tuple[Job, ...]:
    """The jobs of these ROCm versions with all their archs; raises ``SelectionError`` for unknown ones."""
    return jobs_to_build(make_plan(matrix, Selection(rocm=tuple(rocm)))) if rocm else ()


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
        torch_headers=package.torch_headers,
    )


def verify_one(
    file: Path,
    job: Job,
    place: Workplace,
    builder: Artifact,
    tester: Artifact,
    progress: Progress,
    *,
    others: Mapping[Job, Artifact] = MappingProxyType({}),
    update: bool = False,
) -> Artifact:
    """Everything that verify shows of a wheel; the record.

    ``others`` are the builder images of other jobs, whose runtimes it is loaded under too.
    """
    runtime = build_emulator(job, builder, place, progress)
    checked, code = _static_checks(file, job, place, builder, runtime, progress, update=update)
    shown = {arch: _emulate(file, arch, job, place, tester, runtime, code, progress) for arch in job.archs}
    loads = _load(file, {job: builder, **others}, job, place, progress)
    log = place.log(f"verify-{job.id}")
    with progress.step("verify", job=job.id, log=log) as step:
        record = verify.verify_wheel(
            file, shown, static=checked, rocm=job.rocm.version, image=tester, standin=runtime,
            disassembly=code, runtimes=loads, checkout=place.checkout, store=place.store, log=log,
        )  # fmt: skip
        return told(step, record)


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
        return told(step, checked), code


def _load(
    file: Path, images: Mapping[Job, Artifact], own: Job, place: Workplace, progress: Progress
) -> Mapping[str, Artifact]:
    """What loading the wheel beside the runtime of each image showed, by ROCm version."""
    log = place.log(f"load-{own.id}")
    with progress.step("load under HIP runtimes", job=own.id, log=log) as step:
        loads = {
            job.rocm.version: runtimes.load_wheel(file, job, image=image, store=place.store, log=log)
            for job, image in images.items()
        }
        if all(load.reused for load in loads.values()):
            step.skipped("unchanged")
        return loads


def build_emulator(job: Job, builder: Artifact, place: Workplace, progress: Progress) -> Artifact:
    """The emulator with its stand-in HIP runtime; its file is ``LIBRARY``."""
    log = place.log(f"emulator-{job.id}")
    with progress.step("emulator", job=job.id, log=log) as step:
        made = standin.build_standin(builder, checkout=place.checkout, store=place.store, log=log)
        return told(step, made)


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
            full=os.environ.get(emulated.FULL, "") not in {"", "0"},
        )  # fmt: skip
        return told(step, shown)
