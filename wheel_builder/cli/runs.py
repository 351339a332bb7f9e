"""A run as the command line describes it: its context, and the results exchanged with other machines."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from wheel_builder.cli.options import ROOT
from wheel_builder.cli.selected import plan_of
from wheel_builder.images.engine import ensure_engine
from wheel_builder.images.handover import copy_wheels, give, holds_images, take
from wheel_builder.images.hostenv import NO_SETTINGS
from wheel_builder.matrix.model import Plan
from wheel_builder.matrix.plan import jobs_to_build
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.progress import Planned, Progress
from wheel_builder.pipeline.release import planned_until, run_until


def numbered(steps: Sequence[Planned]) -> Iterator[str]:
    return (f"[{number}/{len(steps)}] {step.title}" for number, step in enumerate(steps, 1))


@contextmanager
def step_shown(planned: Planned, *, log: Path | None = None) -> Iterator[None]:
    """Show the only step of a command, with its time and an estimate."""
    history = ROOT / "build" / "durations.json"
    with Progress([planned], sys.stderr, history) as progress, progress.step(planned.name, log=log):
        yield


def run_context(args: argparse.Namespace) -> RunContext:
    """The run context of this checkout."""
    return RunContext(
        checkout=ROOT,
        build=ROOT / "build",
        dist=ROOT / "dist",
        index=args.index.absolute(),
        jobs=args.jobs,
        install_engine=args.install_engine,
        torch_index=args.torch_index,
        host=NO_SETTINGS if args.no_host_settings else None,
        cache=None if args.no_cache else args.cache.absolute(),
    )


def dry_run(stage: str, plan: Plan) -> None:
    """Print the steps up to ``stage``."""
    print(*numbered(planned_until(stage, jobs_to_build(plan))), sep="\n")


def stop_after(stage: str) -> Callable[[argparse.Namespace], None]:
    """A command that runs the stages up to ``stage`` and prints the paths of its results."""

    def command(args: argparse.Namespace) -> None:
        plan, context = plan_of(args), run_context(args)
        if args.dry_run:
            dry_run(stage, plan)
            return
        with handing_over(args, context):
            made = run_until(stage, plan, context, plain=args.verbose or None)
        print(*(copy_wheels(made, to) if (to := getattr(args, "to", None)) else made), sep="\n")

    return command


@contextmanager
def handing_over(args: argparse.Namespace, context: RunContext) -> Iterator[None]:
    """Take other machines' results before a run, and hand over the used ones after it."""
    log = context.log("handover")
    if holds_images(args.take):
        ensure_engine(install=context.install_engine, log=context.log("engine"))
    for folder in args.take:
        take(folder, context.store, log=log)
    yield
    if args.give:
        give(context.used, args.give, taken=args.take, log=log)
