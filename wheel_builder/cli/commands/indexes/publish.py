"""Verified wheels into a static index."""

import argparse
import sys

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT, index_option, wheel_arguments
from wheel_builder.cli.runs import step_shown
from wheel_builder.cli.selected import read_matrix
from wheel_builder.index.check import not_public
from wheel_builder.pipeline.progress import Planned
from wheel_builder.pipeline.publication import publish_files


def run(args: argparse.Namespace) -> None:
    index = args.index.absolute()
    with step_shown(Planned("publish", weight=15)):
        published = publish_files(args.wheels, read_matrix(), index, ROOT, variants=args.variants)
    print(*(simple.as_uri() for simple in published), sep="\n")
    for note in not_public(index):
        print(f"note: {note}", file=sys.stderr)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--variants",
        action="store_true",
        help="also publish each wheel's variants (draft PEP 825), for installers that select by GPU",
    )


COMMAND = Command(
    "publish", "add verified wheels to a static index", run, (wheel_arguments, index_option, options)
)
