"""A benchmark: the last release's cost per step and the last tests' cost per folder, with the accepted
costs."""

import argparse
import sys

from wheel_builder.base.errors import CostError
from wheel_builder.base.words import shown
from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT
from wheel_builder.pipeline.step_costs import (
    ACCEPTED,
    STEP_COSTS,
    UPDATE,
    dearer,
    read_costs,
    to_table,
    write_costs,
)


def run(args: argparse.Namespace) -> None:
    found, accepted = read_costs(ROOT / "build" / STEP_COSTS), read_costs(ROOT / ACCEPTED)
    if not found:
        title = "there are no measured costs"
        raise CostError(
            title, [f"there is no build/{STEP_COSTS}"], advice="scripts/release or scripts/test writes it"
        )
    for name, section in found.items():
        print(f"{name}\n{to_table(section)}\n")
    if args.update:
        write_costs(ROOT / ACCEPTED, {**accepted, **found})
        print(f"written to {shown(ROOT / ACCEPTED)}", file=sys.stderr)
        return
    problems = [
        f"{name}: {problem}"
        for name, section in found.items()
        for problem in dearer(section, accepted.get(name, {}))
    ]
    if problems:
        title = "steps cost more than the accepted costs"
        raise CostError(title, problems, advice=UPDATE)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--update", action="store_true", help=f"accept the measured costs: write {ACCEPTED}")


COMMAND = Command("step-costs", "show the cost of each release step and each test folder", run, (options,))
