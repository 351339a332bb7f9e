"""The share of the kernels' machine code executed by the emulated suite, and reasons for the rest.

For each kernel the suite's record has the number of instructions and each block of adjacent instructions that
no wave executed. ``not_executed.toml`` gives the reasons, by the text of a block and of the instructions
before it. Too many blocks without a reason are refused by name.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

# Of each kernel's instructions: those executed, used as padding, or with a reason.
LEAST = 0.98
ALIGNING = re.compile(r"s_nop \d+")
REASONS = "wheel_builder/verify/not_executed.toml"
# Of all instructions: those executed or with a reason. Calls and reasons are made for the default ROCm
# version's code, which has a higher limit (tests/release/test_verify.py). Other compilers shift a few.
LEAST_EXPLAINED = 0.995
UNEXPLAINED = "no case of the corpus reaches it"
SHOWN = 10  # blocks without a reason, by name


@dataclass(frozen=True)
class Reason:
    """Why blocks of ``kernels`` (a name pattern) are not executed. They have ``text`` (a regular expression)
    in ``every`` instruction, or in some, and ``behind`` in the few instructions before them. Executed blocks
    may look ``alike``."""

    kernels: str
    text: re.Pattern[str]
    why: str
    every: bool = False
    behind: re.Pattern[str] = re.compile("")
    alike: bool = False

    def explains(self, kernel: str, block: Mapping[str, Any]) -> bool:
        found = [bool(self.text.search(line)) for line in block["code"]]
        return (
            fnmatch(kernel, self.kernels)
            and (all(found) if self.every else any(found))
            and self.behind.search("\n".join(block["behind"])) is not None
        )


def parse_reasons(text: str) -> tuple[Reason, ...]:
    """The reasons of a file. Raises ``LookupError``, ``re.error`` or ``tomllib.TOMLDecodeError``."""
    return tuple(
        Reason(
            row["kernels"],
            re.compile(row["text"]),
            row["why"],
            row.get("every", False),
            re.compile(row.get("behind", "")),
            row.get("alike", False),
        )
        for row in tomllib.loads(text).get("reason", [])
    )


def accounted_share(kernel: str, found: Mapping[str, Any], reasons: Sequence[Reason]) -> float:
    """The share of a kernel's instructions that are executed or have a reason.

    Padding blocks are left out.
    """
    aligning, missed = 0, 0
    for block in found["not_executed"]:
        if all(ALIGNING.fullmatch(line) for line in block["code"]):
            aligning += len(block["code"])
        elif _why(kernel, block, reasons) == UNEXPLAINED:
            missed += len(block["code"])
    counted: int = found["instructions"] - aligning
    return 1 - missed / counted


def explained(coverage: Mapping[str, Any], reasons: Sequence[Reason]) -> Mapping[str, Any]:
    """``coverage`` for the record: numbers, and each block not executed with its reason."""
    return {
        kernel: {
            "instructions": each["instructions"],
            "executed": each["instructions"] - sum(len(block["code"]) for block in each["not_executed"]),
            "not_executed": [
                {"offset": block["offset"], "code": block["code"], "why": _why(kernel, block, reasons)}
                for block in each["not_executed"]
            ],
        }
        for kernel, each in coverage.items()
    }


def _why(kernel: str, block: Mapping[str, Any], reasons: Sequence[Reason]) -> str:
    return next((reason.why for reason in reasons if reason.explains(kernel, block)), UNEXPLAINED)


def coverage_problems(coverage: Mapping[str, Any], reasons: Sequence[Reason]) -> Iterator[str]:
    """Why a record's coverage does not vouch for a wheel."""
    if not coverage:
        yield "no kernel's instructions were counted"
    for kernel, each in sorted(coverage.items()):
        if (share := accounted_share(kernel, each, reasons)) < LEAST:
            yield (
                f"{kernel}: {share:.1%} of its instructions were executed or have a reason in {REASONS}, "
                f"expected at least {LEAST:.0%}"
            )
    yield from _unexplained(coverage, reasons)


def _unexplained(coverage: Mapping[str, Any], reasons: Sequence[Reason]) -> Iterator[str]:
    blocks = [
        (kernel, block)
        for kernel, each in coverage.items()
        for block in each["not_executed"]
        if _why(kernel, block, reasons) == UNEXPLAINED
    ]
    total = sum(each["instructions"] for each in coverage.values())
    missed = sum(len(block["code"]) for _, block in blocks)
    if missed <= (1 - LEAST_EXPLAINED) * total:
        return
    yield (
        f"{missed} of {total} instructions never ran without a reason in {REASONS}, expected at most "
        f"{1 - LEAST_EXPLAINED:.1%}"
    )
    for kernel, block in sorted(blocks, key=lambda each: -len(each[1]["code"]))[:SHOWN]:
        first = block["code"][0]
        yield f"{kernel}+{block['offset']:#x}: {len(block['code'])} of them, from `{first}` on"
    if len(blocks) > SHOWN:
        yield f"{len(blocks) - SHOWN} more such blocks"
