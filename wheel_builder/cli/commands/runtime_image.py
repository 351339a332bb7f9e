"""Images that hold the wheel."""

import argparse

from wheel_builder.base.errors import SelectionError
from wheel_builder.cli.command import Command
from wheel_builder.cli.options import BUILD, existing_file
from wheel_builder.cli.runs import numbered, run_context
from wheel_builder.cli.selected import plan_of, read_matrix, wanted_archs
from wheel_builder.images.size import size_text
from wheel_builder.matrix.model import Job
from wheel_builder.matrix.plan import jobs_to_build
from wheel_builder.pipeline.release import planned_images, runtime_images
from wheel_builder.pipeline.verification import job_of


def run(args: argparse.Namespace) -> None:
    jobs, context, plain = image_jobs(args), run_context(args), args.verbose or None
    if args.dry_run:
        print(*numbered(planned_images(jobs)), sep="\n")
        return
    package = read_matrix().package
    for image in runtime_images(jobs, package, context, wheel=args.wheel, slim=args.slim, plain=plain):
        print(f"size      {size_text(image.facts['size'])}", f"docker run {image.facts['ref']}", sep="\n")


def image_jobs(args: argparse.Namespace) -> tuple[Job, ...]:
    """The jobs whose runtime images are made: the named wheel's, else those of ``selection_options``."""
    if args.wheel is None:
        return jobs_to_build(plan_of(args))
    job = job_of(args.wheel, read_matrix(), wanted_archs(args))
    if others := [*(("all",) if args.all else ()), *(v for v in args.rocm if v != job.rocm.version)]:
        title = "the image's ROCm version is its wheel's"
        problem = (
            f"expected {job.rocm.version}, which {args.wheel.name} is for; found --rocm {','.join(others)}"
        )
        raise SelectionError(title, [problem], advice="leave --rocm and --all out, or name another wheel")
    return (job,)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "wheel",
        nargs="?",
        type=existing_file,
        metavar="WHEEL",
        help="a finished wheel, such as a published one (default: the newest of each ROCm version in dist)",
    )
    parser.add_argument("--slim", action="store_true", help="rocm-fa:<version>-slim, which has no torch")


COMMAND = Command("runtime-image", "build rocm-fa:<version>, which holds the wheel", run, (options, *BUILD))
