"""Candidates for a kernel's rows of the table of tiles, under the models."""

import argparse
import math

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import positive, release_options, run_options
from wheel_builder.cli.runs import run_context
from wheel_builder.cli.selected import compiler_of, compiler_option, read_matrix
from wheel_builder.extras.tune.record import SEARCHES
from wheel_builder.extras.tune.rows import EXAMPLE, changes_named
from wheel_builder.extras.tune.run import Wishes, dry_run, kernel_named, tune
from wheel_builder.matrix.model import Selection
from wheel_builder.matrix.plan import plan

MINUTES = 10


def run(args: argparse.Namespace) -> None:
    matrix = read_matrix()
    rocm = compiler_of(args, matrix)
    # Refuses unknown archs, too.
    found = plan(matrix, Selection(rocm=(rocm,), archs=(args.arch,)))
    kernel = kernel_named(args.arch, args.kernel)
    if args.dry_run:
        print(*dry_run(kernel), sep="\n")
        return
    asked = changes_named(kernel.op, args.keep) if args.keep else None
    wishes = Wishes(args.budget, args.most or math.inf, asked, args.record)
    print(tune(kernel, found, run_context(args), wishes, plain=args.verbose or None))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", required=True, metavar="A", help="one gfx arch, for example gfx908")
    parser.add_argument(
        "--kernel",
        required=True,
        metavar="K",
        help="a forward or a backward's kernel, for example fa_fwd_fp16_d64",
    )
    parser.add_argument(
        "--most",
        type=positive,
        metavar="N",
        help="end after about as many candidates (default: the budget ends)",
    )
    parser.add_argument(
        "--keep",
        default="",
        metavar="CHANGES",
        help=f"propose these changes of today's row or none, for example {EXAMPLE!r}",
    )
    parser.add_argument("--record", action="store_true", help=f"keep the figures in {SEARCHES}")
    parser.add_argument(
        "--budget",
        type=positive,
        default=MINUTES,
        metavar="MIN",
        help=f"minutes of search (default: {MINUTES}); the same command goes on where the last one ended",
    )
    compiler_option(parser)


COMMAND = Command(
    "tune",
    "propose rows of kernels/tables/tiles.toml for a kernel, by the models",
    run,
    (options, run_options, release_options),
)
