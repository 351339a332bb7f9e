"""``.ninja_log``, ninja's record in its build folder: start and end of each object."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

HEADER = "# ninja log v"
MAX_SPANS = 50_000
MILLISECONDS = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True)
class Span:
    """One object: its file, and when it was begun and done, in seconds since the build began."""

    name: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


def parse_ninja_log(lines: Iterable[str]) -> Sequence[Span]:
    """The spans of the last run in a log. Lines of other forms are skipped.

    Raises ``ValueError`` if the first line is of another format.
    """
    entries = iter(lines)
    if not next(entries, "").startswith(HEADER):
        message = f"it does not begin with {HEADER!r}"
        raise ValueError(message)
    spans: dict[str, Span] = {}
    latest = 0.0
    for line in entries:
        span = _span(line)
        if span is None:
            continue
        if span.end < latest:  # ninja appends finished steps: a new run has begun at 0
            spans.clear()
        latest = span.end
        spans[span.name] = span
        if len(spans) >= MAX_SPANS:
            break
    return tuple(spans.values())


def _span(line: str) -> Span | None:
    fields = line.rstrip("\n").split("\t")
    if len(fields) < 5 or not (MILLISECONDS.fullmatch(fields[0]) and MILLISECONDS.fullmatch(fields[1])):
        return None
    start, end = int(fields[0]) / 1000, int(fields[1]) / 1000
    return Span(fields[3], start, end) if end >= start else None
