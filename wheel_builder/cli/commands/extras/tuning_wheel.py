"""A wheel of candidates for kernels' rows, which users time on their GPUs."""

import argparse
from pathlib import Path

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import (
    ROOT,
    existing_file,
    handover_options,
    release_options,
    run_options,
)
from wheel_builder.cli.runs import handing_over, ran, run_context
from wheel_builder.cli.selected import compiler_of, compiler_option, read_matrix
from wheel_builder.extras.timings.distribute import distribute
from wheel_builder.index.owners import newest_wheels
from wheel_builder.matrix.model import Selection
from wheel_builder.matrix.plan import plan


def run(args: argparse.Namespace) -> None:
    matrix = read_matrix()
    rocm = compiler_of(args, matrix)
    found = plan(matrix, Selection(rocm=(rocm,), archs=(args.arch,)))
    context = run_context(args)
    wheels = args.wheel or newest_wheels(context.index)
    with handing_over(args, context):
        steps, made = distribute(args.arch, wheels, found, context, args.to)
        if ran(steps, args):
            print(made.result)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", required=True, metavar="A", help="one gfx arch, for example gfx1100")
    parser.add_argument(
        "--wheel", type=existing_file, action="append", metavar="WHEEL",
        help="the wheel that the candidates belong to; again for its twin for Windows (default: the newest "
        "public ones of --index)",
    )  # fmt: skip
    parser.add_argument(
        "--to", type=Path, default=ROOT / "dist", metavar="DIR", help="output folder (default: dist)"
    )
    compiler_option(parser)


COMMAND = Command(
    "tuning-wheel",
    "a distribution of an arch's candidates, with record and statement",
    run,
    (options, run_options, release_options, handover_options),
)
