"""The documentation site."""

import argparse
from pathlib import Path

from wheel_builder.base.words import shown
from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT, SERVE, SITE
from wheel_builder.cli.runs import step_shown
from wheel_builder.extras.site.build import build
from wheel_builder.pipeline.progress import Planned


def run(args: argparse.Namespace) -> None:
    log = ROOT / "build" / "logs" / "docs.log"
    with step_shown(Planned("documentation", weight=15), log=log):
        build(ROOT, args.to.absolute(), log=log)
    print((args.to.absolute() / "index.html").as_uri())
    print(SERVE, shown(args.to.absolute()))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to", type=Path, default=SITE, metavar="DIR",
        help="folder of the site; replaces an earlier site (default: build/docs)",
    )  # fmt: skip


COMMAND = Command("docs", "build the documentation site and check its links", run, (options,))
