"""Progress of a long run: plain lines in CI, one live line on a terminal, and notes on a failure.

    with Progress(planned, sys.stderr, Path("build/durations.json")) as progress:
        with progress.step("device code gfx942", job="rocm7.2", log=log) as step:
            step.skipped("unchanged")     # or do the work

The time left is estimated from the steps' durations in earlier runs, and from weights (rough seconds) for
unmeasured steps. rich would estimate from the current run alone, where the step is still ahead.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import Progress as LiveLine
from rich.progress import ProgressColumn, SpinnerColumn, Task
from rich.text import Text

from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import WheelBuilderError
from wheel_builder.base.machine import cpu_seconds
from wheel_builder.base.words import duration, shown, time_left
from wheel_builder.pipeline.step_costs import StepCost

TAIL_LINES = 25
TAIL_BYTES = 64 * 1024


@dataclass(frozen=True)
class Planned:
    """A step to come.  Its weight, rough seconds on two idle cores, counts until it has been measured."""

    name: str
    job: str = ""
    weight: float = 1.0

    @property
    def title(self) -> str:
        return f"{self.job} {self.name}".lstrip()


@dataclass
class Step:
    """The current step. Its tools print to the file ``log``."""

    planned: Planned
    number: int
    total: int
    log: Path | None
    begin: float
    begin_cpu: float = 0.0
    say: Callable[[str], None] = print
    skip_reason: str = field(default="", init=False)
    aside: float | None = field(default=None, init=False)
    beside: int = field(default=1, init=False)
    passed: bool = field(default=False, init=False)
    own_cpu: float | None = field(default=None, init=False)

    def note(self, text: str) -> None:
        """Tell something before the step ends."""
        self.say(f"{self.title}: {text}")

    def skipped(self, reason: str) -> None:
        """Report that there was nothing to do. The step's time is left out of the history."""
        self.skip_reason = reason

    def took(self, seconds: float, *, beside: int, cpu_seconds: float | None = None) -> None:
        """Report the time of work that ran during earlier steps, ``beside`` of them at a time.

        ``cpu_seconds`` are the work's own. Without them the cost is the machine's during the step.
        """
        self.aside, self.beside, self.own_cpu = seconds, beside, cpu_seconds

    @property
    def own_log(self) -> Path:
        """The log of a step planned with one."""
        assert self.log is not None
        return self.log

    @property
    def title(self) -> str:
        return f"[{self.number}/{self.total}] {self.planned.title}"


class StatusColumn(ProgressColumn):
    """The live line: the step, its elapsed time, and the time left."""

    def __init__(self, status: Callable[[], str]) -> None:
        super().__init__()
        self._status = status

    def render(self, task: Task) -> Text:  # noqa: ARG002
        return Text(self._status(), no_wrap=True, overflow="ellipsis")


class Progress:
    """Shows the steps of one run, one at a time, in any order.

    ``history`` keeps the seconds of each step for the next run's estimate. If ``plain`` is None, the stream
    and the environment decide.
    """

    def __init__(
        self,
        planned: Sequence[Planned],
        stream: TextIO,
        history: Path,
        *,
        plain: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = cpu_seconds,
    ) -> None:
        self._planned = planned
        self._history = history
        self._clock = clock
        self._cpu = cpu
        self.costs: dict[str, StepCost] = {}
        self._seconds = read_history(history)
        self._done: list[Step] = []
        self._current: Step | None = None
        self._plain = wants_plain(stream, os.environ) if plain is None else plain
        self._console = Console(file=stream)
        self._live = LiveLine(
            SpinnerColumn(style=None), StatusColumn(self._status),
            console=self._console, transient=True, refresh_per_second=4, disable=self._plain,
        )  # fmt: skip

    def __enter__(self) -> Self:
        self._begin = self._clock()
        self._live.start()
        self._live.add_task("")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    @contextlib.contextmanager
    def step(self, name: str, *, job: str = "", log: Path | None = None) -> Iterator[Step]:
        """Run one step.  A failure inside gets a note with the step, its job and the log's last lines."""
        planned = Planned(name, job)
        number, total = len(self._done) + 1, len(self._planned)
        step = Step(planned, number, total, log, self._clock(), self._cpu(), self._print)
        self._current = step
        if self._plain:
            self._print(begun_line(step, self._left(step, 0)))
        self._live.refresh()
        try:
            yield step
        except BaseException as error:
            verb = "failed" if isinstance(error, Exception) else "interrupted"
            self._end(step, verb)
            if isinstance(error, WheelBuilderError | OSError):
                error.add_note(failure_note(step, str(error), last_lines(log)))
            raise
        self._end(step, "done")

    def passed(self, job: str) -> tuple[str, ...]:
        """The names of a job's successful steps, including skipped ones."""
        return tuple(step.planned.name for step in self._done if step.passed and step.planned.job == job)

    def summary(self) -> str:
        """The run's last line."""
        skipped = sum(1 for step in self._done if step.skip_reason)
        took = duration(self._clock() - self._begin)
        return f"{len(self._done)} steps in {took}" + (
            f", {skipped} of them had nothing to do" if skipped else ""
        )

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)

    def _end(self, step: Step, verb: str) -> None:
        seconds = self._clock() - step.begin if step.aside is None else step.aside
        spent = self._cpu() - step.begin_cpu if step.own_cpu is None else step.own_cpu
        self._current = None
        step.passed = verb == "done"
        self._done.append(step)
        self._print(ended_line(step, verb, seconds))
        if verb == "done" and not step.skip_reason:
            # The estimate counts the machine's time once for parallel work.
            self._seconds[step.planned.title] = seconds / step.beside
            self.costs[step.planned.title] = StepCost(seconds, spent)
            write_history(self._history, self._seconds)

    def _status(self) -> str:
        step = self._current
        if step is None:
            return ""
        elapsed = self._clock() - step.begin
        return status_line(step, elapsed, self._left(step, elapsed))

    def _left(self, step: Step, elapsed: float) -> float | None:
        done = {past.planned.title for past in self._done}
        ahead = [one for one in self._planned if one.title not in done]
        return seconds_left(ahead, self._seconds, step.planned.title, elapsed)


def wants_plain(stream: TextIO, env: Mapping[str, str]) -> bool:
    """Whether the output is unfit for a live line: no terminal, a CI's log, no cursor moves."""
    return not stream.isatty() or bool(env.get("CI")) or env.get("TERM", "dumb") == "dumb"


def begun_line(step: Step, left: float | None) -> str:
    """The line of a new step, for output without a live line."""
    return f"{step.title} …" if left is None else f"{step.title} … {time_left(left)}"


def ended_line(step: Step, verb: str, seconds: float) -> str:
    if step.skip_reason and verb == "done":
        return f"{step.title} … skipped: {step.skip_reason}"
    log = f" (log: {shown(step.log)})" if step.log else ""
    beside = ", beside others" if step.beside > 1 else ""
    return f"{step.title} … {verb} {'in' if verb == 'done' else 'after'} {duration(seconds)}{beside}{log}"


def status_line(step: Step, elapsed: float, left: float | None) -> str:
    parts = [step.title, duration(max(1, elapsed))]
    if left is not None:
        parts.append(time_left(left))
    return " · ".join(parts)


def seconds_left(
    ahead: Sequence[Planned], measured: Mapping[str, float], current: str, elapsed: float
) -> float | None:
    """Seconds until the steps ``ahead`` are done; ``current``, one of them, has run for ``elapsed`` seconds.

    An unmeasured step is estimated from its weight and the seconds per weight of the measured steps ahead, or
    1 second per weight without any. None if no step is ahead.
    """
    if not ahead:
        return None
    known = [step for step in ahead if step.title in measured]
    rate = sum(measured[step.title] for step in known) / sum(step.weight for step in known) if known else 1.0
    estimates = {step.title: measured.get(step.title, step.weight * rate) for step in ahead}
    current_left = max(0.0, estimates.pop(current, 0.0) - elapsed)
    return current_left + sum(estimates.values())


def failure_note(step: Step, message: str, tail: Sequence[str]) -> str:
    """Where a run failed, with the log's last lines unless the message already has them."""
    job = f", job {step.planned.job}" if step.planned.job else ""
    lines = [f"  step: {step.planned.name} ({step.number} of {step.total}){job}"]
    if step.log and str(step.log) not in message:
        lines += [f"  | {line}" for line in tail]
        lines.append(f"  log: {shown(step.log)}")
    return "\n".join(lines)


def last_lines(log: Path | None) -> list[str]:
    """The end of a log, without terminal control sequences. Empty without a log."""
    if log is None or not log.is_file():
        return []
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - TAIL_BYTES))
        text = stream.read().decode("utf-8", errors="replace")
    lines = text.rstrip().splitlines()[-TAIL_LINES:]
    return ["".join(char for char in line if char.isprintable() or char == "\t") for line in lines]


def read_history(path: Path) -> dict[str, float]:
    """Seconds by step title. An unreadable file or entry counts as unmeasured."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(values, dict):
        return {}
    return {str(key): float(value) for key, value in values.items() if isinstance(value, int | float)}


def write_history(path: Path, seconds: Mapping[str, float]) -> None:
    """Store the durations. A read-only folder is ignored."""
    with contextlib.suppress(OSError):
        ensure(path, (json.dumps(dict(seconds), indent=2, sort_keys=True) + "\n").encode())
