"""A run as the command line describes it: its context, and the results exchanged with other machines."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from wheel_builder.cli.options import ROOT
from wheel_builder.cli.selected import plan_of
from wheel_builder.images.engine import ensure_engine
from wheel_builder.images.handover import copy_wheels, give, holds_images, take
from wheel_builder.images.hostenv import NO_SETTINGS
from wheel_builder.matrix.model import Plan
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.progress import Planned, Progress
from wheel_builder.pipeline.release import until
from wheel_builder.pipeline.steps import Steps


def ran(steps: Steps, args: argparse.Namespace) -> bool:
    """Run the steps; a dry run prints them instead, and has no results."""
    if args.dry_run:
        print(*numbered(steps), sep="\n")
    else:
        steps.run(plain=args.verbose or None)
    return not args.dry_run


def numbered(steps: Steps) -> Iterator[str]:
    planned = steps.planned
    return (f"[{number}/{len(planned)}] {step.title}" for number, step in enumerate(planned, 1))


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


def made_until(stage: str, plan: Plan, args: argparse.Namespace, context: RunContext) -> list[Path]:
    """Run the stages up to ``stage``; the folders of its results, none after a dry run."""
    steps, made = until(stage, plan, context)
    return [one.result.path for one in made] if ran(steps, args) else []


def stop_after(stage: str) -> Callable[[argparse.Namespace], None]:
    """A command that runs the stages up to ``stage`` and prints the paths of its results."""

    def command(args: argparse.Namespace) -> None:
        context = run_context(args)
        with handing_over(args, context):
            made = made_until(stage, plan_of(args), args, context)
        for path in copy_wheels(made, to) if (to := getattr(args, "to", None)) else made:
            print(path)

    return command


@contextmanager
def handing_over(args: argparse.Namespace, context: RunContext) -> Iterator[None]:
    """Take other machines' results before a run, and hand over the used ones after it; not of a dry run."""
    if args.dry_run:
        yield
        return
    log = context.log("handover")
    if holds_images(args.take):
        ensure_engine(install=context.install_engine, log=context.log("engine"))
    for folder in args.take:
        take(folder, context.store, log=log)
    yield
    if args.give:
        give(context.used, args.give, taken=args.take, log=log)
