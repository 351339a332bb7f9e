"""Why building flash-attn takes hours."""

import argparse
import sys

from wheel_builder.base.durable import ensure
from wheel_builder.base.words import shown
from wheel_builder.build.budget import COSTS, load_budgets
from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT, output_file
from wheel_builder.cli.selected import read_matrix
from wheel_builder.extras.upstream.costs import load_costs
from wheel_builder.extras.upstream.why import sections, to_html, to_text


def run(args: argparse.Namespace) -> None:
    theirs, ours = load_costs(ROOT), load_budgets(ROOT / COSTS)
    parts = sections(read_matrix().upstream, theirs, ours)
    if args.html:
        ensure(args.html, to_html(parts, theirs, ours).encode())
        print(f"written to {shown(args.html)}", file=sys.stderr)
    print(to_text(parts), end="")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--html", type=output_file, metavar="FILE", help="also write a page")


COMMAND = Command(
    "why", "explain the build time of flash-attn, and how to install it instead", run, (options,)
)
