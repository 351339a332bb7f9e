"""A run as a list of steps: each is planned with its work, so a dry run shows exactly what would run.

steps = Steps(context, package)
image = steps.add("image", lambda _: build_image())
steps.add("wheel", lambda _: build_wheel(image.result))
steps.run()
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from wheel_builder.base.errors import WheelBuilderError
from wheel_builder.base.mend import files_error
from wheel_builder.base.store import Artifact
from wheel_builder.images.docker import threads
from wheel_builder.matrix.model import Package
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.progress import Planned, Progress
from wheel_builder.pipeline.progress import Step as Shown

T = TypeVar("T")
UNCHANGED = "unchanged"


@dataclass
class Part:
    """Some steps of a run: a failure ends only these."""

    failure: WheelBuilderError | None = field(default=None, kw_only=True)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Keep a failure."""
        try:
            yield
        except WheelBuilderError as error:
            self.failure = error
        except BrokenPipeError:
            # Nobody reads the output any more, so the whole run ends.
            raise
        except OSError as error:
            self.failure = files_error(error)


@dataclass(eq=False)
class Step(Generic[T]):
    """A step and its work. ``made`` is the work's result, None before its end."""

    planned: Planned
    work: Callable[[Shown], T]
    log: Path | None = None
    made: T | None = None

    @property
    def result(self) -> T:
        """The work's result, for later steps."""
        assert self.made is not None, f"{self.planned.title} has not run"
        return self.made

    def run(self, progress: Progress) -> None:
        with progress.step(self.planned.name, job=self.planned.job, log=self.log) as shown:
            made = self.work(shown)
            if isinstance(made, Artifact) and made.reused:
                shown.skipped(UNCHANGED)
            self.made = made


@dataclass(eq=False)
class Beside(Generic[T]):
    """Parallel work, ``most`` at a time. ``cost`` gives the CPU-seconds of a result.

    Each has a step. A failure ends the run after the running work; its results are kept.
    """

    works: Sequence[Callable[[], T]]
    most: int
    cost: Callable[[T], float | None]
    steps: list[Step[T]] = field(default_factory=list)
    running: list[Future[tuple[T, float]]] = field(default_factory=list)

    def run(self, progress: Progress) -> None:
        try:
            with threads(self.most) as pool:
                self.running += [pool.submit(_timed, work) for work in self.works]
                for step in self.steps:
                    step.run(progress)
        except WheelBuilderError:
            # Reports about the run include work that succeeded meanwhile.
            for step, future in zip(self.steps, self.running, strict=True):
                if step.made is None and _ended_well(future):
                    step.run(progress)
            raise

    def wait(self, number: int, shown: Shown) -> T:
        """The result of a work, with its own duration."""
        made, seconds = self.running[number].result()
        shown.took(seconds, beside=self.most, cpu_seconds=self.cost(made))
        return made


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    begin = time.monotonic()
    return work(), time.monotonic() - begin


def _ended_well(future: Future[Any]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


@dataclass(frozen=True)
class Steps:
    """The steps of a run in their order, and their common input. A failure ends the steps of its ``part``."""

    context: RunContext
    package: Package
    entries: list[tuple[Part | None, Step[Any] | Beside[Any]]] = field(default_factory=list)
    part: Part | None = None

    def of(self, part: Part) -> Self:
        """Adds steps of ``part`` to the same run."""
        return replace(self, part=part)

    def add(
        self, name: str, work: Callable[[Shown], T], *, job: str = "", weight: float = 1.0, log: str = ""
    ) -> Step[T]:
        """Plan a step. ``log`` is the name of its log, ``weight`` as in ``Planned``."""
        step = self._step(name, work, job=job, weight=weight, log=log)
        self.entries.append((self.part, step))
        return step

    def beside(
        self,
        works: Mapping[str, tuple[str, Callable[[], T]]],
        *,
        most: int,
        cost: Callable[[T], float | None],
        job: str,
        weight: float,
    ) -> list[Step[T]]:
        """Plan steps side by side: for each name the name of its log, and its work."""
        group = Beside([work for _, work in works.values()], most, cost)
        for number, (name, (log, _)) in enumerate(works.items()):
            work = partial(group.wait, number)
            group.steps.append(self._step(name, work, job=job, weight=weight, log=log))
        self.entries.append((self.part, group))
        return group.steps

    def _step(self, name: str, work: Callable[[Shown], T], *, job: str, weight: float, log: str) -> Step[T]:
        return Step(Planned(name, job, weight), work, self.context.log(log) if log else None)

    @property
    def planned(self) -> list[Planned]:
        steps = (entry.steps if isinstance(entry, Beside) else [entry] for _, entry in self.entries)
        return [step.planned for group in steps for step in group]

    def progress(self, plain: bool | None) -> Progress:  # noqa: FBT001
        return Progress(self.planned, sys.stderr, self.context.build / "durations.json", plain=plain)

    def run(self, *, plain: bool | None = None) -> None:
        """Run all. Raises the first failure outside of any part."""
        with self.progress(plain) as progress:
            self.run_shown(progress)

    def run_shown(self, progress: Progress) -> None:
        for part, entry in self.entries:
            if part is None:
                entry.run(progress)
            elif part.failure is None:
                with part.going_on():
                    entry.run(progress)
