"""Modelled speed of kernels."""

import argparse
from pathlib import Path

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import BUILD
from wheel_builder.cli.runs import run_context
from wheel_builder.cli.selected import plan_of
from wheel_builder.extras.perf.golden import accepted_figures
from wheel_builder.extras.perf.run import default_paths, perf, perf_launches
from wheel_builder.extras.site.coded_caches import report
from wheel_builder.tables.archs import CHECKOUT


def run(args: argparse.Namespace) -> None:
    if args.caches:
        print(report(accepted_figures(CHECKOUT, args.archs)), end="")
        return
    plan, context = plan_of(args), run_context(args)
    paths = tuple(args.paths) or default_paths(plan, context)
    if args.dry_run:
        print(*paths, sep="\n")
        return
    table = perf_launches if args.launch else perf
    print(table(paths, plan, context, archs=args.archs, plain=args.verbose or None), end="")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--caches", action="store_true", help="caches of 8 bits beside 16, from the accepted figures"
    )
    parser.add_argument(
        "--launch", action="store_true", help="whole launches: busy compute units by the order of workgroups"
    )
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="wheels, code objects, or folders of .hsaco files (default: the newest finished wheel)",
    )


COMMAND = Command(
    "perf", "model the speed of kernels from their execution on an ISA emulator", run, (options, *BUILD)
)
