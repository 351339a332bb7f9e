"""How every run begins: the engine and the images."""

from collections.abc import Mapping, Sequence

from wheel_builder.base.store import Artifact
from wheel_builder.images import stages as image
from wheel_builder.images import wine
from wheel_builder.images.docker import remove_orphans
from wheel_builder.images.engine import ensure_engine
from wheel_builder.matrix.model import LINUX, WINDOWS, Job, Package
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.steps import Step, Steps


def begin(context: RunContext, package: Package) -> Steps:
    """A run whose first step checks that a container engine answers.

    It removes the remains of a killed run from the engine.
    """
    steps = Steps(context, package)

    def work(_: object) -> None:
        ensure_engine(install=context.install_engine, log=context.log("engine"))
        remove_orphans()

    steps.add("container engine", work, weight=15, log="engine")
    return steps


def verify_image(steps: Steps) -> Step[Artifact]:
    """The image for the verification of wheels."""
    context = steps.context
    return steps.add(
        "verify image",
        lambda _: image.build_verify_image(
            steps.package, context.store, logs=context.logs, host=context.host,
            torch_index=context.torch_index,
        ),
        weight=60, log="image-verify",
    )  # fmt: skip


def wine_image(steps: Steps) -> Step[Artifact]:
    """The image for the verification of wheels for Windows."""
    context = steps.context
    return steps.add(
        "image with wine",
        lambda _: wine.build_wine_image(context.store, logs=context.logs, host=context.host),
        weight=120, log="image-wine",
    )  # fmt: skip


def testers(steps: Steps, jobs: Sequence[Job]) -> Mapping[str, Step[Artifact]]:
    """The images for the verification of the jobs' wheels, by platform."""
    platforms = {job.platform for job in jobs}
    makers = {LINUX: verify_image, WINDOWS: wine_image}
    return {platform: make(steps) for platform, make in makers.items() if platform in platforms}


def builder_image(steps: Steps, job: Job) -> Step[Artifact]:
    """The image for building the job's code and wheel."""
    context = steps.context
    return steps.add(
        "builder image",
        lambda _: image.build_image(
            job, steps.package, context.store, logs=context.logs, host=context.host,
            torch_index=context.torch_index,
        ),
        job=job.id, weight=200, log=f"image-{job.id}",
    )  # fmt: skip


def hip_image(steps: Steps, job: Job) -> Step[Artifact]:
    """An image under whose HIP runtime wheels of other jobs are loaded."""
    return steps.add(
        "HIP runtime",
        lambda _: image.build_hip_image(job, steps.package, steps.context.store, logs=steps.context.logs),
        job=job.id, weight=60, log=f"image-{job.id}",
    )  # fmt: skip
