"""The end of a release: a table as text, JSON and HTML, and the failures of some jobs among several."""

import errno
import json
import os
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from wheel_builder.base.errors import DeviceCodeError, FilesError, ReleaseError, VerifyError
from wheel_builder.base.store import Artifact
from wheel_builder.matrix.model import Job, Package, Plan, Rejection, Rocm
from wheel_builder.pipeline import release as pipeline
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.coverage import (
    coverage_of,
    raise_failures,
    to_html,
    to_json,
    to_table,
    write_coverage,
)
from wheel_builder.pipeline.release import Attempt
from wheel_builder.pipeline.steps import Part

EMULATED = "executed on an ISA emulator, not run on hardware"
ARCHS = ("gfx908", "gfx942")
BUILT = Artifact(None, {"key": "w", "facts": {"wheel": "a.whl"}}, reused=False)


def job(rocm):
    return Job(Rocm(rocm, "debian", "debian:sid-slim", "/usr/lib/llvm-22/bin", ARCHS), ARCHS)


def shown(how=EMULATED, **changes):
    return {"numerics": how, "passed": True, **changes}


@pytest.fixture
def attempts(tmp_path):
    record = {"archs": {"gfx908": shown(), "gfx942": shown(passed=False)}, "serves": ["6.4"]}
    good = Attempt(job("7.2"), wheel=BUILT, audited=True, record=record, published=tmp_path)
    steps = ("builder image", "device code gfx908")
    bad = Attempt(job("6.4"), failure=DeviceCodeError("<no> code", ["one & two"]), passed=steps)
    return good, bad


@pytest.fixture
def coverage(attempts):
    package = Package("2.10", "2.13.0", "0" * 64, "manylinux_2_28_x86_64", 12)
    rejected = (Rejection("5.7", "", "no torch runs on it"), Rejection("7.1", "gfx908", "why not"))
    return coverage_of(Plan((job("7.2"), job("6.4")), rejected, package), attempts)


def test_a_row_is_how_far_its_job_came(coverage):
    good, bad = coverage.rows
    assert (good.emulated, good.serves) == (("gfx908",), ("7.2", "6.4"))
    assert (bad.built, bad.audited, bad.emulated, bad.published, bad.serves) == (False, False, (), False, ())


def test_no_arch_counts_as_run_on_hardware_and_all_forms_say_that_no_gpu_took_part(attempts):
    record = {"archs": dict.fromkeys(ARCHS, shown()), "serves": []}
    coverage = coverage_of(Plan((), (), None), [replace(attempts[0], record=record)])
    words = "run on hardware: none, no AMD GPU took part"
    assert to_table(coverage).splitlines()[1:] == [
        "7.2   yes    yes      2 of 2 archs                 0 of 2 archs     yes        7.2", words,
    ]  # fmt: skip
    assert f"<p>{words}</p>" in to_html(coverage)
    assert json.loads(to_json(coverage))["note"] == words
    assert "hardware" not in json.loads(to_json(coverage))["rows"][0]


def test_archs_that_were_executed_under_wine_are_said_to_be(attempts):
    windows = replace(attempts[0].job, platform="windows")
    record = {"archs": {"gfx908": shown(), "gfx942": shown(passed=False)}, "serves": []}
    coverage = coverage_of(Plan((), (), None), [Attempt(windows, wheel=BUILT, audited=True, record=record)])
    assert "1 of 2 archs, under wine" in to_table(coverage).splitlines()[1]
    assert "<td>1 of 2 archs, under wine</td>" in to_html(coverage)


@pytest.mark.parametrize("wine", ["", " under wine"])
def test_suites_that_passed_before_another_step_failed_are_counted(wine):
    """It said "emulated": [] after nine suites had passed."""
    steps = ("static checks", "emulator", f"emulate gfx942{wine}")
    failed = Attempt(job("7.2"), wheel=BUILT, audited=True, failure=VerifyError("no"), passed=steps)
    coverage = coverage_of(Plan((), (), None), [failed])
    [row] = json.loads(to_json(coverage))["rows"]
    assert (row["emulated"], row["passed"]) == (["gfx942"], [*steps])
    assert "1 of 2 archs" in to_table(coverage)
    assert f"ROCm 7.2 passed before: {', '.join(steps)}" in to_table(coverage)
    assert f"<p>Passed before: {', '.join(steps)}</p>" in to_html(coverage)


def test_an_arch_with_findings_counts_nowhere(attempts):
    record = {"archs": {"gfx908": shown(passed=False), "gfx942": shown()}, "serves": []}
    [row] = coverage_of(Plan((), (), None), [replace(attempts[0], record=record)]).rows
    assert row.emulated == ("gfx942",)


def test_the_table(coverage):
    assert to_table(coverage).splitlines() == [
        "ROCm  built  audited  executed on an ISA emulator  run on hardware  published  loads under",
        "7.2   yes    yes      1 of 2 archs                 0 of 2 archs     yes        7.2 6.4",
        "6.4   no     no       0 of 2 archs                 0 of 2 archs     no         none",
        "run on hardware: none, no AMD GPU took part",
        "ROCm 6.4 failed: <no> code",
        "  - one & two",
        "ROCm 6.4 passed before: builder image, device code gfx908",
        "not built: ROCm 5.7: no torch runs on it",
        "not built: ROCm 7.1 gfx908: why not",
    ]


def test_json_has_the_same(coverage):
    document = json.loads(to_json(coverage))
    assert document["schema"] == 1
    assert [row["rocm"] for row in document["rows"]] == ["7.2", "6.4"]
    first = {"rocm": "5.7", "arch": "", "reason": "no torch runs on it", "platform": "linux"}
    assert document["not_built"][0] == first


class Text(HTMLParser):
    """The tags and texts of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page_escapes_what_a_compiler_said(coverage):
    page = to_html(coverage)
    assert "<no>" not in page
    found = Text(page)
    assert "no" not in found.tags
    assert found.tags.count("tr") == 3
    assert "<no> code\n  - one & two" in found.texts


def test_both_files_are_written(coverage, tmp_path):
    lines = write_coverage(coverage, tmp_path)
    assert [line.rpartition("/")[2] for line in lines] == ["coverage.json", "coverage.html"]
    assert json.loads((tmp_path / "coverage.json").read_text())["rows"]


def test_no_failure_raises_nothing(attempts):
    raise_failures(attempts[:1])


def test_the_failure_of_the_only_job_is_raised_as_it_was(attempts):
    with pytest.raises(DeviceCodeError):
        raise_failures(attempts[1:])


def test_failures_among_several_are_told_together(attempts):
    error = VerifyError("tests failed", advice="read the log")
    error.add_note("  step: verify (9 of 20), job rocm7.1")
    with pytest.raises(ReleaseError) as caught:
        raise_failures([*attempts, Attempt(job("7.1"), failure=error)])
    text = str(caught.value)
    assert text.startswith("2 of 3 jobs failed; the others are published\n  - rocm6.4: <no> code")
    assert "rocm7.1: tests failed\n  step: verify (9 of 20), job rocm7.1\n    next: read the log" in text


def test_a_failed_job_lets_the_others_go_on():
    attempt = Part()
    with attempt.going_on():
        message = "failed"
        raise VerifyError(message)
    assert attempt.failure.message == "failed"
    with pytest.raises(KeyboardInterrupt), attempt.going_on():
        raise KeyboardInterrupt


def test_a_full_disk_ends_its_job_and_no_other():
    attempt = Part()
    with attempt.going_on():
        error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "dist/a.whl")
        error.add_note("  step: publish (9 of 20), job rocm7.2")
        raise error
    assert isinstance(attempt.failure, FilesError)
    assert attempt.failure.message == (
        "dist/a.whl: expected to read or write a file, found: No space left on device"
    )
    assert attempt.failure.advice.startswith("make room (df -h)")
    assert attempt.failure.__notes__ == ["  step: publish (9 of 20), job rocm7.2"]
    with pytest.raises(BrokenPipeError), attempt.going_on():
        raise BrokenPipeError


def test_a_release_builds_and_publishes_the_other_jobs_after_one_failed(monkeypatch, tmp_path):
    """The other job's wheel is loaded under the runtimes of the built ones."""
    package = Package("2.10", "2.13.0", "0" * 64, "manylinux_2_28_x86_64", 12)
    context = RunContext(tmp_path, tmp_path / "build", tmp_path / "dist", tmp_path / "index", jobs=1)
    planned = pipeline.release(Plan((job("7.2"), job("6.4")), (), package), context, None)
    ran = []

    def failing(step):
        ran.append(step.planned.title)
        if step.planned.title == "rocm7.2 builder image":
            title = "the image is not built"
            raise DeviceCodeError(title, [])
        return BUILT

    entries = [entry for _, entry in planned.steps.entries]
    for step in [one for entry in entries for one in getattr(entry, "steps", [entry])]:
        monkeypatch.setattr(step, "run", lambda _, step=step: setattr(step, "made", failing(step)))
    monkeypatch.setattr(planned.jobs[1][1].published, "run", lambda _: ran.append("published"))
    attempts = planned.run(plain=True)
    assert [bool(attempt.failure) for attempt in attempts] == [True, False]
    assert [title for title in ran if title.startswith("rocm7.2")] == ["rocm7.2 builder image"]
    assert "published" in ran
    assert (attempts[0].wheel, attempts[1].wheel, attempts[1].audited) == (None, BUILT, True)
