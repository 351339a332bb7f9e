"""The sha256 of every code object: two lists are compared with ``diff``, before and after a change."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from wheel_builder.base.store import sha256_file
from wheel_builder.cli.command import Command
from wheel_builder.cli.options import BUILD
from wheel_builder.cli.runs import dry_run, run_context
from wheel_builder.cli.selected import plan_of
from wheel_builder.matrix.plan import jobs_to_build
from wheel_builder.pipeline.release import run_until

STAGE = "device-code"


def run(args: argparse.Namespace) -> None:
    plan = plan_of(args)
    if args.dry_run:
        dry_run(STAGE, plan)
        return
    folders = run_until(STAGE, plan, run_context(args), plain=args.verbose or None)
    places = [f"{job.id}/{arch}" for job in jobs_to_build(plan) for arch in job.archs]
    for place, folder in zip(places, folders, strict=True):
        print(*lines(place, folder), sep="\n")


def lines(place: str, folder: Path) -> Iterator[str]:
    """A line per code object in ``folder``, by name, as sha256sum writes it."""
    return (f"{sha256_file(file)}  {place}/{file.name}" for file in sorted(folder.glob("*.hsaco")))


COMMAND = Command("code-objects", "print the sha256 of every code object", run, BUILD)
