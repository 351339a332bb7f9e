"""Where a run works, and what every run begins with: the engine and the images, each shown as a step."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wheel_builder.docker import remove_orphans
from wheel_builder.engine import ensure_engine
from wheel_builder.hostenv import HostSettings
from wheel_builder.model import Job, Package
from wheel_builder.progress import Planned, Progress, Step
from wheel_builder.stages import (
    image,
)
from wheel_builder.store import Artifact, Store

ENGINE = Planned("container engine", weight=15)
VERIFY_IMAGE = Planned("verify image", weight=60)


@dataclass(frozen=True)
class Workplace:
    """Where a run reads and writes, and how: stages' results in ``build``, finished wheels in ``dist``.

    ``cache`` is where compilers keep what they made, for other runs and machines; none is used when None.
    ``used`` are the results that the run made or found.
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


def progress_of(steps: Sequence[Planned], place: Workplace, plain: bool | None) -> Progress:  # noqa: FBT001
    return Progress(steps, sys.stderr, place.build / "durations.json", plain=plain)


def builder_step(job: Job) -> Planned:
    return Planned("builder image", job.id, weight=200)


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
        return told(step, made)


def builder_image(job: Job, package: Package, place: Workplace, progress: Progress) -> Artifact:
    """The image that the job's code and wheel are built in."""
    log = place.log(f"image-{job.id}")
    with progress.step("builder image", job=job.id, log=log) as step:
        made = image.build_image(
            job, package, place.store, logs=log.parent, host=place.host, torch_index=place.torch_index
        )
        return told(step, made)


def told(step: Step, made: Artifact) -> Artifact:
    if made.reused:
        step.skipped("unchanged")
    return made
