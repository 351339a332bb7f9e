"""A log's report as values, the only source for the terminal, JSON and the page."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from wheel_builder.extras.build_log.causes import MEMORY, Cause
from wheel_builder.extras.build_log.flags import GROUPS, Flag
from wheel_builder.extras.build_log.names import Described, describe
from wheel_builder.extras.build_log.ninja import Span
from wheel_builder.extras.build_log.read import Log, Run, Step
from wheel_builder.extras.build_log.timing import Left, Running, left, rate, running

OURS = "flash-attn-rocm's own kernels"
FINISHED, FAILED, INTERRUPTED, OPEN = "finished", "failed", "interrupted", "running or truncated"
SLOWEST = 10
NO_TIMES = (
    "the log has no times: use --follow during the build, ninja's own log (--ninja-log "
    "build/temp*/.ninja_log), or time stamps of the CI on each line"
)
WITHOUT_NINJA = (
    "ninja was not found, so one compiler runs at a time for any MAX_JOBS: stop the build, install ninja "
    "(python -m pip install ninja) in its environment, and start it again"
)
NO_SPANS = "the log has no start times of objects: add --ninja-log build/temp*/.ninja_log"


@dataclass(frozen=True)
class Family:
    """Objects of one kind: the number done, and the seconds of objects with known times."""

    name: str
    words: str
    done: int
    timed: int
    seconds: float


@dataclass(frozen=True)
class Made:
    """One object of the report."""

    number: int
    name: str
    words: str
    arch: str
    seconds: float | None
    cpu_seconds: float | None
    peak_mib: int | None


@dataclass(frozen=True)
class Report:
    """One build's log.

    ``total`` is 0 if the log lacks it. Times are in seconds. ``times`` has the ends of steps.
    """

    source: str
    lines: int
    bytes: int
    state: str
    backend: str
    done: int
    total: int
    other_runs: tuple[tuple[int, int], ...]
    elapsed: float | None
    per_minute: float | None
    left: Left | None
    jobs_allowed: int | None
    jobs_running: Running | None
    archs: tuple[str, ...]
    flags: tuple[Flag, ...]
    families: tuple[Family, ...]
    slowest: tuple[Made, ...]
    objects: tuple[Made, ...]
    causes: tuple[Cause, ...]
    errors: tuple[tuple[int, str], ...]
    failed: tuple[str, ...]
    notes: tuple[str, ...] = ()
    spans: tuple[Span, ...] = field(default=(), repr=False)
    times: tuple[float, ...] = field(default=(), repr=False)

    @property
    def remaining(self) -> int:
        return max(0, self.total - self.done)


def explain(log: Log, source: str, ninja: Sequence[Span] = (), *, room: str = "") -> Report:
    """The report of a log. ``ninja`` are the spans of ``.ninja_log``, if it exists.

    ``room`` is the number of upstream's compilers fitting into this machine's memory.
    """
    run = max(log.runs, key=lambda one: (one.total, one.done), default=Run(0, None))
    spans = tuple(ninja) or _spans(run, log.latest)
    times = sorted(span.end for span in ninja) or [step.at for step in run.steps if step.at is not None]
    if not times and spans:
        times = sorted(span.end for span in spans)
    made = _objects(run, spans)
    per_second = rate(times) if len(times) > 1 else None
    backend = _backend(log, made)
    causes = _with_room(log.causes.ranked(), "" if backend == OURS else room)
    state = _state(log, run, causes)
    over = state in (FINISHED, FAILED)
    return Report(
        source=source,
        lines=log.lines,
        bytes=log.bytes,
        state=state,
        backend=backend,
        done=run.done,
        total=run.total,
        other_runs=tuple((one.done, one.total) for one in log.runs if one is not run),
        elapsed=_elapsed(log, spans),
        per_minute=per_second * 60 if per_second else None,
        left=None if over else left(times, max(0, run.total - run.done)),
        jobs_allowed=1 if log.without_ninja else log.jobs,
        jobs_running=running(spans),
        archs=_archs(log, run),
        flags=tuple(sorted(log.flags.values(), key=lambda flag: [*GROUPS].index(flag.group))),
        families=_families(run, spans),
        slowest=tuple(sorted((one for one in made if one.seconds), key=_slowness)[:SLOWEST]),
        objects=made,
        causes=causes if state not in (FINISHED, OPEN) else (),
        errors=tuple(log.causes.errors) if state != FINISHED else (),
        failed=tuple(log.causes.failed) if state != FINISHED else (),
        notes=_notes(log, run, spans, times),
        spans=spans,
        times=tuple(times),
    )


def to_json(report: Report) -> str:
    """Everything as JSON."""
    found = asdict(report)
    objects = zip(found["objects"], report.objects, strict=True)
    found["objects"] = [{**one, "facts": dict(describe(made.name).facts)} for one, made in objects]
    return json.dumps({"schema": 1, **found, "remaining": report.remaining})


def _slowness(one: Made) -> float:
    return -(one.seconds or 0.0)


def _state(log: Log, run: Run, causes: Sequence[Cause]) -> str:
    if log.causes.interrupted and not causes:
        return INTERRUPTED
    if log.causes.stopped > log.finished:
        return FAILED
    if log.finished:
        return FINISHED
    if log.causes.in_a_file or log.causes.last_error > log.stepped:
        return FAILED
    if run.total and run.done >= run.total:
        return FINISHED
    # Tools print such messages in successful builds too. After the last step, they end a build.
    return FAILED if any(cause.last > log.stepped for cause in causes) else OPEN


def _with_room(causes: Sequence[Cause], room: str) -> tuple[Cause, ...]:
    return tuple(
        replace(cause, next=f"{cause.next}; {room}") if room and cause.key == MEMORY else cause
        for cause in causes
    )


def _backend(log: Log, made: Sequence[Made]) -> str:
    names = [one.name for one in made[:200]]
    if any(name.startswith("fa_") for name in names):
        return OURS
    if any(name.startswith(("fmha_", "mha_", "flash_api")) for name in names):
        return "flash-attention's Composable Kernel (CK) backend"
    if log.triton and log.finished and not names and not log.extension:
        return "flash-attention's Triton backend: nothing is compiled before a kernel's first call"
    return f"the extension {log.extension}" if log.extension else "unknown"


def _spans(run: Run, latest: float | None) -> tuple[Span, ...]:
    """Starts and ends from the log itself."""
    own = tuple(step.span for step in run.steps if step.span)
    if own or run.total:
        return own
    # setuptools without ninja: one object after the other, each printed as it begins.
    timed = [step for step in run.steps if step.at is not None]
    ends = [*(step.at for step in timed[1:]), latest]
    pairs = zip(timed, ends, strict=False)
    return tuple(
        Span(s.name, s.at, end) for s, end in pairs if s.at is not None and end is not None and end > s.at
    )


def _seconds(spans: Sequence[Span]) -> dict[str, float]:
    return {span.name.rpartition("/")[2]: span.seconds for span in spans}


def _objects(run: Run, spans: Sequence[Span]) -> tuple[Made, ...]:
    own = any(step.span for step in run.steps)
    seconds = {} if own else _seconds(spans)
    return tuple(_made(step, seconds) for step in run.steps)


def _made(step: Step, seconds: dict[str, float]) -> Made:
    took = step.span.seconds if step.span else seconds.get(step.name)
    described = describe(step.name)
    return Made(
        step.number, described.name, described.words, step.arch, took, step.cpu_seconds, step.peak_mib
    )


def _families(run: Run, spans: Sequence[Span]) -> tuple[Family, ...]:
    own = any(step.span for step in run.steps)
    seconds = {} if own else _seconds(spans)
    done: Counter[str] = Counter()
    took: dict[str, list[float]] = defaultdict(list)
    said: dict[str, Described] = {}
    for step in run.steps:
        described = describe(step.name)
        done[described.family] += 1
        said.setdefault(described.family, described)
        if (time := step.span.seconds if step.span else seconds.get(step.name)) is not None:
            took[described.family].append(time)
    return tuple(
        Family(name, _family_words(said[name]), count, len(took[name]), sum(took[name]))
        for name, count in done.most_common()
    )


def _family_words(one: Described) -> str:
    return one.operation.partition(":")[0] or "unknown objects"


def _archs(log: Log, run: Run) -> tuple[str, ...]:
    flags = [flag.text.partition("=")[2] for flag in log.flags.values() if flag.group == "archs"]
    return tuple(dict.fromkeys([*flags, *(step.arch for step in run.steps if step.arch)]))


def _elapsed(log: Log, spans: Sequence[Span]) -> float | None:
    if log.begun is not None and log.latest is not None and log.latest > log.begun:
        return log.latest - log.begun
    return max(span.end for span in spans) - min(span.start for span in spans) if spans else None


def _notes(log: Log, run: Run, spans: Sequence[Span], times: Sequence[float]) -> tuple[str, ...]:
    found = []
    if not run.ended and not log.triton:
        found.append("the log has no compiler steps: pip hides them without -v")
    elif run.done and not times:
        found.append(NO_TIMES)
    elif run.done and not spans:
        found.append(NO_SPANS)
    if log.without_ninja:
        found.append(WITHOUT_NINJA)
    if log.dropped:
        found.append(f"{log.dropped} steps were only counted")
    return tuple(found)
