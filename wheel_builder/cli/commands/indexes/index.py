"""Checking an index, writing its pages again, and adding the documentation."""

import argparse
import sys
from pathlib import Path

from wheel_builder.base.errors import PublishError
from wheel_builder.base.words import shown
from wheel_builder.build.shim import NAMES as SHIM_NAMES
from wheel_builder.cli.command import Command
from wheel_builder.cli.options import SERVE, SITE, index_option
from wheel_builder.cli.runs import step_shown
from wheel_builder.cli.selected import read_catalogue
from wheel_builder.extras.site.publish import put_documents
from wheel_builder.index.check import check_index
from wheel_builder.index.folder import changing, write_pages
from wheel_builder.matrix.model import PROJECT
from wheel_builder.matrix.tuned.candidates import distributions
from wheel_builder.pipeline.progress import Planned

OURS = frozenset({PROJECT, *SHIM_NAMES, *distributions()})


def run(args: argparse.Namespace) -> None:
    if args.action == "docs":
        _put_documentation(args.index, args.site)
    else:
        {"verify": _verify_index, "pages": _write_pages}[args.action](args.index)


def _verify_index(root: Path) -> None:
    with step_shown(Planned("index verify", weight=10)):
        found = check_index(root, ours=OURS)
    for leftover in found.leftovers:
        print(f"note: {leftover}", file=sys.stderr)
    if faults := found.faults:
        title = f"the index {root} has {len(faults)} fault{'s' if len(faults) > 1 else ''}"
        raise PublishError(title, faults, advice="follow each line, then verify again")
    print(
        f"{root} is sound: files have their hashes, records match their wheels and the files beside them, "
        "pages match the records"
    )


def _write_pages(root: Path) -> None:
    with changing(root, again="write the pages again"):
        write_pages(root, read_catalogue())
    print((root / "index.html").absolute().as_uri())


def _put_documentation(root: Path, site: Path) -> None:
    print(put_documents(root, site, read_catalogue()).as_uri())
    print(SERVE, shown(root.absolute()))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("verify", "pages", "docs"),
        help="verify: hash all files again and compare all pages; pages: rewrite the pages from the records; "
        "docs: put the documentation of --site beside the wheels",
    )
    index_option(parser)
    parser.add_argument(
        "--site", type=Path, default=SITE, metavar="DIR", help="the built documentation (default: build/docs)"
    )


COMMAND = Command(
    "index", "verify an index, rewrite its pages, or put the documentation beside it", run, (options,)
)
