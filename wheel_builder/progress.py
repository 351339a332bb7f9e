"""What a long run shows: plain lines in CI, one live line on a terminal, and notes on a failure.

    with Progress(planned, sys.stderr, Path("build/durations.json")) as progress:
        with progress.step("device code gfx942", job="rocm7.2", log=log) as step:
            step.skipped("unchanged")     # or do the work

The time left comes from how long the same steps took before, and from weights for steps that were
never measured.  Before anything was measured no time is shown.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from wheel_builder.errors import WheelBuilderError
from wheel_builder.words import duration, shown, time_left

TAIL_LINES = 25
TAIL_BYTES = 64 * 1024


@dataclass(frozen=True)
class Planned:
    """A step to come.  Only the ratio of weights counts, and only until the step was measured once."""

    name: str
    job: str = ""
    weight: float = 1.0

    @property
    def title(self) -> str:
        return f"{self.job} {self.name}".lstrip()


@dataclass
class Step:
    """The step that runs now; ``log`` is the file that its tools print to."""

    planned: Planned
    number: int
    total: int
    log: Path | None
    begin: float
    skip_reason: str = field(default="", init=False)

    def skipped(self, reason: str) -> None:
        """Say that there was nothing to do; the time it took is not kept."""
        self.skip_reason = reason

    @property
    def title(self) -> str:
        return f"[{self.number}/{self.total}] {self.planned.title}"


class Display(Protocol):
    """Where lines go.  ``status`` is asked for whenever the live line is drawn."""

    def start(self, status: Callable[[], str]) -> None: ...
    def begun(self, line: str) -> None: ...
    def ended(self, line: str) -> None: ...
    def stop(self) -> None: ...


class PlainDisplay:
    """One line when a step begins and one when it ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def start(self, status: Callable[[], str]) -> None:
        """Nothing to draw: there is no live line."""

    def begun(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    ended = begun

    def stop(self) -> None:
        """Nothing to clear."""


class LiveDisplay:
    """Finished steps scroll up; the last line says what runs, since when and how long still."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream)
        self._spinner = Spinner("dots")
        self._status: Callable[[], str] = str
        self._live = Live(get_renderable=self._line, console=self._console, transient=True)

    def start(self, status: Callable[[], str]) -> None:
        self._status = status
        self._live.start()

    def begun(self, line: str) -> None:  # noqa: ARG002 - the live line says it, with more
        self._live.refresh()

    def ended(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        self._live.stop()

    def _line(self) -> Spinner:
        self._spinner.update(text=Text(self._status(), no_wrap=True, overflow="ellipsis"))
        return self._spinner


class Progress:
    """Shows the steps of one run, one at a time, in any order.

    ``history`` keeps the seconds of each step for the next run's estimate.  ``plain`` None decides
    by the stream and the environment.
    """

    def __init__(
        self,
        planned: Sequence[Planned],
        stream: TextIO,
        history: Path,
        *,
        plain: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._planned = planned
        self._history = history
        self._clock = clock
        self._seconds = read_history(history)
        self._done: list[Step] = []
        self._current: Step | None = None
        plain = wants_plain(stream, os.environ) if plain is None else plain
        self._display: Display = PlainDisplay(stream) if plain else LiveDisplay(stream)

    def __enter__(self) -> Self:
        self._begin = self._clock()
        self._display.start(self._status)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._display.stop()

    @contextlib.contextmanager
    def step(self, name: str, *, job: str = "", log: Path | None = None) -> Iterator[Step]:
        """Run one step.  A failure inside gets a note with the step, its job and the log's last lines."""
        planned = Planned(name, job)
        step = Step(planned, len(self._done) + 1, len(self._planned), log, self._clock())
        self._current = step
        self._display.begun(f"{step.title} …")
        try:
            yield step
        except BaseException as error:
            verb = "failed" if isinstance(error, Exception) else "interrupted"
            self._end(step, verb)
            if isinstance(error, WheelBuilderError | OSError):
                error.add_note(failure_note(step, str(error), last_lines(log)))
            raise
        self._end(step, "done")

    def summary(self) -> str:
        """What the run was, for its last line."""
        skipped = sum(1 for step in self._done if step.skip_reason)
        took = duration(self._clock() - self._begin)
        return f"{len(self._done)} steps in {took}" + (
            f", {skipped} of them had nothing to do" if skipped else ""
        )

    def _end(self, step: Step, verb: str) -> None:
        seconds = self._clock() - step.begin
        self._current = None
        self._done.append(step)
        self._display.ended(ended_line(step, verb, seconds))
        if verb == "done" and not step.skip_reason:
            self._seconds[step.planned.title] = seconds
            write_history(self._history, self._seconds)

    def _status(self) -> str:
        step = self._current
        if step is None:
            return ""
        done = {past.planned.title for past in self._done}
        ahead = [one for one in self._planned if one.title not in done]
        elapsed = self._clock() - step.begin
        return status_line(step, elapsed, seconds_left(ahead, self._seconds, step.planned.title, elapsed))


def wants_plain(stream: TextIO, env: Mapping[str, str]) -> bool:
    """Whether a live line would be lost: no terminal, a CI's log, a terminal without cursor moves."""
    return not stream.isatty() or bool(env.get("CI")) or env.get("TERM", "dumb") == "dumb"


def ended_line(step: Step, verb: str, seconds: float) -> str:
    if step.skip_reason and verb == "done":
        return f"{step.title} … skipped: {step.skip_reason}"
    log = f" (log: {shown(step.log)})" if step.log else ""
    return f"{step.title} … {verb} {'in' if verb == 'done' else 'after'} {duration(seconds)}{log}"


def status_line(step: Step, elapsed: float, left: float | None) -> str:
    parts = [step.title, duration(max(1, elapsed))]
    if left is not None:
        parts.append(time_left(left))
    return " · ".join(parts)


def seconds_left(
    ahead: Sequence[Planned], measured: Mapping[str, float], current: str, elapsed: float
) -> float | None:
    """Seconds until the steps ``ahead`` are done, ``current`` among them running since ``elapsed``.

    A step never measured takes what its weight says, by the rate of the measured ones ahead.  None
    when none of them was ever measured.
    """
    known = [step for step in ahead if step.title in measured]
    if not known:
        return None
    rate = sum(measured[step.title] for step in known) / sum(step.weight for step in known)
    estimates = {step.title: measured.get(step.title, step.weight * rate) for step in ahead}
    current_left = max(0.0, estimates.pop(current, 0.0) - elapsed)
    return current_left + sum(estimates.values())


def failure_note(step: Step, message: str, tail: Sequence[str]) -> str:
    """Where a run failed; the log's last lines only when the message does not have them already."""
    job = f", job {step.planned.job}" if step.planned.job else ""
    lines = [f"  step: {step.planned.name} ({step.number} of {step.total}){job}"]
    if step.log and str(step.log) not in message:
        lines += [f"  | {line}" for line in tail]
        lines.append(f"  log: {shown(step.log)}")
    return "\n".join(lines)


def last_lines(log: Path | None) -> list[str]:
    """The end of a log, without what would move a terminal's cursor; empty when there is no log."""
    if log is None or not log.is_file():
        return []
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - TAIL_BYTES))
        text = stream.read().decode("utf-8", errors="replace")
    lines = text.rstrip().splitlines()[-TAIL_LINES:]
    return ["".join(char for char in line if char.isprintable() or char == "\t") for line in lines]


def read_history(path: Path) -> dict[str, float]:
    """Seconds by step title.  An estimate is no reason to stop: what cannot be read counts as unmeasured."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(values, dict):
        return {}
    return {str(key): float(value) for key, value in values.items() if isinstance(value, int | float)}


def write_history(path: Path, seconds: Mapping[str, float]) -> None:
    """Keep the durations, whole or not at all; a folder that cannot be written to is no failure."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f"{path.name}.{os.getpid()}")
        aside.write_text(json.dumps(dict(seconds), indent=2, sort_keys=True) + "\n", encoding="utf-8")
        aside.replace(path)
