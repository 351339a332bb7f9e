"""Why a build failed: what its log shows, the cause in words, and what to do next (``causes.toml``)."""

import re
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wheel_builder.build_log.lines import text_of

# Only lines with one of these are looked at; few, because each is one more search through the whole log.
MARKS = (
    b"rror: ", b"compiling for ", b"exited-with", b"rror compiling", b"Killed", b"137", b"left on device",
    b"ut of memory", b"bad_alloc", b"annot allocate", b"list too long", b"undefined re", b"find -l",
    b"not found", b"FAILED: ", b"build stopped", b"not a git", b"Interrupt", b"open file", b"not compile:",
    b"HIP GPUs", b"cannot determine",
)  # fmt: skip
MAX_SHOWN = 5
ARCH_OF_ERRORS = re.compile(rb"errors? generated when compiling for ([\w:+-]+)")
COMPILER_ERROR = re.compile(rb"(?:^|\s)(?:fatal |\w*)[Ee]rror: ")
FAILED = re.compile(rb"FAILED: (?:\[code=\d+\] )?(\S+)")
STOPS = (
    b"build stopped",
    b"Failed ",
    b"command ",
    b"exited-with",
    b"Error: ",
    b"Error comp",
    b"not compile:",
)
STOPPED = re.compile(
    rb"ninja: build stopped|ERROR: Failed (?:building|to build)|error: [Cc]ommand |linker command failed"
    rb"|subprocess-exited-with-error|^(?:\S+Z )?\s*\w*Error: |Error compiling objects for extension"
    rb"|does not compile:$"
)


@dataclass(frozen=True)
class Rule:
    """A row of the table."""

    key: str
    marks: tuple[bytes, ...]
    patterns: tuple[re.Pattern[bytes], ...]
    what: str
    next: str


@dataclass
class Cause:
    """One cause: what the log says about it first, where, how often, in which arch's pass, and where last."""

    key: str
    what: str
    next: str
    line: int
    excerpt: str
    times: int = 1
    arch: str = ""
    last: int = 0


def load_rules() -> tuple[Rule, ...]:
    """The table, in its order."""
    rows: list[dict[str, Any]] = tomllib.loads(
        Path(__file__).with_name("causes.toml").read_text(encoding="utf-8")
    )["cause"]
    return tuple(
        Rule(
            row["key"],
            tuple(mark.encode() for mark in row["marks"]),
            tuple(re.compile(pattern.encode()) for pattern in row["patterns"]),
            row["what"],
            row["next"],
        )
        for row in rows
    )


INTERRUPTED = (b"build stopped: interrupted by user", b"KeyboardInterrupt")


class Causes:
    """Collects what the lines of a log say about its failure."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.stopped = 0  # the last line that says so
        self.interrupted = False
        self.errors: list[tuple[int, str]] = []
        self._rules = load_rules()
        self._orders = [(mark, order) for order, rule in enumerate(self._rules) for mark in rule.marks]
        self._found: dict[tuple[str, str], tuple[int, Cause]] = {}
        self._without_arch: list[Cause] = []

    def see(self, number: int, line: bytes) -> None:
        """Look at one line, without the sequences that colour it."""
        self._ended(number, line)
        if b"compiling for " in line and (found := ARCH_OF_ERRORS.search(line)):
            for cause in self._without_arch:
                cause.arch = text_of(found[1])
            self._without_arch.clear()
        elif not self._matched(number, line) and len(self.errors) < MAX_SHOWN and COMPILER_ERROR.search(line):
            self.errors.append((number, text_of(line)))

    def _ended(self, number: int, line: bytes) -> None:
        self.interrupted = self.interrupted or INTERRUPTED[0] in line or INTERRUPTED[1] in line
        if b"FAILED: " in line and (found := FAILED.search(line)):
            self.stopped = number
            self._failed(text_of(found[1]))
        elif [mark for mark in STOPS if mark in line] and STOPPED.search(line):
            self.stopped = number

    def _matched(self, number: int, line: bytes) -> bool:
        for order in sorted({order for mark, order in self._orders if mark in line}):
            rule = self._rules[order]
            found = next(filter(None, (pattern.search(line) for pattern in rule.patterns)), None)
            if found:
                groups = {name: text_of(group, 120) for name, group in found.groupdict().items() if group}
                self._add(order, rule, groups, (number, text_of(line)))
                return True
        return False

    def _failed(self, name: str) -> None:
        if name not in self.failed and len(self.failed) < MAX_SHOWN:
            self.failed.append(name)

    def _add(self, order: int, rule: Rule, groups: Mapping[str, str], seen: tuple[int, str]) -> None:
        what = rule.what.format_map(defaultdict(str, groups))
        if known := self._found.get((rule.key, what)):
            known[1].times += 1
            known[1].last = seen[0]
        elif len(self._found) < MAX_SHOWN * len(self._rules):
            cause = Cause(rule.key, what, rule.next.format_map(defaultdict(str, groups)), *seen, last=seen[0])
            self._found[rule.key, what] = (order, cause)
            self._without_arch.append(cause)

    def ranked(self) -> tuple[Cause, ...]:
        """The causes, the likeliest first."""
        found = sorted(self._found.values(), key=lambda pair: (pair[0], pair[1].line))
        return tuple(cause for _, cause in found[:MAX_SHOWN])
