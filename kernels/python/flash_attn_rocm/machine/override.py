"""HSA_OVERRIDE_GFX_VERSION, under which GPUs call themselves another arch: "10.3.0" is gfx1030."""

import re

_VALUE = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{1,2})")
_NAME = re.compile(r"gfx(\d{1,2})([0-9a-f])([0-9a-f])")


def arch_of(value: str) -> str:
    """The arch that GPUs call themselves with that value; "" for a value that is none."""
    found = _VALUE.fullmatch(value)
    if found is None:
        return ""
    major, minor, stepping = map(int, found.groups())
    return f"gfx{major}{minor:x}{stepping:x}"


def value_for(arch: str) -> str:
    """The value under which GPUs call themselves ``arch``; "" for a name of no single arch."""
    found = _NAME.fullmatch(arch)
    if found is None:
        return ""
    major, minor, stepping = found.groups()
    return f"{major}.{int(minor, 16)}.{int(stepping, 16)}"
