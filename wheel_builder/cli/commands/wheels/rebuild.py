"""A published wheel, built again and compared."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from wheel_builder.base.errors import WheelError
from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT, index_option, jobs_option, names
from wheel_builder.cli.runs import step_shown
from wheel_builder.index.folder import newest_wheels
from wheel_builder.matrix.model import PUBLIC
from wheel_builder.pipeline.progress import Planned
from wheel_builder.provenance.rebuild import rebuild


def published_wheels(args: argparse.Namespace) -> Iterator[Path]:
    """The newest wheels of each selected ROCm version. Prints the versions without wheels."""
    for rocm in args.published:
        yield from (found := newest_wheels(args.index, rocm))
        if not found:
            what = "public wheel" if rocm == PUBLIC else f"wheel of ROCm {rocm}"
            print(f"{args.index} has no {what} that is not yanked")


def run(args: argparse.Namespace) -> None:
    if not (args.wheels or args.published):
        message = "no wheel was given"
        raise WheelError(message, advice="name a .whl file, or ROCm versions with --published")
    for wheel in [*args.wheels, *published_wheels(args)]:
        log = ROOT / "build" / "logs" / "rebuild.log"
        with step_shown(Planned(f"rebuild {wheel.name}", weight=900), log=log):
            rebuilt = rebuild(wheel, ROOT, jobs=args.jobs, log=log)
        print(f"{rebuilt.wheel}: built again from commit {rebuilt.commit}, bit for bit the same file")
        print(f"sha256     {rebuilt.sha256}", f"built in   {rebuilt.image}", sep="\n")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("wheels", nargs="*", type=Path, metavar="WHEEL")
    parser.add_argument(
        "--published",
        type=names,
        action="extend",
        default=[],
        metavar="V[,V]",
        help="also the newest wheel in the index of each given ROCm version, or public",
    )
    index_option(parser)
    jobs_option(parser)


COMMAND = Command(
    "rebuild", "rebuild a wheel from its provenance statement and compare bit for bit", run, (options,)
)
