"""Reads a log once, from beginning to end, and keeps a summary in bounded memory."""

import re
from dataclasses import dataclass, field
from itertools import pairwise

from wheel_builder.extras.build_log.causes import FAILED, Causes
from wheel_builder.extras.build_log.causes import MARKS as CAUSE_MARKS
from wheel_builder.extras.build_log.flags import MAX_WORDS, Flag, flags_of
from wheel_builder.extras.build_log.lines import MAX_LINE, STEP, Lines, plain, text_of, time_of
from wheel_builder.extras.build_log.marks import Marks
from wheel_builder.extras.build_log.ninja import Span

# Further steps are counted only.
MAX_STEPS = 10_000
MAX_RUNS = 50
MAX_FLAGS = 500
MAX_NAME = 300
# The part of a line searched for messages of tools. Commands are longer and contain none.
SAYING = 4096
OUTPUT = re.compile(rb" -o ([^\s'\"]+)")
COMPILER = re.compile(
    rb"\s*(?:#\d+ [\d.]+ |\d\S+Z )?(?:ccache )?"
    rb"\S*?(?:hipcc|clang\+\+|clang|g\+\+|gcc|c\+\+|nvcc)(?:-\d+)? .* -o "
)
SHORT = (b"Building ", b"Linking ", b"HIPCC ", b"CXX ")
# kernels/build/instances/build.py prints these, and `upstream` writes them to its log.
SECONDS = rb"(\d{1,9}(?:\.\d{1,9})?)"
OURS = re.compile(
    rb"((?:fa|fmha)_\w+) for (gfx[\w-]+): %b CPU-seconds, (\d{1,9}) MiB, from %b s to %b s"
    % (SECONDS, SECONDS, SECONDS)
)
COMMAND_FAILED = re.compile(rb"error: [Cc]ommand '?\S+ failed with exit")
JOBS = re.compile(rb"(?:MAX_JOBS \(|MAX_JOBS=|'-j', '|ninja\b.* -j ?|build\.py .*--jobs )(\d{1,6})\b")
PACKAGE = re.compile(rb"building '(\w+)' extension")
COMMAND, TRITON, NO_NINJA = b" -c ", b"triton_amd", b"could not find ninja"
SAID = (b"MAX_JOBS", b"-j", b"building '", TRITON, NO_NINJA, b"Successfully ", b"RECORD'")
MARKS = Marks((*CAUSE_MARKS, COMMAND, *SAID))
OF_CAUSES, OF_SAID, OF_COMMAND = (MARKS.of(words) for words in (CAUSE_MARKS, SAID, (COMMAND,)))
OF_FAILURE = MARKS.of((b"FAILED: ", b"rror: "))
OF_STEP = MARKS.unused
FINISHED = (b"Successfully built ", b"Successfully installed ", b"dist-info/RECORD'")


@dataclass(frozen=True, slots=True)
class Step:
    """One object in the log. ``at`` is its end, in logs with times."""

    number: int
    name: str
    at: float | None
    arch: str = ""
    span: Span | None = None
    cpu_seconds: float | None = None
    peak_mib: int | None = None


@dataclass
class Run:
    """Steps counted together. ``total`` is 0 if the log lacks it.

    ``ended`` is the number counted by the log, failures included.
    """

    total: int
    begun: float | None
    ended: int = 0
    failed: int = 0
    steps: list[Step] = field(default_factory=list)

    @property
    def done(self) -> int:
        return self.ended - self.failed


class Log:
    """The summary so far."""

    def __init__(self) -> None:
        self.lines = 0
        self.bytes = 0
        self.begun: float | None = None
        self.latest: float | None = None
        self.jobs: int | None = None
        self.extension = ""
        self.triton = self.without_ninja = False
        self.finished = self.stepped = 0  # the last lines with such a message, and with a step
        self.runs: list[Run] = []
        self.dropped = 0
        self.flags: dict[str, Flag] = {}
        self.causes = Causes(MARKS)
        self._cutter = Lines()
        self._tails: set[bytes] = set()
        self._now: float | None = None
        self._kept = 0
        self._totals = False  # whether any run says how many steps it has

    def feed(self, data: bytes, now: float | None = None) -> None:
        """Read on. ``now`` is the time of lines without one, for logs read while they are written."""
        self.bytes += len(data)
        self._now = now
        self._see(self._cutter.feed(data))

    def end(self) -> None:
        """The log has ended, perhaps in the middle of a line."""
        self._see(self._cutter.end())

    def _see(self, data: bytes) -> None:
        """Whole lines. Only lines with a step or a mark are cut out."""
        if data and self.begun is None:
            self.begun = self._time(data[: data.index(b"\n")])
        wanted = MARKS.in_lines(data)
        for match in STEP.finditer(data):
            if self._counts(match):
                start = data.rfind(b"\n", 0, match.start()) + 1
                wanted[start] = wanted.get(start, 0) | OF_STEP
        before, number = 0, self.lines + 1
        for start in sorted(wanted):
            number += data.count(b"\n", before, start)
            end = data.index(b"\n", start)
            self._look(number, data[start : min(end, start + MAX_LINE)], wanted[start])
            before = start
        self.lines += data.count(b"\n")

    def _counts(self, match: re.Match[bytes]) -> bool:
        """Whether to examine a step. After too many kept steps, the rest is only counted."""
        if self._kept < MAX_STEPS:
            return True
        run = self.runs[-1]
        if run.total == int(match[2]):
            run.ended = max(run.ended, min(int(match[1]), run.total))
            self.dropped += 1
        return False

    def _time(self, line: bytes) -> float | None:
        found = time_of(plain(line))
        self.latest = found if found is not None else self._now
        return self.latest

    def _look(self, number: int, raw: bytes, marks: int) -> None:
        """Examine one candidate line. ``marks`` are the marks of ``raw``, plus ``OF_STEP`` for a step."""
        line = plain(raw)
        said = line[:SAYING]
        counted = bool(marks & OF_STEP) and self._steps(line)
        if not counted and marks & OF_COMMAND and not self._totals and COMPILER.match(line):
            self._uncounted(line)
            counted = True
        if counted:
            self.stepped = self.causes.since = number
        if marks & OF_SAID:
            self._say(number, said)
        if marks & OF_CAUSES:
            self.causes.see(number, said, marks & OF_CAUSES)
        if marks & OF_FAILURE:
            self._failed(said)

    def _steps(self, line: bytes) -> bool:
        """Count the steps of a line. Processes writing at the same time put several on one line."""
        counted = False
        for match, after in pairwise([*STEP.finditer(line), None]):
            if match and self._kept < MAX_STEPS:
                text = line[match.end() : after.start() if after else len(line)]
                counted = self._step(int(match[1]), int(match[2]), text, self._time(line)) or counted
        return counted

    def _failed(self, line: bytes) -> None:
        """ninja counts a failed step at its end and reports it then. setuptools names no object."""
        found = FAILED.search(line) if b"FAILED: " in line else None
        if not found and (self._totals or b"ommand " not in line or not COMMAND_FAILED.search(line)):
            return
        name = _name(found[1]) if found else ""
        ended = [run for run in self.runs if run.steps and name in ("", run.steps[-1].name)]
        if ended:
            ended[-1].failed += 1
            ended[-1].steps.pop()

    def _say(self, number: int, line: bytes) -> None:
        if (b"-j" in line or b"MAX_JOBS" in line) and (found := JOBS.search(line)):
            self.jobs = int(found[1])
        if found := PACKAGE.search(line):
            self.extension = text_of(found[1])
            self._time(line)
        self.triton = self.triton or TRITON in line
        self.without_ninja = self.without_ninja or NO_NINJA in line
        if [mark for mark in FINISHED if mark in line]:
            self.finished = number

    def _step(self, number: int, total: int, text: bytes, at: float | None) -> bool:
        """Count a step if the text belongs to a build. Other tools print such brackets too."""
        made = self._made(number, text, at)
        if made is None:
            return False
        run = self._run(number, total, at)
        run.ended = max(run.ended, min(number, total))
        self._keep(run, made)
        return True

    def _made(self, number: int, text: bytes, at: float | None) -> Step | None:
        if found := OURS.match(text):
            name, arch, cpu, peak, start, end = (part.decode() for part in found.groups())
            span = Span(name, float(start), float(end))
            return Step(number, name, at, arch, span, float(cpu), int(peak))
        if found := OUTPUT.search(text):
            self._flags(text)
            return Step(number, _name(found[1]), at)
        if text.startswith(SHORT):
            return Step(number, _name(text.split()[-1]), at)
        return None

    def _run(self, number: int, total: int, at: float | None) -> Run:
        """The run of a step: parallel builds have other totals, a new build begins again."""
        self._totals = True
        run = next((run for run in reversed(self.runs) if run.total == total), None)
        if run is None or (number <= 1 < run.ended):
            run = Run(total, at if self.latest is None else self.begun)
            self.runs = [*self.runs[-MAX_RUNS + 1 :], run]
        return run

    def _uncounted(self, line: bytes) -> None:
        """setuptools without ninja prints each command as it begins."""
        if self._kept >= MAX_STEPS:
            self.runs[-1].ended += 1
            self.dropped += 1
            return
        found = OUTPUT.search(line)
        if found is None:
            return
        at = self._time(line)
        if not self.runs:
            self.runs.append(Run(0, at))
        run = self.runs[-1]
        run.ended += 1
        self._flags(line)
        self._keep(run, Step(run.ended, _name(found[1]), at))

    def _keep(self, run: Run, step: Step) -> None:
        if self._kept >= MAX_STEPS:
            self.dropped += 1
            return
        self._kept += 1
        run.steps.append(step)

    def _flags(self, text: bytes) -> None:
        """The flags of a command, counted once for the same words."""
        output = OUTPUT.search(text)
        tail = text[output.end() :] if output else b""
        if tail in self._tails or len(self._tails) >= MAX_FLAGS:
            return
        self._tails.add(tail)
        words = [text_of(word) for word in text.split()[:MAX_WORDS]]
        for flag in flags_of(words[1:]):
            if flag.text not in self.flags and len(self.flags) < MAX_FLAGS:
                self.flags[flag.text] = flag


def _name(path: bytes) -> str:
    return text_of(path.rpartition(b"/")[2], MAX_NAME)
