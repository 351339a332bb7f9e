"""Wheels to a registry, by twine."""

import argparse

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT, wheel_arguments
from wheel_builder.cli.runs import step_shown
from wheel_builder.cli.selected import read_matrix
from wheel_builder.pipeline.progress import Planned
from wheel_builder.pipeline.publication import upload_files


def run(args: argparse.Namespace) -> None:
    log = ROOT / "build" / "logs" / "upload.log"
    with step_shown(Planned("upload", weight=30), log=log):
        upload_files(args.wheels, read_matrix(), args.repository_url, ROOT, log=log)
    print(f"uploaded {len(args.wheels)} to {args.repository_url}")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repository-url",
        required=True,
        metavar="URL",
        help="the server; credentials come from twine's environment",
    )


COMMAND = Command("upload", "upload wheels with twine", run, (wheel_arguments, options))
