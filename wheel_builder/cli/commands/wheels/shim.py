"""The drop-ins, such as flash-attn, finished and tested with wheels of flash-attn-rocm."""

import argparse
from pathlib import Path

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT, handover_options, release_options, run_options, wheel_arguments
from wheel_builder.cli.runs import handing_over, ran, run_context
from wheel_builder.cli.selected import read_matrix
from wheel_builder.pipeline.images import begin
from wheel_builder.pipeline.shim import shims_beside


def run(args: argparse.Namespace) -> None:
    context, matrix = run_context(args), read_matrix()
    with handing_over(args, context):
        steps = begin(context, matrix.package)
        files = shims_beside(steps, args.wheels, matrix, args.to)
        if ran(steps, args):
            print(*(file.result for file in files), sep="\n")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to", type=Path, default=ROOT / "dist", metavar="DIR", help="output folder (default: dist)"
    )


COMMAND = Command(
    "shim",
    "build and test the pure Python wheels named after other projects",
    run,
    (wheel_arguments, options, run_options, release_options, handover_options),
)
