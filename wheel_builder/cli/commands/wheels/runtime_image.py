"""Images with the wheel inside."""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from wheel_builder.base.errors import SelectionError
from wheel_builder.base.words import duration
from wheel_builder.cli.command import Command
from wheel_builder.cli.options import BUILD, existing_file, registry
from wheel_builder.cli.runs import ran, run_context
from wheel_builder.cli.selected import plan_of, read_matrix, wanted_archs
from wheel_builder.images.push import Pushed, push
from wheel_builder.images.size import size_text
from wheel_builder.index.finder.steps import DEVICES
from wheel_builder.matrix.model import Job
from wheel_builder.matrix.plan import jobs_to_build
from wheel_builder.pipeline.release import newest_wheel, runtime_images
from wheel_builder.pipeline.verification import job_of


def run(args: argparse.Namespace) -> None:
    if args.slim and args.for_gpu:
        title, problem = "a slim image has no torch", "found both --slim and --for-gpu"
        raise SelectionError(title, [problem], advice="remove one of them")
    jobs, context = image_jobs(args), run_context(args)
    wheels = {} if args.dry_run else {job.id: args.wheel or newest_wheel(job, context.dist) for job in jobs}
    package = read_matrix().package
    steps, images = runtime_images(jobs, wheels, package, context, slim=args.slim, for_gpu=args.for_gpu)
    if not ran(steps, args):
        return
    for image in images:
        facts = image.result.facts
        print(image_text(facts), file=sys.stderr if args.github else sys.stdout)
        if args.push:
            pushed = push(facts["ref"], args.push, log=context.log("push"))
            print(*pushed_lines(pushed, github=args.github), sep="\n")


def image_text(facts: Mapping[str, Any]) -> str:
    """The new image and its run command, with the GPUs if its torch can use them."""
    build = facts["torch_build"]
    if build.startswith("ROCm"):
        torch, line = f"{build} build", f"docker run {DEVICES} {facts['ref']}"
    elif build:
        torch = "CPU build, without GPU access; use --torch-index for PyTorch's ROCm build"
        line = f"docker run {facts['ref']}"
    else:
        torch, line = "none: add one before use", f"FROM {facts['ref']}"
    built = [f"built in  {duration(facts['seconds'])}"] if "seconds" in facts else []
    return "\n".join(
        [
            f"image     {facts['ref']}",
            f"torch     {torch}",
            f"size      {size_text(facts['size'])}",
            *built,
            line,
        ]
    )


def pushed_lines(pushed: Pushed, *, github: bool) -> list[str]:
    """For people, or as outputs of a workflow's step."""
    if github:
        return [f"name={pushed.name}", f"digest={pushed.digest}"]
    return [f"pushed    {pushed.ref}"]


def image_jobs(args: argparse.Namespace) -> tuple[Job, ...]:
    """The jobs of the runtime images: the named wheel's, else those of ``selection_options``."""
    if args.wheel is None:
        return jobs_to_build(plan_of(args))
    job = job_of(args.wheel, read_matrix(), wanted_archs(args))
    if others := [*(("all",) if args.all else ()), *(v for v in args.rocm if v != job.name)]:
        title = "the image's ROCm version is its wheel's"
        problem = f"expected {job.name}, the version of {args.wheel.name}; found --rocm {','.join(others)}"
        raise SelectionError(title, [problem], advice="omit --rocm and --all, or name another wheel")
    return (job,)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "wheel",
        nargs="?",
        type=existing_file,
        metavar="WHEEL",
        help="a finished or published wheel (default: the newest of each ROCm version in dist)",
    )
    kind = parser.add_argument_group("which image")
    kind.add_argument("--slim", action="store_true", help="make rocm-fa:<version>-slim, without torch")
    kind.add_argument(
        "--for-gpu",
        action="store_true",
        help="require PyTorch's ROCm build (see --torch-index)",
    )
    kind.add_argument(
        "--push",
        type=registry,
        metavar="REGISTRY",
        help="push the image to REGISTRY/rocm-fa and print its digest",
    )
    kind.add_argument(
        "--github", action="store_true", help="print name and digest as outputs of a workflow step"
    )


COMMAND = Command(
    "runtime-image", "build the image rocm-fa:<version> with the wheel, and push it", run, (options, *BUILD)
)
