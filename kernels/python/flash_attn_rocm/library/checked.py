"""JSON files that others may have written: bounded, read strictly, each field checked before use.

Every function raises ValueError, in words, for what does not fit.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flash_attn_rocm.values.given import Given

MOST_KERNELS, MOST_ROWS = 128, 16
ROW, DIGEST, KERNEL = (
    re.compile(r"[0-9a-f]{8}"),
    re.compile(r"[0-9a-f]{64}"),
    re.compile(r"fa_[a-z0-9_]{1,60}"),
)


def bounded(path: Path, most: int) -> bytes:
    """The content of a file. Raises OSError, too."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        message = f"expected at most {most} bytes"
        raise ValueError(message)
    return data


def parsed(data: bytes) -> Given:
    """The value of JSON text, without keys given twice and without NaN."""
    try:
        return json.loads(data, object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError as error:
        message = "expected fewer levels"
        raise ValueError(message) from error


def expect(what: str, value: Given, *, fits: bool, expected: str) -> Given:
    """The value."""
    if not fits:
        message = f"{what}: expected {expected}, got {str(value)[:80]}"
        raise ValueError(message)
    return value


def equal(what: str, value: Given, expected: Given) -> None:
    """Nothing but the expected value."""
    expect(what, value, fits=type(value) is type(expected) and value == expected, expected=str(expected))


def fields(what: str, value: Given, *names: str) -> Mapping[str, Any]:
    """An object with exactly these fields."""
    fits = isinstance(value, dict) and sorted(value) == sorted(names)
    return expect(what, value, fits=fits, expected=f"exactly {', '.join(names)}")


def entries(what: str, value: Given, most: int) -> Mapping[str, Any]:
    """An object with 1 to ``most`` entries."""
    fits = isinstance(value, dict) and 0 < len(value) <= most
    return expect(what, value, fits=fits, expected=f"1 to {most}")


def text(what: str, value: Given, most: int, pattern: re.Pattern[str] | None = None) -> str:
    """A text."""
    fits = (
        isinstance(value, str) and 0 < len(value) <= most and (not pattern or bool(pattern.fullmatch(value)))
    )
    expected = pattern.pattern if pattern else f"1 to {most} characters"
    return str(expect(what, value, fits=fits, expected=expected))


def number(what: str, value: Given, least: int, most: int) -> int:
    """A whole number."""
    fits = type(value) is int and least <= value <= most
    return int(expect(what, value, fits=fits, expected=f"a number from {least} to {most}"))


def positive(what: str, value: Given) -> float:
    """A finite number above 0."""
    fits = type(value) in (int, float) and 0 < value <= sys.float_info.max
    return float(expect(what, value, fits=fits, expected="a number above 0"))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        message = "a key is there twice"
        raise ValueError(message)
    return found


def _no_constant(name: str) -> None:
    message = f"expected numbers, got {name}"
    raise ValueError(message)
