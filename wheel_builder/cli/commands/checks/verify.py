"""Every check of a wheel before it may be published."""

import argparse

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import (
    handover_options,
    held_archs_option,
    names,
    release_options,
    run_options,
    wheel_arguments,
)
from wheel_builder.cli.runs import handing_over, ran, run_context
from wheel_builder.cli.selected import read_matrix, wanted_archs
from wheel_builder.extras.timings import verify
from wheel_builder.files.wheels.candidates import has_candidates
from wheel_builder.pipeline.images import begin
from wheel_builder.pipeline.verification import audit_files, verification
from wheel_builder.provenance.records import record_path, refuse_published


def run(args: argparse.Namespace) -> None:
    archs, context, matrix = wanted_archs(args), run_context(args), read_matrix()
    steps = begin(context, matrix.package)
    candidates = list(filter(has_candidates, args.wheels))
    wheels = [wheel for wheel in args.wheels if wheel not in candidates]
    if wheels:
        verification(steps, wheels, matrix, archs=archs, update=args.update, others=args.runtimes)
    verify.verification(steps, candidates, matrix)
    with handing_over(args, context):
        if not args.dry_run:
            audit_files(wheels, matrix, context.checkout, archs)
            refuse_published(candidates)
        if not ran(steps, args):
            return
    for wheel in args.wheels:
        print(record_path(wheel).read_text(encoding="utf-8"), end="")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--update",
        action="store_true",
        help="first write the kernels' resource use into the golden file, for review",
    )
    parser.add_argument(
        "--runtimes",
        type=names,
        action="extend",
        default=[],
        metavar="V[,V]",
        help="also load the wheel under these ROCm versions' runtimes; the index offers it for each success",
    )


COMMAND = Command(
    "verify",
    "static checks, tests in a fresh container, every kernel on an ISA emulator",
    run,
    (wheel_arguments, held_archs_option, options, run_options, release_options, handover_options),
)
