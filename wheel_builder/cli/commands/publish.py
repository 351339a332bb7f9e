"""Verified wheels into a static index."""

import argparse
import sys

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT, index_option, wheel_arguments
from wheel_builder.cli.selected import read_matrix
from wheel_builder.index.check import not_public
from wheel_builder.pipeline.release import publish_files


def run(args: argparse.Namespace) -> None:
    for simple in publish_files(args.wheels, read_matrix(), args.index.absolute(), ROOT):
        print(simple.as_uri())
    for note in not_public(args.index.absolute()):
        print(f"note: {note}", file=sys.stderr)


COMMAND = Command("publish", "add verified wheels to a static index", run, (wheel_arguments, index_option))
