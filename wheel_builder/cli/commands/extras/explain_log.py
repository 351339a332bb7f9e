"""Explanations of a build's log."""

import argparse
import sys
import time
from pathlib import Path
from typing import BinaryIO

from rich.console import Console

from kernels.build.machine import usable_memory
from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import LogError
from wheel_builder.base.words import shown
from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT, output_file
from wheel_builder.extras.build_log.causes import jobs_that_fit
from wheel_builder.extras.build_log.lines import CHUNK, read_chunks
from wheel_builder.extras.build_log.ninja import Span, parse_ninja_log
from wheel_builder.extras.build_log.page import to_html
from wheel_builder.extras.build_log.read import Log
from wheel_builder.extras.build_log.report import OPEN, Report, explain, to_json
from wheel_builder.extras.build_log.terminal import show
from wheel_builder.extras.upstream.costs import load_costs

SECONDS = 2.0
FROM_INPUT = "-"


def run(args: argparse.Namespace) -> None:
    spans = _spans(args.ninja_log)
    room = jobs_that_fit(load_costs(ROOT).most_mib, usable_memory())
    log = Log()
    if args.log == FROM_INPUT:
        _read(log, sys.stdin.buffer, follow=False)
        report = explain(log, "standard input", spans, room=room)
    else:
        with Path(args.log).open("rb") as stream:
            _read(log, stream, follow=args.follow)
        report = explain(log, Path(args.log).name, spans, room=room)
    if not log.bytes:
        message = f"{report.source} is empty: expected the output of a build"
        raise LogError(
            message, advice="record both streams of the build: pip install -v … 2>&1 | tee build.log"
        )
    _tell(report, args)


def _tell(report: Report, args: argparse.Namespace) -> None:
    if args.html:
        ensure(args.html, to_html(report).encode())
        print(f"written to {shown(args.html)}", file=sys.stderr)
    if args.json:
        print(to_json(report))
    else:
        show(report, Console(highlight=False))


def _read(log: Log, stream: BinaryIO, *, follow: bool) -> None:
    """Read to the end. When following, until the build is over or the user stops."""
    for chunk in read_chunks(stream):
        log.feed(chunk)
    while follow and (report := explain(log, stream.name)).state == OPEN:
        console = Console(highlight=False)
        console.clear()
        show(report, console)
        time.sleep(SECONDS)
        while chunk := stream.read(CHUNK):
            log.feed(chunk, time.time())
    log.end()


def _spans(path: Path | None) -> tuple[Span, ...]:
    if path is None:
        return ()
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return tuple(parse_ninja_log(lines))
    except ValueError as error:
        message = f"{path} is not a log of ninja: {error}"
        raise LogError(message, advice="name the file .ninja_log in the build's folder") from error


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "log",
        nargs="?",
        default=FROM_INPUT,
        metavar="FILE",
        help="the log (default: -, standard input)",
    )
    parser.add_argument("--follow", action="store_true", help="follow a running build and refresh the report")
    parser.add_argument(
        "--ninja-log", type=Path, metavar="FILE", help="ninja's .ninja_log, with the time of each object"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--html", type=output_file, metavar="FILE", help="also write a page with a timeline")


COMMAND = Command(
    "explain-log", "explain a build log: progress, remaining work, cause of a failure, fix", run, (options,)
)
