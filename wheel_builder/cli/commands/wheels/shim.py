"""The distributions flash-attn and flash-attn-3, finished and tested with wheels of flash-attn-rocm."""

import argparse
from pathlib import Path

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT, handover_options, release_options, run_options, wheel_arguments
from wheel_builder.cli.runs import handing_over, numbered, run_context
from wheel_builder.cli.selected import read_matrix
from wheel_builder.pipeline.shim import planned_shims, shims_beside
from wheel_builder.pipeline.verification import job_of


def run(args: argparse.Namespace) -> None:
    if args.dry_run:
        print(*numbered(planned_shims(job_of(args.wheels[0], read_matrix()))), sep="\n")
        return
    context = run_context(args)
    with handing_over(args, context):
        files = shims_beside(args.wheels, read_matrix(), args.to, context, plain=args.verbose or None)
        print(*files, sep="\n")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to", type=Path, default=ROOT / "dist", metavar="DIR", help="output folder (default: dist)"
    )


COMMAND = Command(
    "shim",
    "build and test the pure Python wheels flash-attn and flash-attn-3",
    run,
    (wheel_arguments, options, run_options, release_options, handover_options),
)
