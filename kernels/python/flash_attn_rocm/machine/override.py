"""HSA_OVERRIDE_GFX_VERSION makes GPUs report another arch: "10.3.0" is gfx1030."""

import re

_VALUE = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{1,2})")
_NAME = re.compile(r"gfx(\d{1,2})([0-9a-f])([0-9a-f])")


def arch_of(value: str) -> str:
    """The arch that GPUs report under that value; "" for an invalid value."""
    found = _VALUE.fullmatch(value)
    if found is None:
        return ""
    major, minor, stepping = map(int, found.groups())
    return f"gfx{major}{minor:x}{stepping:x}"


def value_for(arch: str) -> str:
    """The value that makes GPUs report ``arch``; "" for names other than one arch."""
    found = _NAME.fullmatch(arch)
    if found is None:
        return ""
    major, minor, stepping = found.groups()
    return f"{major}.{int(minor, 16)}.{int(stepping, 16)}"
