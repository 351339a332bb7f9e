"""The subcommands, a module each: its options, what it does, and its ``COMMAND``.

Only the module of the command that runs is imported: importing all of them takes 1.0 s of CPU time, those
that ``plan`` needs 0.4 s.
"""

from collections.abc import Sequence
from importlib import import_module

from wheel_builder.cli.command import Command

# In the order of --help.
NAMES = (
    "plan",
    "release",
    "image",
    "device-code",
    "code-objects",
    "wheel",
    "audit",
    "verify",
    "shim",
    "verify-provenance",
    "rebuild",
    "emulate",
    "perf",
    "drift",
    "digests",
    "publish",
    "upload",
    "serve",
    "index",
    "yank",
    "report",
    "runtime-image",
    "explain-log",
    "cost",
    "step-costs",
    "gate",
    "upstream",
    "why",
    "docs",
)


def commands_for(argv: Sequence[str]) -> tuple[Command, ...]:
    """The command at the start of ``argv``; all commands when there is none, for help and errors."""
    return tuple(map(_load, argv[:1] if set(argv[:1]) & set(NAMES) else NAMES))


def _load(name: str) -> Command:
    command: Command = import_module(f"{__name__}.{name.replace('-', '_')}").COMMAND
    return command
