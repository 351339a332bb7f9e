"""The planned builds, and the reasons for omitted ones."""

import argparse
import sys

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT, platforms_option, positive, selection_options
from wheel_builder.cli.selected import plan_of, read_matrix
from wheel_builder.extras.upstream.costs import load_costs, plan_lines
from wheel_builder.extras.upstream.recipe import rows
from wheel_builder.images.stages import builder_key
from wheel_builder.matrix.plan import output_lines, rejection_lines, to_github, to_json, to_table

# For three archs and two ROCm versions this stays below the limit of 256 rows per workflow matrix.
SHARDS = 24


def run(args: argparse.Namespace) -> None:
    plan = plan_of(args)
    upstream = read_matrix().upstream
    if args.github:
        print(to_github(plan, {job.builder: builder_key(job, plan.package) for job in plan.with_images}))
        print(output_lines(rows(plan, upstream, args.shards)))
        # Standard output goes to $GITHUB_OUTPUT. The reasons belong in the log.
        print("\n".join(rejection_lines(plan)), file=sys.stderr)
    elif args.json:
        print(to_json(plan))
    else:
        print(to_table(plan), "", *plan_lines(upstream, load_costs(ROOT)), sep="\n")


def options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--json", action="store_true", help="print the plan as JSON")
    group.add_argument(
        "--github",
        action="store_true",
        help='print lines for "$GITHUB_OUTPUT" with the rows of the workflow matrices',
    )
    parser.add_argument(
        "--shards", type=positive, default=SHARDS, metavar="N",
        help=f"number of machines for upstream's objects of one arch (default: {SHARDS})",
    )  # fmt: skip


COMMAND = Command(
    "plan",
    "show the planned builds, and the reasons for omitted ones",
    run,
    (selection_options, platforms_option, options),
)
