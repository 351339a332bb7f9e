"""A published wheel withdrawn."""

import argparse
from datetime import UTC, datetime

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import index_option
from wheel_builder.cli.selected import read_catalogue
from wheel_builder.index.folder import yank


def run(args: argparse.Namespace) -> None:
    catalogue = read_catalogue()
    yank(args.index, args.rocm, args.file, args.reason, catalogue=catalogue, now=datetime.now(UTC))
    print(f"{args.file} is yanked: pip installs it only for a pinned version")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the published wheel's file name")
    parser.add_argument("--rocm", required=True, metavar="V")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="the reason shown to users")
    index_option(parser)


COMMAND = Command("yank", "withdraw a published wheel, with a reason", run, (options,))
