"""The costs of compiling and shipping kernels."""

import argparse
import sys

from wheel_builder.base.durable import ensure
from wheel_builder.base.words import shown
from wheel_builder.build.budget import COSTS
from wheel_builder.cli.command import Command
from wheel_builder.cli.options import BUILD, ROOT, output_file
from wheel_builder.cli.runs import run_context
from wheel_builder.cli.selected import plan_of
from wheel_builder.extras.cost.measure import (
    Measured,
    accept,
    accepted,
    accepted_at,
    measure,
    refuse_over_budget,
)
from wheel_builder.extras.cost.table import changes, report
from wheel_builder.extras.cost.treemap import to_svg


def run(args: argparse.Namespace) -> None:
    before = accepted_at(ROOT, args.against) if args.against else accepted(ROOT)
    if args.dry_run:
        print(*plan_of(args).jobs[0].archs if args.measure or args.update else [COSTS], sep="\n")
        return
    found = Measured(accepted(ROOT), {})
    if args.measure or args.update:
        found = measure(plan_of(args), run_context(args), plain=args.verbose or None)
    print(report(found.costs, found.phases))
    print(changes(before, found.costs, args.against or str(COSTS)), end="")
    if args.svg:
        ensure(args.svg, to_svg(found.costs).encode())
        print(f"written to {shown(args.svg)}", file=sys.stderr)
    if args.update:
        accept(found, ROOT)
        print(f"written to {COSTS}", file=sys.stderr)
    else:
        refuse_over_budget(found, ROOT)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--measure", action="store_true", help="compile without a cache and time the phases")
    parser.add_argument(
        "--update", action="store_true", help=f"measure and write the accepted costs: {COSTS}"
    )
    parser.add_argument(
        "--against", default="", metavar="COMMIT", help="compare with the costs of a commit or tag"
    )
    parser.add_argument("--svg", type=output_file, metavar="FILE", help="draw the sizes of the kernels")


COMMAND = Command(
    "cost", "show compile time and size of each kernel, and the changes", run, (options, *BUILD)
)
