"""How names, paths and times are put into words for people; pure."""

import difflib
import math
from collections.abc import Iterable
from pathlib import Path


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Say that ``name`` is unknown, what it may have been meant to be, and what there is."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    guess = f"did you mean {close[0]}? " if close else ""
    return f"unknown {kind} {name!r}: {guess}known: {', '.join(names) or 'none'}"


def shown(path: Path) -> str:
    """The path as a user would type it: relative when it is below the working directory."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def duration(seconds: float) -> str:
    """A measured time: ``0.4 s``, ``41 s``, ``1 min 15 s``, ``1 h 2 min``."""
    if seconds < 0.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def time_left(seconds: float) -> str:
    """An estimated time, rounded up to what an estimate can know."""
    if seconds < 10:
        return "a few seconds left"
    if seconds <= 50:
        return f"about {math.ceil(seconds / 10) * 10} s left"
    minutes = math.ceil(seconds / 60)
    if minutes < 60:
        return f"about {minutes} min left"
    tens = math.ceil(minutes / 10) * 10
    return f"about {tens // 60} h {tens % 60} min left"
