"""Why a build failed: what its log shows, the cause in words, and what to do next (``causes.toml``)."""

import re
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wheel_builder.build_log.lines import text_of

# A line that holds none of these shows no cause.
MARKS = (
    b"rror", b"Killed", b"o space left", b"rgument list too long", b"ndefined symbol", b"ndefined reference",
    b"GLIBCXX", b"annot allocate", b"ut of memory", b"bad_alloc", b"137", b"not found", b"No such file",
    b"invalid target", b"unknown target", b"unsupported", b"not supported", b"not a git", b"can't open file",
    b"FAILED: ", b"KeyboardInterrupt", b" find ", b"build stopped", b"No HIP GPUs", b"cannot determine",
    b"No module named",
)  # fmt: skip
MAX_SHOWN = 5
ARCH_OF_ERRORS = re.compile(rb"errors? generated when compiling for ([\w:+-]+)")
COMPILER_ERROR = re.compile(rb"(?:^|\s)(?:fatal |\w*)[Ee]rror: ")
FAILED = re.compile(rb"FAILED: (?:\[code=\d+\] )?(\S+)")
STOPPED = re.compile(
    rb"ninja: build stopped|ERROR: Failed (?:building|to build)|error: command .* failed"
    rb"|subprocess-exited-with-error|Error compiling objects for extension|does not compile:$"
)


@dataclass(frozen=True)
class Rule:
    """A row of the table."""

    key: str
    patterns: tuple[re.Pattern[bytes], ...]
    what: str
    next: str


@dataclass
class Cause:
    """One cause: what the log says about it first, where, how often, and in which arch's pass."""

    key: str
    what: str
    next: str
    line: int
    excerpt: str
    times: int = 1
    arch: str = ""


def load_rules() -> tuple[Rule, ...]:
    """The table, in its order."""
    rows: list[dict[str, Any]] = tomllib.loads(
        Path(__file__).with_name("causes.toml").read_text(encoding="utf-8")
    )["cause"]
    return tuple(
        Rule(row["key"], tuple(re.compile(p.encode()) for p in row["patterns"]), row["what"], row["next"])
        for row in rows
    )


INTERRUPTED = (b"build stopped: interrupted by user", b"KeyboardInterrupt")


class Causes:
    """Collects what the lines of a log say about its failure."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.stopped = self.interrupted = False
        self.errors: list[tuple[int, str]] = []
        self._rules = load_rules()
        self._found: dict[tuple[str, str], tuple[int, Cause]] = {}
        self._without_arch: list[Cause] = []

    def see(self, number: int, line: bytes) -> None:
        """Look at one line, without the sequences that colour it."""
        if found := FAILED.search(line):
            self._failed(text_of(found[1]))
        self.interrupted = self.interrupted or any(mark in line for mark in INTERRUPTED)
        self.stopped = self.stopped or bool(STOPPED.search(line))
        if found := ARCH_OF_ERRORS.search(line):
            for cause in self._without_arch:
                cause.arch = text_of(found[1])
            self._without_arch.clear()
            return
        for order, rule in enumerate(self._rules):
            found = next(filter(None, (pattern.search(line) for pattern in rule.patterns)), None)
            if found:
                groups = {name: text_of(group, 120) for name, group in found.groupdict().items()}
                self._add(order, rule, groups, (number, text_of(line)))
                return
        if COMPILER_ERROR.search(line) and len(self.errors) < MAX_SHOWN:
            self.errors.append((number, text_of(line)))

    def _failed(self, name: str) -> None:
        self.stopped = True
        if name not in self.failed and len(self.failed) < MAX_SHOWN:
            self.failed.append(name)

    def _add(self, order: int, rule: Rule, groups: Mapping[str, str], seen: tuple[int, str]) -> None:
        what = rule.what.format_map(defaultdict(str, groups))
        if known := self._found.get((rule.key, what)):
            known[1].times += 1
        elif len(self._found) < MAX_SHOWN * len(self._rules):
            cause = Cause(rule.key, what, rule.next.format_map(defaultdict(str, groups)), *seen)
            self._found[rule.key, what] = (order, cause)
            self._without_arch.append(cause)

    def ranked(self) -> tuple[Cause, ...]:
        """The causes, the likeliest first."""
        found = sorted(self._found.values(), key=lambda pair: (pair[0], pair[1].line))
        return tuple(cause for _, cause in found[:MAX_SHOWN])
