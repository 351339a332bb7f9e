"""Causes of a failed build: the evidence in its log, the cause in words, the next step (``causes.toml``)."""

import re
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wheel_builder.extras.build_log.lines import text_of
from wheel_builder.extras.build_log.marks import Marks
from wheel_builder.tables.archs import known_archs

# Only lines with one of these are examined. The list is short: each mark is one more search through the log.
MARKS = (
    b"rror: ", b"compiling for ", b"exited-with", b"rror compiling", b"Killed", b"137", b"139",
    b"left on device",
    b"ut of memory", b"bad_alloc", b"annot allocate", b"list too long", b"undefined re", b"find -l",
    b"not found", b"FAILED: ", b"build stopped", b"atal: ", b"Interrupt", b"open file", b"not compile:",
    b"HIP GPUs", b"cannot determine", b"ermission denied", b"egmentation fault", b"ERROR: ",
    b"NoBinaryForGpu", b"onnection broken", b"CMake Error", b"] Error ", b"Stack dump", b"core dumped",
    b"llegal instruction", b"Assertion ", b"No solution found", b"[error]", b"Terminated",
    b"Failed to build `", b"PLEASE submit", b"UNREACHABLE",
)  # fmt: skip
MAX_SHOWN = 5
MEMORY = "killed for memory"
ARCH_OF_ERRORS = re.compile(rb"errors? generated when compiling for ([\w:+-]+)")
COMPILER_ERROR = re.compile(rb"(?:^|\s)(?:fatal |\w*)(?:[Ee]rror|ERROR): ")
# A compiler's error in a file. It always ends the build.
IN_A_FILE = re.compile(rb":\d+(?::\d+)?: (?:fatal )?error: ")
FAILED = re.compile(rb"FAILED: (?:\[code=\d+\] )?(\S+)")
# Only lines with these marks end a build, apart from errors of Python and of commands.
STOPS = (b"build stopped", b"ERROR: ", b"exited-with", b"rror compiling", b"not compile:")
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
    once: bool  # several lines report one event
    follows: bool  # a consequence of another cause, possibly missing from the log


@dataclass
class Cause:
    """One cause: its first message, line, count, the arch of the pass, and its last line.

    ``follows``: a consequence of another cause.
    """

    key: str
    what: str
    next: str
    line: int
    excerpt: str
    times: int = 1
    arch: str = ""
    last: int = 0
    follows: bool = False


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
            row.get("once", False),
            row.get("follows", False),
        )
        for row in rows
    )


def jobs_that_fit(peak_mib: int, machine_bytes: int) -> str:
    """MAX_JOBS for a machine of this memory. ``peak_mib`` is the peak of one compiler."""
    most = max(1, machine_bytes // (peak_mib << 20))
    return (
        f"one compiler of upstream's CK kernels takes up to {peak_mib} MiB, so with the "
        f"{machine_bytes / 2**30:.1f} GiB of this machine MAX_JOBS={most}"
    )


INTERRUPTED = (b"build stopped: interrupted by user", b"KeyboardInterrupt")


class Causes:
    """Collects evidence of failure from the lines of a log."""

    def __init__(self, searched: Marks) -> None:
        """``searched`` are the marks used to find lines, ``MARKS`` among them."""
        self.failed: list[str] = []
        self.stopped = 0  # the last line with such a message
        self.interrupted = False
        self.errors: list[tuple[int, str]] = []
        self.last_error = 0  # the last line with an error of any kind
        self.in_a_file = False  # whether a compiler said so of a file
        self.since = 0  # the line where the newest object is first named
        self._rules = load_rules()
        # One search for the words of all rules. Most examined lines contain none of them.
        self._words = re.compile(b"|".join(re.escape(mark) for rule in self._rules for mark in rule.marks))
        self._stops = searched.of(STOPS)
        self._found: dict[tuple[str, str], tuple[int, Cause]] = {}
        self._without_arch: list[Cause] = []

    def see(self, number: int, line: bytes, marks: int) -> None:
        """Examine one line without colour sequences. ``marks`` are the bits of its ``MARKS``."""
        self._ended(number, line, marks)
        if b"compiling for " in line and (found := ARCH_OF_ERRORS.search(line)):
            for cause in self._without_arch:
                cause.arch = text_of(found[1])
            self._without_arch.clear()
            return
        matched, error = self._matched(number, line), COMPILER_ERROR.search(line)
        if error:
            self.last_error = number
            self.in_a_file = self.in_a_file or bool(IN_A_FILE.search(line))
        if error and not matched and len(self.errors) < MAX_SHOWN:
            self.errors.append((number, text_of(line)))

    def _ended(self, number: int, line: bytes, marks: int) -> None:
        self.interrupted = self.interrupted or INTERRUPTED[0] in line or INTERRUPTED[1] in line
        if b"FAILED: " in line and (found := FAILED.search(line)):
            self.stopped = self.since = number
            self._failed(text_of(found[1]))
        elif (marks & self._stops or b"Error: " in line or b"ommand " in line) and STOPPED.search(line):
            self.stopped = number

    def _matched(self, number: int, line: bytes) -> bool:
        if not self._words.search(line):
            return False
        for order, rule in enumerate(self._rules):
            if not [mark for mark in rule.marks if mark in line]:
                continue
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
            known[1].times += not (rule.once and known[1].last >= self.since)
            known[1].last = seen[0]
        elif len(self._found) < MAX_SHOWN * len(self._rules):
            advice = rule.next.format_map(defaultdict(str, groups, ours=", ".join(known_archs())))
            cause = Cause(rule.key, what, advice, *seen, last=seen[0], follows=rule.follows)
            self._found[rule.key, what] = (order, cause)
            self._without_arch.append(cause)

    def ranked(self) -> tuple[Cause, ...]:
        """The causes, the likeliest first. If all are consequences, only the first one."""
        found = sorted(self._found.values(), key=lambda pair: (pair[0], pair[1].line))
        causes = [cause for _, cause in found]
        return tuple([cause for cause in causes if not cause.follows][:MAX_SHOWN] or causes[:1])
