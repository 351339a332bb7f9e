"""Reads a log once, from its beginning to its end, and keeps what is worth telling in bounded memory."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from wheel_builder.build_log.causes import MARKS as CAUSE_MARKS
from wheel_builder.build_log.causes import Causes
from wheel_builder.build_log.flags import MAX_WORDS, Flag, flags_of
from wheel_builder.build_log.lines import MAX_LINE, STEP, Lines, plain, text_of, time_of
from wheel_builder.build_log.ninja import Span

# Beyond these, steps are counted and no longer kept one by one.
MAX_STEPS = 10_000
MAX_RUNS = 50
MAX_FLAGS = 500
MAX_NAME = 300
# Where in a line the words of tools are; commands are longer, and have none.
SAYING = 4096
OUTPUT = re.compile(rb" -o ([^\s'\"]+)")
COMPILER = re.compile(
    rb"\s*(?:#\d+ [\d.]+ |\d\S+Z )?(?:ccache )?"
    rb"\S*?(?:hipcc|clang\+\+|clang|g\+\+|gcc|c\+\+|nvcc)(?:-\d+)? .* -o "
)
SHORT = (b"Building ", b"Linking ", b"HIPCC ", b"CXX ")
# kernels/instances/build.py prints these, and `upstream` writes them to its log.
OURS = re.compile(
    rb"((?:fa|fmha)_\w+) for (gfx\w+): ([\d.]+) CPU-seconds, (\d+) MiB, from ([\d.]+) s to ([\d.]+) s"
)
JOBS = re.compile(
    rb"MAX_JOBS \((\d+)\)|MAX_JOBS=(\d+)|'-j', '(\d+)'|ninja\b.* -j ?(\d+)|build\.py .*--jobs (\d+)"
)
PACKAGE = re.compile(rb"building '(\w+)' extension")
MARKS = (
    *CAUSE_MARKS, b" -c ", b"MAX_JOBS", b"-j", b"building '", b"triton_amd", b"Successfully ", b"RECORD'",
)  # fmt: skip
FINISHED = (b"Successfully built ", b"Successfully installed ", b"dist-info/RECORD'")


@dataclass(frozen=True, slots=True)
class Step:
    """One object as the log shows it; ``at`` is when it was done, where the log has times."""

    number: int
    name: str
    at: float | None
    arch: str = ""
    span: Span | None = None
    cpu_seconds: float | None = None
    peak_mib: int | None = None


@dataclass
class Run:
    """Steps that were counted together; ``total`` is 0 where the log does not say how many there are."""

    total: int
    begun: float | None
    done: int = 0
    times: list[float] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


class Log:
    """What was read so far."""

    def __init__(self) -> None:
        self.lines = 0
        self.bytes = 0
        self.begun: float | None = None
        self.latest: float | None = None
        self.jobs: int | None = None
        self.extension = ""
        self.triton = False
        self.finished = self.stepped = 0  # the last lines that say so, and that have a step
        self.runs: list[Run] = []
        self.dropped = 0
        self.flags: dict[str, Flag] = {}
        self.causes = Causes()
        self._cutter = Lines()
        self._tails: set[bytes] = set()
        self._now: float | None = None
        self._kept = 0

    def feed(self, data: bytes, now: float | None = None) -> None:
        """Read on; ``now`` is the time of lines that have none, when they are read as they are written."""
        self.bytes += len(data)
        self._now = now
        self._see(self._cutter.feed(data))

    def end(self) -> None:
        """The log has ended, perhaps in the middle of a line."""
        self._see(self._cutter.end())

    def _see(self, data: bytes) -> None:
        """Whole lines.  Only those are cut out that have a step or one of the marks."""
        if data and self.begun is None:
            self.begun = self._time(data[: data.index(b"\n")])
        steps = [match for match in STEP.finditer(data) if self._counts(match)]
        wanted = {match.start() for match in steps} | {at for mark in MARKS for at in _all(data, mark)}
        before, number = 0, self.lines + 1
        after = -1
        for at in sorted(wanted):
            if at < after:
                continue
            number += data.count(b"\n", before, at)
            start, after = data.rfind(b"\n", 0, at) + 1, data.index(b"\n", at)
            before = at
            self._look(number, data[start : min(after, start + MAX_LINE)])
        self.lines += data.count(b"\n")

    def _counts(self, match: re.Match[bytes]) -> bool:
        """Whether a step is to be looked at; when too many were kept, the rest is only counted."""
        if self._kept < MAX_STEPS:
            return True
        run = self.runs[-1]
        if run.total == int(match[2]):
            run.done = max(run.done, min(int(match[1]), run.total))
            self.dropped += 1
        return False

    def _time(self, line: bytes) -> float | None:
        found = time_of(plain(line))
        self.latest = found if found is not None else self._now
        return self.latest

    def _look(self, number: int, raw: bytes) -> None:
        """One line that may say something."""
        line = plain(raw)
        counted = False
        found = [*STEP.finditer(line), None]
        for match, after in pairwise(found):
            # One line has several steps where processes wrote at the same time.
            if match and self._kept < MAX_STEPS:
                text = line[match.end() : after.start() if after else len(line)]
                counted = self._step(int(match[1]), int(match[2]), text, self._time(line)) or counted
        if not counted and not any(run.total for run in self.runs) and COMPILER.match(line):
            self._uncounted(line)
            counted = True
        self.stepped = number if counted else self.stepped
        said = line[:SAYING]
        self._say(number, said)
        if [mark for mark in CAUSE_MARKS if mark in said]:
            self.causes.see(number, said)

    def _say(self, number: int, line: bytes) -> None:
        if (b"-j" in line or b"MAX_JOBS" in line) and (found := JOBS.search(line)):
            self.jobs = int(next(group for group in found.groups() if group))
        if found := PACKAGE.search(line):
            self.extension = text_of(found[1])
            self._time(line)
        self.triton = self.triton or b"triton_amd" in line
        if [mark for mark in FINISHED if mark in line]:
            self.finished = number

    def _step(self, number: int, total: int, text: bytes, at: float | None) -> bool:
        """Count a step, if the text is one of a build; others print such brackets too."""
        made = self._made(number, text, at)
        if made is None:
            return False
        run = self._run(number, total, at)
        run.done = max(run.done, min(number, total))
        self._keep(run, made)
        return True

    def _made(self, number: int, text: bytes, at: float | None) -> Step | None:
        if found := OURS.match(text):
            name, arch, cpu, peak, start, end = (part.decode() for part in found.groups())
            span = Span(name, float(start), float(end))
            return Step(number, name, at, arch, span, float(cpu), int(peak))
        if found := OUTPUT.search(text):
            self._flags(text)
            return Step(number, text_of(found[1].rpartition(b"/")[2], MAX_NAME), at)
        if text.startswith(SHORT):
            return Step(number, text_of(text.split()[-1].rpartition(b"/")[2], MAX_NAME), at)
        return None

    def _run(self, number: int, total: int, at: float | None) -> Run:
        """The run that a step belongs to: builds side by side have other totals, a new one begins again."""
        run = next((run for run in reversed(self.runs) if run.total == total), None)
        if run is None or (number <= 1 < run.done):
            run = Run(total, at if self.latest is None else self.begun)
            self.runs = [*self.runs[-MAX_RUNS + 1 :], run]
        return run

    def _uncounted(self, line: bytes) -> None:
        """setuptools without ninja prints each command as it begins."""
        found = OUTPUT.search(line)
        if found is None:
            return
        at = self._time(line)
        run = next((run for run in reversed(self.runs) if run.total == 0), None)
        if run is None:
            run = Run(0, at)
            self.runs.append(run)
        run.done += 1
        self._flags(line)
        self._keep(run, Step(run.done, text_of(found[1].rpartition(b"/")[2], MAX_NAME), at))

    def _keep(self, run: Run, step: Step) -> None:
        if self._kept >= MAX_STEPS:
            self.dropped += 1
            return
        self._kept += 1
        run.steps.append(step)

    def _flags(self, text: bytes) -> None:
        """The flags of a command, unless the same words were seen with another object."""
        output = OUTPUT.search(text)
        tail = text[output.end() :] if output else b""
        if tail in self._tails or len(self._tails) >= MAX_FLAGS:
            return
        self._tails.add(tail)
        words = [text_of(word) for word in text.split()[:MAX_WORDS]]
        for flag in flags_of(words[1:]):
            if flag.text not in self.flags and len(self.flags) < MAX_FLAGS:
                self.flags[flag.text] = flag


def _all(data: bytes, mark: bytes) -> Iterator[int]:
    """Where lines have the mark, once for each line."""
    at = data.find(mark)
    while at >= 0:
        yield at
        at = data.find(mark, data.index(b"\n", at))
