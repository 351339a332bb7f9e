"""The command line: the only place that prints errors and sets exit codes.  Commands are in ``commands``."""

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper

from wheel_builder.base.errors import ToolsError, WheelBuilderError
from wheel_builder.base.mend import files_error
from wheel_builder.base.words import visible
from wheel_builder.cli.command import Command
from wheel_builder.cli.commands import commands_for

INTERRUPTED = 130
BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None, commands: Sequence[Command] | None = None) -> int:
    """Run one subcommand and return the exit code.  Without one, print the list of commands."""
    words = sys.argv[1:] if argv is None else argv
    try:
        with _terminate_as_interrupt():
            # Inside the ``try``, because a command's imports take long enough to be interrupted.
            return _run(words, commands_for(words) if commands is None else commands)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "wheel_builder":
            raise
        missing = ToolsError.of(error, words)
        print(error_text(missing), file=sys.stderr)
        return missing.exit_code
    except KeyboardInterrupt:
        print("interrupted: finished steps are kept; run the same command again to continue", file=sys.stderr)
        return INTERRUPTED


def _run(words: Sequence[str], commands: Sequence[Command]) -> int:
    parser = _parser(commands)
    args = parser.parse_args(words)
    if isinstance(sys.stdout, TextIOWrapper):
        # An unprintable character on a terminal must not end a build.
        sys.stdout.reconfigure(errors="backslashreplace")
    if args.command is None:
        parser.print_help()
        return 0
    return _guarded(args)


def _guarded(args: argparse.Namespace) -> int:
    try:
        args.run(args)
        sys.stdout.flush()
    except WheelBuilderError as error:
        return _failed(error, args)
    except BrokenPipeError:
        # The reader is gone (head, less). Python would report that again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        return _failed(files_error(error), args)
    return 0


def _failed(error: WheelBuilderError, args: argparse.Namespace) -> int:
    if getattr(args, "verbose", False):
        traceback.print_exc()
    print(error_text(error), file=sys.stderr)
    return error.exit_code


def error_text(error: WheelBuilderError) -> str:
    """A failure as the terminal shows it: the problem, its place (the notes of ``progress``), and the
    remedy."""
    notes: list[str] = getattr(error, "__notes__", [])
    lines = [f"error: {error.message}", *notes]
    if error.advice:
        lines.append(f"  next: {error.advice}")
    elif notes:
        lines.append("  next: fix this and run the same command again; finished steps are kept")
    # Names and texts in it may come from a file with terminal control characters.
    return visible("\n".join(lines))


def _parser(commands: Sequence[Command]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/wheel-builder",
        description="Builds, checks and publishes the wheels defined in matrix.yaml.",
        allow_abbrev=False,
    )
    parser.set_defaults(command=None)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for command in commands:
        sub = subparsers.add_parser(
            command.name, help=command.help, description=command.help, allow_abbrev=False
        )
        sub.set_defaults(run=command.run)
        for add_options in command.options:
            add_options(sub)
    return parser


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """Let a plain ``kill`` clean up as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
