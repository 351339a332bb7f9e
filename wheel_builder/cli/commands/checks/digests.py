"""Digests of files passed between jobs of CI: printed, or compared."""

import argparse
from pathlib import Path

from wheel_builder.base.digests import digests_of, output_line, read_digests, require_digests
from wheel_builder.base.errors import PublishError
from wheel_builder.cli.command import Command


def run(args: argparse.Namespace) -> None:
    if args.output:
        print(output_line(args.output, digests_of(args.files)))
    if args.told:
        try:
            told = read_digests(args.told)
        except ValueError as error:
            title = "the given digests cannot be read"
            raise PublishError(title, [f"--told: {error}"], advice="pass the output of --output") from error
        require_digests(args.files, told, some=args.some)
        print(f"{len(args.files)} files have the digests given by their jobs")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--output", metavar="NAME", help="print the digests as output NAME of a workflow step")
    kind.add_argument(
        "--told",
        action="append",
        metavar="JSON",
        help="compare files with these outputs, or with all outputs of a job",
    )
    parser.add_argument("--some", action="store_true", help="allow digests of other files")


COMMAND = Command("digests", "pass the sha256 of files to another job, or compare them", run, (options,))
