"""The table at the end of a release: results per wheel, and omissions with their reasons; pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import ReleaseError, WheelBuilderError
from wheel_builder.base.words import aligned, shown
from wheel_builder.index.finder.html import Html, element, joined, void
from wheel_builder.matrix.model import LINUX, Plan, wheel_words
from wheel_builder.pipeline.release import Attempt

SCHEMA = 1
RERUN = "put these right and run the same command again; finished steps are kept"
# A release has no step on a GPU, and the records of scripts/test-on-gpu do not name the wheel.
NO_GPU = "run on hardware: none, no AMD GPU took part"
HEADINGS = (
    "ROCm",
    "built",
    "audited",
    "executed on an ISA emulator",
    "run on hardware",
    "published",
    "loads under",
)
STYLE = (
    ":root{color-scheme:light dark;font-family:system-ui,sans-serif}body{margin:2rem}"
    "table{border-collapse:collapse}th,td{border:1px solid;padding:.3rem .6rem;text-align:left}"
    "caption{text-align:left;padding:.5rem 0}pre{white-space:pre-wrap}"
)


@dataclass(frozen=True)
class Row:
    """One wheel of the plan. ``rocm`` may be ``PUBLIC``, and ``platform`` is linux or windows.

    ``emulated`` are the archs with kernels executed on the ISA emulator. ``serves`` are the ROCm versions
    under whose runtimes it loads; the index omits versions with their own wheel of its public version.
    ``failure`` is the reason that the job stopped, or empty. ``passed`` are its successful steps.
    """

    rocm: str
    archs: tuple[str, ...]
    built: bool
    audited: bool
    emulated: tuple[str, ...]
    published: bool
    serves: tuple[str, ...]
    failure: str = ""
    platform: str = LINUX
    passed: tuple[str, ...] = ()


@dataclass(frozen=True)
class NotBuilt:
    """A combination of the matrix without a wheel. An empty ``arch`` means the whole ROCm version."""

    rocm: str
    arch: str
    reason: str
    platform: str = LINUX


@dataclass(frozen=True)
class Coverage:
    rows: tuple[Row, ...]
    not_built: tuple[NotBuilt, ...]


def coverage_of(plan: Plan, attempts: Sequence[Attempt]) -> Coverage:
    """The coverage of a release."""
    rejected = tuple(NotBuilt(one.rocm, one.arch, one.reason, one.platform) for one in plan.rejected)
    return Coverage(tuple(_row(attempt) for attempt in attempts), rejected)


def to_json(coverage: Coverage) -> str:
    return json.dumps({"schema": SCHEMA, "note": NO_GPU, **asdict(coverage)}, indent=2) + "\n"


def to_table(coverage: Coverage) -> str:
    """The table for the terminal: aligned columns, failures, omissions."""
    rows = [HEADINGS, *(_cells(row) for row in coverage.rows)]
    lines = [*aligned(rows, left=len(HEADINGS)), NO_GPU]
    lines += [
        f"{wheel_words(row.rocm, row.platform)} {words}"
        for row in coverage.rows
        if row.failure
        for words in (f"failed: {row.failure}", f"passed before: {_passed(row)}")
    ]
    lines += [f"not built: {_not_built(one)}" for one in coverage.not_built]
    return "\n".join(lines)


def to_html(coverage: Coverage) -> str:
    """The table as an HTML page."""
    head = element("tr", *(element("th", heading, scope="col") for heading in HEADINGS))
    body = [_html_row(row) for row in coverage.rows]
    table = element(
        "table",
        element("caption", "Release coverage: wheels by ROCm version"),
        element("thead", head),
        element("tbody", *body),
    )
    failed = [
        joined(
            element("h2", f"{wheel_words(row.rocm, row.platform)} failed"),
            element("pre", row.failure),
            element("p", f"Passed before: {_passed(row)}"),
        )
        for row in coverage.rows
        if row.failure
    ]
    missing = [element("li", _not_built(one)) for one in coverage.not_built]
    left_out = joined(element("h2", "Not built"), element("ul", *missing)) if missing else Html("")
    said = element("p", NO_GPU)
    page = element(
        "html",
        element(
            "head",
            void("meta", charset="utf-8"),
            void("meta", name="viewport", content="width=device-width"),
            element("title", "Release coverage"),
            element("style", Html(STYLE)),
        ),
        element("body", element("main", element("h1", "Release coverage"), table, said, *failed, left_out)),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


def _row(attempt: Attempt) -> Row:
    archs: Mapping[str, Any] = attempt.record["archs"] if attempt.record else {}
    own = () if attempt.job.public else (attempt.job.name,)
    return Row(
        rocm=attempt.job.name,
        archs=attempt.job.archs,
        built=attempt.wheel is not None,
        audited=attempt.audited,
        emulated=tuple(arch for arch, found in archs.items() if found["passed"]) or _emulated(attempt),
        published=attempt.published is not None,
        serves=(*own, *attempt.record["serves"]) if attempt.record else (),
        failure=attempt.failure.message if attempt.failure else "",
        platform=attempt.job.platform,
        passed=attempt.passed,
    )


def _emulated(attempt: Attempt) -> tuple[str, ...]:
    """The archs with passed suites, from a run that stopped before it wrote the record."""
    if attempt.record:
        return ()
    steps = {words[1] for words in map(str.split, attempt.passed) if words[0] == "emulate"}
    return tuple(arch for arch in attempt.job.archs if arch in steps)


def _passed(row: Row) -> str:
    return ", ".join(row.passed) or "nothing"


def _cells(row: Row) -> tuple[str, ...]:
    total = len(row.archs)
    where = "" if row.platform == LINUX else ", under wine"
    counts = (f"{len(row.emulated)} of {total} archs{where}", f"0 of {total} archs")
    serves = " ".join(row.serves) or "none"
    name = row.rocm if row.platform == LINUX else f"{row.rocm}, {row.platform}"
    return (name, _yes(row.built), _yes(row.audited), *counts, _yes(row.published), serves)


def _html_row(row: Row) -> Html:
    first, *rest = _cells(row)
    return element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in rest))


def _not_built(one: NotBuilt) -> str:
    return f"{wheel_words(one.rocm, one.platform)}{f' {one.arch}' if one.arch else ''}: {one.reason}"


def _yes(value: bool) -> str:  # noqa: FBT001
    return "yes" if value else "no"


def write_coverage(coverage: Coverage, folder: Path) -> tuple[str, ...]:
    """Write ``coverage.json`` and ``coverage.html`` into ``folder``. Returns the lines to print."""
    pages = {"coverage.json": to_json(coverage), "coverage.html": to_html(coverage)}
    for name, text in pages.items():
        ensure(folder / name, text.encode())
    return tuple(f"written to {shown(folder / name)}" for name in pages)


def raise_failures(attempts: Sequence[Attempt]) -> None:
    """Raise the only job's failure as it is. Failures among several jobs become a ``ReleaseError``."""
    failed = [(one.job.id, one.failure) for one in attempts if one.failure]
    if not failed:
        return
    if len(attempts) == 1:
        raise failed[0][1]
    title = f"{len(failed)} of {len(attempts)} jobs failed; the others are published"
    raise ReleaseError(title, (_told(job, error) for job, error in failed), advice=RERUN)


def _told(job: str, error: WheelBuilderError) -> str:
    notes: list[str] = getattr(error, "__notes__", [])
    return "\n".join(
        [f"{job}: {error.message}", *notes, *([f"    next: {error.advice}"] if error.advice else [])]
    )
