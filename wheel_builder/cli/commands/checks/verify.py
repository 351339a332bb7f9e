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
from wheel_builder.cli.runs import handing_over, numbered, run_context
from wheel_builder.cli.selected import read_matrix, wanted_archs
from wheel_builder.pipeline.verification import job_of, jobs_of, planned_verification, verify_files


def run(args: argparse.Namespace) -> None:
    archs = wanted_archs(args)
    if args.dry_run:
        jobs = [job_of(file, read_matrix(), archs) for file in args.wheels]
        print(*numbered(planned_verification(jobs, jobs_of(args.runtimes, read_matrix()))), sep="\n")
        return
    context, plain = run_context(args), args.verbose or None
    with handing_over(args, context):
        records = verify_files(
            args.wheels, read_matrix(), context,
            archs=archs, update=args.update, others=args.runtimes, plain=plain,
        )  # fmt: skip
    for record in records:
        print(record.read_text(encoding="utf-8"), end="")


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
