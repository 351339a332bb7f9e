"""A log as a stream of lines in bounded memory, and the edges of a line: times, colours, steps.

Lines stay bytes until needed as text. Most lines of a long log are never needed.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import BinaryIO

CHUNK = 1 << 20
# The kept part of one line. A link command with 2,782 objects is longer, and its beginning is sufficient.
MAX_LINE = 1 << 16
ESCAPE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[@-Z\\-_])"
)
STEP = re.compile(rb"\[(\d{1,7})/(\d{1,7})\](?:\x1b\[[\d;]*m)* ")
ISO = re.compile(
    rb"\s*\[?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?\]?\s"
)  # GitHub, Jenkins, docker logs --timestamps
# All numbers are limited: a log may contain thousands of digits, too many for a sum.
BUILDKIT = re.compile(rb"#\d{1,9} (\d{1,9}\.\d{1,9}) ")


def read_chunks(stream: BinaryIO, size: int = CHUNK) -> Iterator[bytes]:
    """The stream's bytes as they come."""
    while chunk := stream.read(size):
        yield chunk


class Lines:
    """Splits the input at ends of lines: ``\\n``, and the ``\\r`` of live displays."""

    def __init__(self) -> None:
        self._rest = b""
        self._cutting = False

    def feed(self, data: bytes) -> bytes:
        """Whole lines, each with its ``\\n``.  Of longer ones than ``MAX_LINE`` the rest is dropped."""
        if self._cutting:
            end = data.find(b"\n")
            if end < 0:
                return b""
            data, self._cutting = data[end:], False
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        if len(self._rest) > MAX_LINE:
            self._rest, self._cutting = self._rest[:MAX_LINE], True
        return _ended(data[:end])

    def end(self) -> bytes:
        """The last line, if it lacks an end."""
        last, self._rest = self._rest, b""
        return _ended(last + b"\n") if last else b""


def _ended(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


def plain(line: bytes) -> bytes:
    """The line with sequences for colour and cursor movement removed."""
    return ESCAPE.sub(b"", line) if b"\x1b" in line else line


def text_of(line: bytes, most: int = 400) -> str:
    """A line as text, cut to ``most``. Bytes outside UTF-8 are replaced."""
    cut = plain(line[: 4 * most]).decode("utf-8", errors="replace").strip()
    return cut if len(cut) <= most else f"{cut[: most - 1]}…"


def time_of(line: bytes) -> float | None:
    """The time in front of a line in seconds, as written by CI systems and docker. None if it is missing."""
    if found := ISO.match(line):
        day, clock, fraction, zone = (part.decode() if part else "" for part in found.groups())
        try:
            at = datetime.fromisoformat(f"{day}T{clock}{zone.replace('Z', '+00:00') or '+00:00'}")
        except ValueError:
            return None
        return at.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)
    if found := BUILDKIT.match(line):
        return float(found[1])
    return None
