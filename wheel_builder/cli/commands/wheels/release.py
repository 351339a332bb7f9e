"""The main job: from nothing to wheels in a local index."""

import argparse
from functools import partial

from wheel_builder.base.machine import cpu_seconds
from wheel_builder.base.words import shown
from wheel_builder.cli.command import Command
from wheel_builder.cli.options import BUILD, SERVE, platforms_option
from wheel_builder.cli.runs import numbered, run_context, step_shown
from wheel_builder.cli.selected import plan_of, read_catalogue, read_matrix
from wheel_builder.extras.site.build import require_tools
from wheel_builder.extras.site.publish import publish_documents
from wheel_builder.extras.timings.distribute import of_release
from wheel_builder.matrix.plan import to_table
from wheel_builder.pipeline.coverage import coverage_of, raise_failures, write_coverage
from wheel_builder.pipeline.coverage import to_table as coverage_table
from wheel_builder.pipeline.progress import Planned
from wheel_builder.pipeline.release import release
from wheel_builder.pipeline.step_costs import RELEASE, STEP_COSTS, read_costs
from wheel_builder.pipeline.step_costs import to_table as costs_table
from wheel_builder.pipeline.summary import release_text


def run(args: argparse.Namespace) -> None:
    plan = plan_of(args)
    catalogue, context = read_catalogue(), run_context(args)
    planned = release(plan, context, catalogue, partial(of_release, read_matrix().tuning))
    if args.dry_run:
        print(to_table(plan), *numbered(planned.steps), sep="\n")
        return
    require_tools()  # report missing tools before building
    before = cpu_seconds()
    attempts = planned.run(plain=args.verbose or None)
    coverage = coverage_of(plan, attempts)
    released = [one.released for one in attempts if one.released]
    print(release_text(released, cpu_seconds() - before), end="\n\n")
    print(costs_table(read_costs(context.build / STEP_COSTS).get(RELEASE, {})), end="\n\n")
    # Printed before anything is written, so that a full disk does not cost the reader the table.
    print(coverage_table(coverage), flush=True)
    print(*write_coverage(coverage, context.dist), sep="\n")
    if any(one.published for one in attempts):
        with step_shown(Planned("documentation", weight=20)):
            documents = publish_documents(context, catalogue)
        print(f"documents {documents.as_uri()}, beside the page of the index")
        print(f"          {SERVE} {shown(context.index)}")
    raise_failures(attempts)


COMMAND = Command(
    "release",
    "build, audit, verify, publish to a local index, and install from it",
    run,
    (platforms_option, *BUILD),
)
