"""A user's report from hardware, taken into the tree."""

import argparse
from datetime import UTC, datetime
from pathlib import Path

from wheel_builder.base.process import run as run_process
from wheel_builder.base.words import shown
from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT, index_option
from wheel_builder.cli.selected import read_matrix
from wheel_builder.matrix import measured
from wheel_builder.matrix.catalogue import catalogue_of
from wheel_builder.provenance.user_report import add_report


def run(args: argparse.Namespace) -> None:
    wheels = args.wheel or [*(ROOT / "dist").glob("*.whl"), *args.index.rglob("*.whl")]
    name = args.signed_off_by or _committer()
    catalogue = catalogue_of(read_matrix())
    path = add_report(args.file, wheels, ROOT, catalogue=catalogue, signed_off_by=name, now=datetime.now(UTC))
    measured.write(ROOT)
    pages = "pages show it when written again: scripts/wheel-builder index pages"
    print(f"{shown(path)}, {measured.MEASURED}: commit them; {pages}")


def _committer() -> str:
    """The user of git here, as git signs commits off."""
    name, email = (
        run_process(["git", "-C", ROOT, "config", f"user.{key}"], check=False).stdout.strip()
        for key in ("name", "email")
    )
    return f"{name} <{email}>"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("add",), help="add: check a report and add it to the tree")
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="the file written by python -m flash_attn_rocm selftest"
    )
    parser.add_argument(
        "--wheel", type=Path, action="append", default=[], metavar="WHEEL",
        help="a wheel that the report may be about (default: all in dist and in the index)",
    )  # fmt: skip
    parser.add_argument("--signed-off-by", metavar="NAME", help="'Name <name@host>' (default: git's user)")
    index_option(parser)


COMMAND = Command("report", "add a user's hardware report to the tree", run, (options,))
