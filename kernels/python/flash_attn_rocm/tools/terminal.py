"""Tables and progress bars on a terminal."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO, TypeVar

T = TypeVar("T")
WIDTH = 30


def progress(things: Iterable[T], words: str, stream: TextIO | None = None) -> Iterator[T]:
    """Yields ``things`` with a progress bar and its text. Without a terminal there is no bar."""
    stream = sys.stderr if stream is None else stream
    every = list(things)
    for number, each in enumerate(every):
        _show(stream, f"{bar(number, len(every))} {words} {each}")
        yield each
    _show(stream, "")


def bar(done: int, every: int) -> str:
    """``[####----] 4/8``."""
    full = WIDTH * done // every
    return f"[{'#' * full}{'-' * (WIDTH - full)}] {done}/{every}"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, columns aligned, the first to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_cells(row, widths)).rstrip() for row in rows]


def _cells(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    yield row[0].ljust(widths[0])
    yield from (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))


def _show(stream: TextIO, line: str) -> None:
    if stream.isatty():
        stream.write(f"\r\x1b[K{line}")
        stream.flush()
