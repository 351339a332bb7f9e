"""The subcommands, a module each: options, actions, and a ``COMMAND``.

Only the running command's module is imported: all of them take 1.0 s of CPU time, the imports of ``plan``
0.4 s.
"""

from collections.abc import Sequence
from importlib import import_module

from wheel_builder.cli.command import Command

# The folders, and their commands in the order of --help.
ROOMS = {
    "wheels": (
        "plan",
        "release",
        "image",
        "device-code",
        "code-objects",
        "wheel",
        "shim",
        "rebuild",
        "runtime-image",
    ),
    "checks": ("audit", "verify", "verify-provenance", "emulate", "drift", "digests", "step-costs"),
    "indexes": ("publish", "upload", "serve", "index", "yank", "report"),
    "extras": (
        "perf",
        "tune",
        "candidates",
        "tuning-wheel",
        "explain-log",
        "cost",
        "gate",
        "upstream",
        "why",
        "docs",
    ),
}
PLACES = {name: f"{room}.{name.replace('-', '_')}" for room, names in ROOMS.items() for name in names}
NAMES = tuple(PLACES)


def commands_for(argv: Sequence[str]) -> tuple[Command, ...]:
    """The command at the start of ``argv``. Without one, all commands, for help and errors."""
    return tuple(map(_load, argv[:1] if set(argv[:1]) & set(NAMES) else NAMES))


def _load(name: str) -> Command:
    command: Command = import_module(f"{__name__}.{PLACES[name]}").COMMAND
    return command
