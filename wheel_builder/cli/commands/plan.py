"""What would be built, and what not and why."""

import argparse
import sys

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import selection_options
from wheel_builder.cli.selected import plan_of
from wheel_builder.images.stages import builder_key
from wheel_builder.matrix.plan import rejection_lines, to_github, to_json, to_table


def run(args: argparse.Namespace) -> None:
    plan = plan_of(args)
    if args.github:
        print(to_github(plan, {job.id: builder_key(job, plan.package) for job in plan.jobs}))
        # Standard output goes to $GITHUB_OUTPUT; the reasons belong in the log.
        print("\n".join(rejection_lines(plan)), file=sys.stderr)
    else:
        print(to_json(plan) if args.json else to_table(plan))


def options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--json", action="store_true", help="the whole plan as JSON")
    group.add_argument(
        "--github", action="store_true", help='lines for "$GITHUB_OUTPUT": the rows of the workflow matrices'
    )


COMMAND = Command("plan", "say what would be built, and what not and why", run, (selection_options, options))
