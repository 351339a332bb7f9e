"""Whether compiled kernels of upstream's CK backend can compute attention."""

import argparse

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import BUILD, existing_file
from wheel_builder.cli.runs import run_context
from wheel_builder.cli.selected import plan_of
from wheel_builder.extras.upstream.gate_files import gate


def run(args: argparse.Namespace) -> None:
    if args.dry_run:
        print(*args.paths, sep="\n")
        return
    print(gate(args.paths, plan_of(args), run_context(args), plain=args.verbose or None), end="")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        type=existing_file,
        metavar="FILE",
        help="wheels, libraries, objects or code objects of flash-attn",
    )


COMMAND = Command(
    "gate", "refuse kernels of upstream's CK backend without matrix instructions", run, (options, *BUILD)
)
