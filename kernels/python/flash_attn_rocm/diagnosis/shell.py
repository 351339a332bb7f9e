"""Command lines for users, in Windows' cmd or a POSIX shell."""

import shlex

from flash_attn_rocm.diagnosis.facts import Facts


def set_line(facts: Facts, name: str, value: str) -> str:
    """The line to set a variable."""
    return f"set {name}={value}" if facts.windows else f"export {name}={value}"


def unset_line(facts: Facts, *names: str) -> str:
    """The line to remove variables."""
    if facts.windows:
        return " & ".join(f'set "{name}="' for name in names)
    return f"unset {' '.join(map(shlex.quote, names))}"


def remove_line(facts: Facts, path: str) -> str:
    """The line to remove a file."""
    return f"{'del' if facts.windows else 'rm'} {quoted(facts, path)}"


def quoted(facts: Facts, text: str) -> str:
    """The text as one word."""
    return f'"{text}"' if facts.windows else shlex.quote(text)
