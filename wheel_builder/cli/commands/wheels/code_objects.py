"""The sha256 of every code object: two lists are compared with ``diff``, before and after a change."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from wheel_builder.base.store import sha256_file
from wheel_builder.cli.command import Command
from wheel_builder.cli.options import BUILD
from wheel_builder.cli.runs import made_until, run_context
from wheel_builder.cli.selected import plan_of
from wheel_builder.matrix.plan import jobs_to_build


def run(args: argparse.Namespace) -> None:
    plan = plan_of(args)
    folders = made_until("device-code", plan, args, run_context(args))
    places = [f"{job.id}/{arch}" for job in jobs_to_build(plan) for arch in job.archs]
    for place, folder in zip(places, folders, strict=not args.dry_run):
        print(*lines(place, folder), sep="\n")


def lines(place: str, folder: Path) -> Iterator[str]:
    """A line per code object in ``folder``, by name, as sha256sum writes it."""
    return (f"{sha256_file(file)}  {place}/{file.name}" for file in sorted(folder.glob("*.hsaco")))


COMMAND = Command("code-objects", "print the sha256 of every code object", run, BUILD)
