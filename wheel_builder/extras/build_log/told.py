"""The sentences of a report, for the terminal and the page alike."""

from collections.abc import Iterator

from wheel_builder.base.words import duration
from wheel_builder.extras.build_log.report import FAILED, Report
from wheel_builder.extras.build_log.timing import Left

SUPPOSED = "if the remaining steps cost as much as the finished ones"


def progress(report: Report) -> str:
    """Steps done and left."""
    if not report.total:
        return f"{report.done} steps done of an unknown number" if report.done else "no steps"
    return f"{report.done} of {report.total} steps done, {report.remaining} left"


def speed(report: Report) -> str:
    """The speed of the build. Empty for logs without times."""
    if report.per_minute is None:
        return ""
    after = f" in {duration(report.elapsed)}" if report.elapsed else ""
    return f"{report.per_minute:.2g} steps a minute{after}"


def time_left(left: Left | None) -> str:
    """The time left, with its interval. Empty if unknown."""
    if left is None:
        return ""
    interval = f"{duration(left.low)} to {duration(left.high)}"
    return f"about {duration(left.seconds)} left ({interval} in 9 cases of 10, {SUPPOSED})"


def jobs(report: Report) -> str:
    """Jobs running against jobs allowed. Empty if both are unknown."""
    ran, allowed = report.jobs_running, report.jobs_allowed
    said = f"{ran.mean:.1f} jobs ran on average, {ran.most} at most" if ran else "running jobs: unknown"
    if allowed is None:
        return f"{said}; allowed: unknown" if ran else ""
    few = ran is not None and ran.mean < 0.75 * allowed
    return f"{said}; allowed: {allowed}" + (", usually fewer ran" if few else "")


def facts(report: Report) -> Iterator[tuple[str, str]]:
    """One-line facts: a heading and its text."""
    yield "build", report.backend
    yield "state", report.state
    yield "progress", progress(report)
    others = ", ".join(f"{done} of {total or '?'}" for done, total in report.other_runs)
    rows = {
        "speed": speed(report),
        "time left": time_left(report.left),
        "jobs": jobs(report),
        "archs": ", ".join(report.archs),
        "also in this log": f"other builds: {others}" if others else "",
    }
    yield from ((name, said) for name, said in rows.items() if said)
    yield from (("note", note) for note in report.notes)


def causes(report: Report) -> Iterator[tuple[str, str, str]]:
    """Each cause in words: its name, the evidence in the log, the next step."""
    for cause in report.causes:
        arch = f" in the pass for {cause.arch}" if cause.arch else ""
        times = f" ({cause.times} times)" if cause.times > 1 else ""
        yield f"{cause.what}{arch}{times}", f"line {cause.line}: {cause.excerpt}", cause.next
    if (
        report.state == FAILED
        and all(cause.follows for cause in report.causes)
        and (report.errors or not report.causes)
    ):
        said = "; ".join(f"line {line}: {text}" for line, text in report.errors) or "no line with error"
        yield (
            "unknown cause",
            said,
            "read the first error above the last messages of ninja or setuptools",
        )
