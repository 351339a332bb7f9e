"""A subcommand: its texts, its options, and the function that it runs."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

Options = Callable[[argparse.ArgumentParser], None]


@dataclass(frozen=True)
class Command:
    """One subcommand: its texts, its function, its options and arguments."""

    name: str
    help: str
    run: Callable[[argparse.Namespace], None]
    options: tuple[Options, ...] = ()
