"""Candidates for all kernels of an arch, as data of the repository."""

import argparse
import math

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import positive, release_options, run_options
from wheel_builder.cli.runs import run_context
from wheel_builder.cli.selected import compiler_of, compiler_option, read_matrix
from wheel_builder.extras.timings.proposals import Budget, propose_all, wanted_kernels
from wheel_builder.extras.timings.wanted import read_wanted
from wheel_builder.matrix.model import Selection
from wheel_builder.matrix.plan import plan


def run(args: argparse.Namespace) -> None:
    matrix = read_matrix()
    rocm = compiler_of(args, matrix)
    found = plan(matrix, Selection(rocm=(rocm,), archs=(args.arch,)))
    context = run_context(args)
    budget = Budget(args.budget or math.inf, tuple(args.kernel), args.again)
    if args.dry_run:
        left = wanted_kernels(args.arch, budget, read_wanted(context.checkout, args.arch))
        print(*(kernel.name for kernel in left), sep="\n")
        return
    print(propose_all(args.arch, found, context, budget, plain=args.verbose or None))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", required=True, metavar="A", help="one gfx arch, for example gfx1100")
    parser.add_argument(
        "--kernel", action="append", default=[], metavar="K",
        help="only this kernel, for example fa_fwd_fp16_d64; again for more",
    )  # fmt: skip
    parser.add_argument("--again", action="store_true", help="also kernels that have current candidates")
    parser.add_argument(
        "--budget", type=positive, metavar="MIN",
        help="begin no kernel after these minutes; the same command goes on",
    )  # fmt: skip
    compiler_option(parser)


COMMAND = Command(
    "candidates",
    "propose candidates for all kernels of an arch, for users' GPUs",
    run,
    (options, run_options, release_options),
)
