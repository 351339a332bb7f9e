"""The documentation site."""

import argparse
from pathlib import Path

from wheel_builder.base.words import shown
from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT, SERVE, SITE
from wheel_builder.docs.build import build


def run(args: argparse.Namespace) -> None:
    build(ROOT, args.to.absolute(), log=ROOT / "build" / "logs" / "docs.log")
    print((args.to.absolute() / "index.html").as_uri())
    print(SERVE, shown(args.to.absolute()))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to", type=Path, default=SITE, metavar="DIR",
        help="the folder for the site, in place of an earlier one (default: build/docs)",
    )  # fmt: skip


COMMAND = Command("docs", "build the documentation site and check its links", run, (options,))
