"""Verification of a finished wheel before it may be published, each part a step.

    audit -> emulator -> static checks -> emulated suite per arch -> tests without a GPU and under HIP errors

For a wheel for Windows all of these run under wine, except loading it under HIP runtimes. The results go into
the record next to the wheel.
"""

import os
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from kernels.build.machine import usable_memory
from wheel_builder.audit import stage as audit
from wheel_builder.audit.rules import Expectation
from wheel_builder.audit.stage import AuditReport
from wheel_builder.base.errors import WheelError
from wheel_builder.base.store import Artifact
from wheel_builder.build.product import Product, read_product
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
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.images import begin, builder_image, hip_image, testers
from wheel_builder.pipeline.progress import Step as Shown
from wheel_builder.pipeline.steps import UNCHANGED, Step, Steps
from wheel_builder.provenance.attest import product_of, refresh_provenance
from wheel_builder.provenance.records import Demand, refuse_published, write_record
from wheel_builder.verify import numerics as emulated
from wheel_builder.verify import runtimes, wine
from wheel_builder.verify import stage as verify
from wheel_builder.verify.seen import Subject, subjects_of

# Twice the largest measured memory of one arch's emulated suite: 1.5 GiB, gfx942.
SUITE_BYTES = 3 * 1024**3
COMPILES = "compiling it takes some minutes, once; release, verify and emulate keep their builds in build/"


EMULATOR_FOR_WINDOWS, UNDER_WINE = "emulator for Windows", "under wine"


@dataclass(frozen=True)
class Candidate:
    """A wheel to verify: its file, known when steps run, its job, and the job's images."""

    file: Callable[[], Path]
    job: Job
    builder: Step[Artifact]
    tester: Step[Artifact]


@dataclass(frozen=True)
class Checked:
    """The report of the static checks, the wheel's disassembly, and the input of each arch's suite."""

    report: Artifact
    code: Artifact
    subjects: Mapping[str, Subject]


def verification(
    steps: Steps,
    files: Sequence[Path],
    matrix: Matrix,
    *,
    archs: Sequence[str] = (),
    update: bool = False,
    others: Sequence[str] = (),
) -> None:
    """Verify finished wheels and write their records.

    ``archs`` as in ``job_of``. ``update`` first writes the resources of the wheels' kernels into the golden
    file. ``others`` are further ROCm versions; the wheels are loaded under their runtimes.
    """
    jobs = [job_of(file, matrix, archs) for file in files]
    images_of_tests = testers(steps, jobs)
    images = {job: hip_image(steps, job) for job in jobs_of(others, matrix)}
    for file, job in zip(files, jobs, strict=True):
        candidate = Candidate(
            partial(Path, file), job, builder_image(steps, job), images_of_tests[job.platform]
        )
        elsewhere = {other: image for other, image in images.items() if other.rocm != job.rocm}
        verify_one(steps, candidate, others=elsewhere, update=update, keep=partial(_keep, file))


def _keep(file: Path, record: Artifact) -> None:
    write_record(file, record.facts)
    refresh_provenance(file)


def audit_files(files: Sequence[Path], matrix: Matrix, checkout: Path, archs: Sequence[str] = ()) -> None:
    """Audit finished wheels, and refuse wheels in an index. Raises the first failure."""
    refuse_published(files)
    for file in files:
        audit_file(file, matrix, checkout, archs)


def audit_file(file: Path, matrix: Matrix, checkout: Path, archs: Sequence[str] = ()) -> AuditReport:
    """Audit a finished wheel of the checkout's matrix, ``archs`` as in ``job_of``. Raises ``AuditError``."""
    return audit_of_job(file, job_of(file, matrix, archs), matrix.package, checkout)


def audit_of_job(file: Path, job: Job, package: Package, checkout: Path) -> AuditReport:
    """Audit a finished wheel of ``job``. Its content has to match its commit."""
    return audit.audit_wheel(file, expectation(job, package, checkout, product_of(file, checkout)))


def emulator_workshop(
    source: Path, matrix: Matrix, context: RunContext, *, plain: bool | None = None
) -> Workshop:
    """The input of ``emulate`` for a wheel's kernels, or for a code object with the default ROCm version."""
    job = (
        job_of(source, matrix)
        if source.suffix == ".whl"
        else jobs_to_build(make_plan(matrix, Selection()))[0]
    )
    steps = begin(context, matrix.package)
    builder = builder_image(steps, job)
    emulator = build_emulator(steps, job, builder)
    steps.run(plain=plain)
    return Workshop(
        Core(emulator.result.path / LIBRARY), context.store, tools_in(builder.result), context.logs
    )


def job_of(file: Path, matrix: Matrix, archs: Sequence[str] = ()) -> Job:
    """The job of a finished wheel, from its version's local label. Without a label, the public job.

    ``archs`` are the archs it was built for; empty means all of its ROCm version. The audit compares the
    file's name with the whole tag.
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
    """The required contents of the wheel's record. ``versions`` are the ROCm versions it may serve.

    Linux: it passed for every arch. Windows: it passed for the archs that the release tier executes under
    wine, and the others were not executed.
    """
    if not job.for_windows:
        return Demand(job.archs, versions)
    executed = wine.archs_under_wine(job.archs, full=False)
    others = [arch for arch in job.archs if arch not in executed]
    return Demand(executed, others=others, how=wine.HOW, not_executed=wine.NOT_EXECUTED)


def jobs_of(rocm: Sequence[str], matrix: Matrix) -> tuple[Job, ...]:
    """The jobs of these ROCm versions, with all their archs. Raises ``SelectionError`` for unknown ones."""
    return jobs_to_build(make_plan(matrix, Selection(rocm=tuple(rocm)))) if rocm else ()


def expectation(job: Job, package: Package, checkout: Path, product: Product | None = None) -> Expectation:
    """The audit's expectation of the job's wheel: the plan, the support table, and its sources' ``product``.

    The default ``product`` is the checkout's present one.
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
    steps: Steps,
    wheel: Candidate,
    *,
    others: Mapping[Job, Step[Artifact]] = MappingProxyType({}),
    update: bool = False,
    keep: Callable[[Artifact], object] = lambda _: None,
) -> Step[Artifact]:
    """Run every check of ``verify`` on a wheel. Returns its record.

    ``others`` are other jobs' images. The wheel is loaded under their runtimes too; missing images are
    skipped. ``keep`` gets the record.
    """
    context, job = steps.context, wheel.job
    runtime = build_emulator(steps, job, wheel.builder)
    static_checks = _static_checks(steps, wheel, runtime, update=update)
    if job.for_windows:
        runtime = build_emulator(steps, job, wheel.builder, platform=WINDOWS)
    shown = _emulate(steps, wheel, runtime, static_checks)
    loads = None if job.for_windows else _load(steps, wheel, {job: wheel.builder, **others})

    def work(step: Shown) -> Artifact:
        checked = static_checks.result
        emulated_archs = {arch: suite.result for arch, suite in shown.items()}
        if loads:
            record = verify.verify_wheel(
                wheel.file(), emulated_archs, static=checked.report, job=job, image=wheel.tester.result,
                fake_hip=runtime.result, disassembly=checked.code, runtimes=loads.result,
                checkout=context.checkout, store=context.store, jobs=context.jobs, log=step.own_log,
                tier=chosen_tier(),
            )  # fmt: skip
        else:
            record = wine.verify_under_wine(
                wheel.file(), emulated_archs, static=checked.report, job=job, image=wheel.tester.result,
                fake_hip=runtime.result, disassembly=checked.code, checkout=context.checkout,
                store=context.store, log=step.own_log,
            )  # fmt: skip
        keep(record)
        return record

    name, weight = ("verify", 90) if loads else (f"verify {UNDER_WINE}", 60)
    return steps.add(name, work, job=job.id, weight=weight, log=f"verify-{job.id}")


def chosen_tier() -> str:
    """The tests to run on a wheel: a release's, or with FA_FULL=1 the nightly ones."""
    return NIGHTLY_TIER if os.environ.get(FULL, "") not in {"", "0"} else RELEASE_TIER


def _static_checks(
    steps: Steps, wheel: Candidate, emulator: Step[Artifact], *, update: bool
) -> Step[Checked]:
    context, rocm = steps.context, wheel.job.rocm.version

    def work(step: Shown) -> Checked:
        file, builder, log = wheel.file(), wheel.builder.result, step.own_log
        checked = static.check_static(
            file, builder, rocm=rocm, checkout=context.checkout, store=context.store, log=log, update=update
        )
        code = static.disassemble_wheel(file, builder, store=context.store, log=log)
        core = Core(emulator.result.path / LIBRARY)
        static.refuse_unimplemented(file.name, core, code, emulator=emulator.result, store=context.store)
        if checked.reused:
            step.skipped(UNCHANGED)
        return Checked(checked, code, subjects_of(file, _emulated(wheel.job)))

    job = wheel.job.id
    return steps.add("static checks", work, job=job, weight=20, log=f"static-checks-{job}")


def _load(
    steps: Steps, wheel: Candidate, images: Mapping[Job, Step[Artifact]]
) -> Step[Mapping[str, Artifact]]:
    """The result of loading the wheel with each image's runtime, by ROCm version."""

    def work(step: Shown) -> Mapping[str, Artifact]:
        made = {job: image.made for job, image in images.items() if image.made}
        loads = {
            job.rocm.version: runtimes.load_wheel(
                wheel.file(), job, image=image, store=steps.context.store, log=step.own_log
            )
            for job, image in made.items()
        }
        if all(load.reused for load in loads.values()):
            step.skipped(UNCHANGED)
        return loads

    job = wheel.job.id
    return steps.add("load under HIP runtimes", work, job=job, weight=5, log=f"load-{job}")


def build_emulator(
    steps: Steps, job: Job, builder: Step[Artifact], *, platform: str = LINUX
) -> Step[Artifact]:
    """Build the emulator with its fake HIP runtime. Its file is ``LIBRARY``, for Windows a DLL."""
    context = steps.context

    def work(step: Shown) -> Artifact:
        image = builder.result
        if platform == LINUX and not fake_hip.is_built(image, context.checkout, context.store):
            step.note(COMPILES)
        return fake_hip.build_fake_hip(
            image, checkout=context.checkout, store=context.store, log=step.own_log, platform=platform,
            cache=context.cache,
        )  # fmt: skip

    if platform == WINDOWS:
        return steps.add(EMULATOR_FOR_WINDOWS, work, job=job.id, weight=120, log=f"emulator-{job.id}-dll")
    return steps.add("emulator", work, job=job.id, weight=100, log=f"emulator-{job.id}")


def _emulated(job: Job) -> tuple[str, ...]:
    """The archs whose emulated suite runs."""
    full = chosen_tier() == NIGHTLY_TIER
    return wine.archs_under_wine(job.archs, full=full) if job.for_windows else job.archs


def _emulate(
    steps: Steps,
    wheel: Candidate,
    runtime: Step[Artifact],
    static_checks: Step[Checked],
) -> Mapping[str, Step[Artifact]]:
    """The result of each arch's emulated suite. Several suites run in parallel."""
    context, job, archs = steps.context, wheel.job, _emulated(wheel.job)
    workers = side_by_side(len(archs), context.jobs, usable_memory())
    where, weight = (f" {UNDER_WINE}", 180) if job.for_windows else ("", 60)

    def one(arch: str) -> Artifact:
        kernels = planned_kernels(context.checkout, [arch])[arch]
        return emulated.run_emulated(
            static_checks.result.subjects[arch], kernels, image=wheel.tester.result, fake_hip=runtime.result,
            disassembly=static_checks.result.code, checkout=context.checkout, store=context.store,
            jobs=max(1, context.jobs // workers), log=context.log(f"emulate-{job.id}-{arch}"),
            tier=chosen_tier(), under_wine=job.for_windows,
        )  # fmt: skip

    works = {f"emulate {arch}{where}": (f"emulate-{job.id}-{arch}", partial(one, arch)) for arch in archs}
    suites = steps.beside(works, most=workers, cost=_cost_of_suite, job=job.id, weight=weight)
    return dict(zip(archs, suites, strict=True))


def _cost_of_suite(made: Artifact) -> float | None:
    return None if made.reused else suite_cost(made.path)


def side_by_side(archs: int, jobs: int, memory_bytes: int) -> int:
    """How many archs' suites run at a time: as many as there are cores and memory for, one at least."""
    return max(1, min(archs, jobs, memory_bytes // SUITE_BYTES))
