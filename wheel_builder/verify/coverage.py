"""How much of the kernels' machine code the emulated suite executed, and why not the rest.

For each kernel the suite's record has the number of instructions and each run of adjacent instructions that
no wave executed.  ``tests/numerics/not_executed.toml`` gives the reasons, by the text of such a block; a
block without a reason is refused.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

LEAST = 0.98  # of an arch's instructions
REASONS = "tests/numerics/not_executed.toml"
SHOWN = 10  # blocks without a reason, by name


@dataclass(frozen=True)
class Reason:
    """Why blocks of ``kernels`` (a name pattern) are not executed that have ``text`` (a regular expression)
    in ``every`` instruction, or in some."""

    kernels: str
    text: re.Pattern[str]
    why: str
    every: bool = False

    def explains(self, kernel: str, block: Sequence[str]) -> bool:
        found = (self.text.search(line) for line in block)
        return fnmatch(kernel, self.kernels) and (all(found) if self.every else any(found))


def parse_reasons(text: str) -> tuple[Reason, ...]:
    """The reasons of a file; raises ``LookupError``, ``re.error`` or ``tomllib.TOMLDecodeError``."""
    return tuple(
        Reason(row["kernels"], re.compile(row["text"]), row["why"], row.get("every", False))
        for row in tomllib.loads(text).get("reason", [])
    )


def executed_share(coverage: Mapping[str, Any]) -> float:
    """The share of the instructions, in kernels that ran, that some wave executed."""
    total = sum(each["instructions"] for each in coverage.values())
    missed = sum(len(block["code"]) for each in coverage.values() for block in each["not_executed"])
    return 1 - missed / total if total else 0.0


def explained(coverage: Mapping[str, Any], reasons: Sequence[Reason]) -> Mapping[str, Any]:
    """``coverage`` in the record beside a wheel: numbers, and each block not executed with its reason."""
    return {
        kernel: {
            "instructions": each["instructions"],
            "executed": each["instructions"] - sum(len(block["code"]) for block in each["not_executed"]),
            "not_executed": [
                {**block, "why": _why(kernel, block["code"], reasons)} for block in each["not_executed"]
            ],
        }
        for kernel, each in coverage.items()
    }


def _why(kernel: str, block: Sequence[str], reasons: Sequence[Reason]) -> str:
    return next((reason.why for reason in reasons if reason.explains(kernel, block)), "")


def coverage_problems(coverage: Mapping[str, Any], reasons: Sequence[Reason]) -> Iterator[str]:
    """Why a record's coverage does not vouch for a wheel."""
    share = executed_share(coverage)
    if share < LEAST:
        worst = sorted(coverage, key=lambda kernel: executed_share({kernel: coverage[kernel]}))[:3]
        each = ", ".join(f"{kernel} {executed_share({kernel: coverage[kernel]}):.1%}" for kernel in worst)
        yield f"{share:.2%} of the instructions were executed, expected at least {LEAST:.0%}; least of {each}"
    blocks = [
        f"{kernel}+{block['offset']:#x}: {len(block['code'])} instructions never ran, from "
        f"`{block['code'][0]}` on, and {REASONS} has no reason"
        for kernel, each in coverage.items()
        for block in each["not_executed"]
        if not _why(kernel, block["code"], reasons)
    ]
    yield from blocks[:SHOWN]
    if len(blocks) > SHOWN:
        yield f"{len(blocks) - SHOWN} more such blocks"
