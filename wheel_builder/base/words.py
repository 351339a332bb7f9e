"""Names, paths, times and tables as text for people. Pure."""

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

# Surrogates stand for bytes outside UTF-8. The others change the display of a terminal or a page.
_BREAKS = "\t\n\u2028\u2029"
_UNFIT_SET = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_UNFIT = re.compile(f"[{_UNFIT_SET}]")
# One line accepted by ``line_problem``, as a regular expression.
LINE = rf"(?=.*\S)[^{_UNFIT_SET}{_BREAKS}]+"
MAX_LINE = 2000


def line_problem(text: str) -> str:
    """Why ``text`` is unfit as one line of a file, page or terminal. Empty if it is fit."""
    if not text.strip():
        return "it is empty"
    if len(text) > MAX_LINE:
        return f"it has {len(text)} characters, expected at most {MAX_LINE}"
    if found := next((c for c in text if c in _BREAKS or _UNFIT.match(c)), ""):
        kind = "a byte that is not UTF-8" if "\ud800" <= found <= "\udfff" else "a control character"
        return f"it has U+{ord(found):04X} ({kind}) as character {text.index(found) + 1}"
    return ""


def visible(text: str) -> str:
    """``text`` for a terminal: characters with an effect on the display become escapes, line ends stay."""
    return _UNFIT.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str) -> str:
    """``text`` for a terminal on one line: line breaks, too, are shown as escapes."""
    return re.sub(
        rf"[{_BREAKS}]", lambda found: found[0].encode("unicode_escape").decode("ascii"), visible(text)
    )


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """An error text: ``name`` is unknown, the nearest known name, and the list of known names."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    guess = f"did you mean {close[0]}? " if close else ""
    return f"unknown {kind} {name!r}: {guess}known: {', '.join(names) or 'none'}"


def listed(names: Iterable[str], last: str) -> str:
    """ "a, b and c" for ``last`` "and"."""
    *some, one = names
    return f"{', '.join(some)} {last} {one}" if some else one


def shown(path: Path) -> str:
    """The path as a user would type it: relative when it is below the working directory."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def aligned(rows: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """A line for each row, columns aligned: the first ``left`` to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        padded = [cell.ljust(w) if at < left else cell.rjust(w) for at, (cell, w) in enumerate(cells)]
        lines.append("  ".join(padded).rstrip())
    return lines


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
    """An estimated time, rounded up to the precision of an estimate."""
    if seconds < 10:
        return "a few seconds left"
    if seconds <= 50:
        return f"about {math.ceil(seconds / 10) * 10} s left"
    minutes = math.ceil(seconds / 60)
    if minutes < 60:
        return f"about {minutes} min left"
    tens = math.ceil(minutes / 10) * 10
    return f"about {tens // 60} h {tens % 60} min left"
