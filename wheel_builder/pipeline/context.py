"""The run context, and how every run begins: the engine and the images, each shown as a step."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wheel_builder.base.store import Artifact, Store
from wheel_builder.images import stages as image
from wheel_builder.images import wine
from wheel_builder.images.docker import remove_orphans
from wheel_builder.images.engine import ensure_engine
from wheel_builder.images.hostenv import HostSettings
from wheel_builder.matrix.model import LINUX, WINDOWS, Job, Package
from wheel_builder.pipeline.progress import Planned, Progress, Step

ENGINE = Planned("container engine", weight=15)
VERIFY_IMAGE = Planned("verify image", weight=60)
WINE_IMAGE = Planned("image with wine", weight=120)


@dataclass(frozen=True)
class RunContext:
    """Where a run reads and writes, and how: stages' results in ``build``, finished wheels in ``dist``.

    ``cache`` is the compilers' cache, shared between runs and machines; None for no cache.
    ``used`` collects the results that the run made or found.
    """

    checkout: Path
    build: Path
    dist: Path
    index: Path
    jobs: int
    install_engine: bool = False
    torch_index: str = ""
    host: HostSettings | None = None
    cache: Path | None = None
    used: list[Artifact] = field(default_factory=list)

    @property
    def store(self) -> Store:
        return Store(self.build, self.used)

    def log(self, name: str) -> Path:
        return self.build / "logs" / f"{name}.log"


def progress_of(steps: Sequence[Planned], context: RunContext, plain: bool | None) -> Progress:  # noqa: FBT001
    return Progress(steps, sys.stderr, context.build / "durations.json", plain=plain)


def builder_step(job: Job) -> Planned:
    return Planned("builder image", job.id, weight=200)


def start_engine(context: RunContext, progress: Progress) -> None:
    """Make sure that a container engine answers, and clear away what a killed run left in it."""
    log = context.log("engine")
    with progress.step("container engine", log=log):
        ensure_engine(install=context.install_engine, log=log)
        remove_orphans()


def verify_image(package: Package, context: RunContext, progress: Progress) -> Artifact:
    """The image in which wheels are verified."""
    log = context.log("image-verify")
    with progress.step("verify image", log=log) as step:
        made = image.build_verify_image(
            package, context.store, logs=log.parent, host=context.host, torch_index=context.torch_index
        )
        return told(step, made)


def wine_image(context: RunContext, progress: Progress) -> Artifact:
    """The image in which wheels for Windows are verified."""
    log = context.log("image-wine")
    with progress.step("image with wine", log=log) as step:
        return told(step, wine.build_wine_image(context.store, logs=log.parent, host=context.host))


def testers(
    jobs: Sequence[Job], package: Package, context: RunContext, progress: Progress
) -> Mapping[str, Artifact]:
    """The images in which the jobs' wheels are verified, by platform."""
    platforms = {job.platform for job in jobs}
    made = {LINUX: verify_image(package, context, progress)} if LINUX in platforms else {}
    return made | ({WINDOWS: wine_image(context, progress)} if WINDOWS in platforms else {})


def tester_steps(jobs: Sequence[Job]) -> list[Planned]:
    """The steps of ``testers`` in their order."""
    steps = {LINUX: VERIFY_IMAGE, WINDOWS: WINE_IMAGE}
    return [step for platform, step in steps.items() if platform in {job.platform for job in jobs}]


def builder_image(job: Job, package: Package, context: RunContext, progress: Progress) -> Artifact:
    """The image in which the job's code and wheel are built."""
    log = context.log(f"image-{job.id}")
    with progress.step("builder image", job=job.id, log=log) as step:
        made = image.build_image(
            job, package, context.store, logs=log.parent, host=context.host, torch_index=context.torch_index
        )
        return told(step, made)


def hip_step(job: Job) -> Planned:
    return Planned("HIP runtime", job.id, weight=60)


def hip_image(job: Job, package: Package, context: RunContext, progress: Progress) -> Artifact:
    """An image under whose HIP runtime wheels of other jobs are loaded."""
    log = context.log(f"image-{job.id}")
    with progress.step("HIP runtime", job=job.id, log=log) as step:
        return told(step, image.build_hip_image(job, package, context.store, logs=log.parent))


def told(step: Step, made: Artifact) -> Artifact:
    if made.reused:
        step.skipped("unchanged")
    return made
