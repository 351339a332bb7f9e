"""The environment variables of this package: accepted values, and problems of the set ones."""

import difflib
import os
from collections.abc import Iterator, Mapping

from flash_attn_rocm.values.paths import BACKWARD as PATHS
from flash_attn_rocm.values.paths import SEPARATE

PREFIX = "FLASH_ATTN_ROCM_"
STRICT, CANARY, BACKWARD = f"{PREFIX}STRICT", f"{PREFIX}CANARY", f"{PREFIX}BACKWARD"
SWITCH = ("0", "1")
ACCEPTED: Mapping[str, tuple[str, ...]] = {STRICT: SWITCH, CANARY: SWITCH, BACKWARD: PATHS}
# Names of earlier releases, still accepted.
FORMER = {"split": SEPARATE}
SPELLINGS = {"false": "0", "no": "0", "off": "0", "true": "1", "yes": "1", "on": "1"}


def switch(name: str, *, default: bool) -> bool:
    """Whether a variable is 1. Raises ValueError for values other than 0 and 1."""
    value = os.environ.get(name, "")
    refuse(name, value)
    return default if not value else _plain(value) == "1"


def refuse(name: str, value: str) -> None:
    """Raises ValueError for an invalid value of a variable. An empty value counts as unset."""
    if found := problem(name, value):
        raise ValueError(found)


def problem(name: str, value: str) -> str:
    """The problem with a variable's value and the remedy, or ""."""
    accepted = ACCEPTED.get(name)
    if accepted is None:
        close = difflib.get_close_matches(name, ACCEPTED, n=1)
        meant = f"; {close[0]} may be meant" if close else ""
        return f"{name}: expected one of {', '.join(ACCEPTED)}{meant}\n  next: unset it"
    if not value or FORMER.get(value, value) in accepted or (accepted == SWITCH and _plain(value) in SWITCH):
        return ""
    return (
        f"{name}: expected {', '.join(accepted)} or nothing, got {value!r}\n"
        f"  next: unset it, or set it to {' or '.join(accepted)}"
    )


def given(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The set variables of this package, including misspelt ones."""
    return ((name, value) for name, value in sorted(environment.items()) if name.startswith(PREFIX))


def _plain(value: str) -> str:
    return SPELLINGS.get(value.lower(), value)
