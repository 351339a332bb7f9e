"""A run's display, and its messages about a failed step."""

import io
import json
from pathlib import Path

import pytest

from wheel_builder.base.errors import CommandFailedError, EngineError
from wheel_builder.pipeline.progress import (
    TAIL_LINES,
    Planned,
    Progress,
    Step,
    ended_line,
    failure_note,
    last_lines,
    read_history,
    seconds_left,
    status_line,
    wants_plain,
    write_history,
)
from wheel_builder.pipeline.step_costs import StepCost

IMAGE = Planned("image", "rocm7.2", weight=3)
DEVICE = Planned("device code gfx942", "rocm7.2", weight=4)
AUDIT = Planned("audit", "rocm7.2", weight=1)
STEPS = (IMAGE, DEVICE, AUDIT)


class Clock:
    """Time that passes only when told to."""

    now = 100.0

    def __call__(self):
        return self.now

    def tick(self, seconds):
        self.now += seconds


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def history(tmp_path):
    return tmp_path / "build" / "durations.json"


def step(log=None, **more):
    made = Step(DEVICE, 3, 9, log, 0.0)
    for reason in more.values():
        made.skipped(reason)
    return made


def run_plain(history, clock, work):
    stream = io.StringIO()
    with Progress(STEPS, stream, history, plain=True, clock=clock) as progress:
        work(progress)
    return stream.getvalue().splitlines()


def fail_in(progress, name, error, log=None, after=lambda: None):
    with progress.step(name, job="rocm7.2", log=log):
        after()
        raise error


def test_plain_lines_say_when_a_step_begins_and_ends(history, clock):
    def work(progress):
        with progress.step("image", job="rocm7.2") as image:
            image.skipped("unchanged")
        with progress.step("device code gfx942", job="rocm7.2", log=Path("build/logs/d.log")):
            clock.tick(41.2)

    assert run_plain(history, clock, work) == [
        "[1/3] rocm7.2 image … a few seconds left",
        "[1/3] rocm7.2 image … skipped: unchanged",
        "[2/3] rocm7.2 device code gfx942 … a few seconds left",
        "[2/3] rocm7.2 device code gfx942 … done in 41 s (log: build/logs/d.log)",
    ]


def test_a_step_may_say_that_it_takes_long(history, clock):
    def work(progress):
        with progress.step("image", job="rocm7.2") as image:
            image.note("some minutes, [once]")

    assert run_plain(history, clock, work)[1] == "[1/3] rocm7.2 image: some minutes, [once]"


def test_plain_lines_say_the_time_left(history, clock):
    """The expected duration of a run was missing in CI and in logs."""
    write_history(history, {"rocm7.2 image": 30.0, "rocm7.2 device code gfx942": 40.0, "rocm7.2 audit": 2.0})

    def work(progress):
        with progress.step("image", job="rocm7.2"):
            clock.tick(30)
        with progress.step("device code gfx942", job="rocm7.2"):
            clock.tick(40)

    lines = run_plain(history, clock, work)
    assert lines[0] == "[1/3] rocm7.2 image … about 2 min left"
    assert lines[2] == "[2/3] rocm7.2 device code gfx942 … about 50 s left"


def test_steps_side_by_side_have_the_time_that_they_took(history, clock):
    """Steps that ended during the wait for an earlier one were "done in 0.0 s", also in the history."""

    def work(progress):
        with progress.step("image", job="rocm7.2"):
            clock.tick(60)
        with progress.step("device code gfx942", job="rocm7.2") as device:
            device.took(58.0, beside=2)

    assert run_plain(history, clock, work)[-1] == (
        "[2/3] rocm7.2 device code gfx942 … done in 58 s, beside others"
    )
    assert read_history(history)["rocm7.2 device code gfx942"] == 29.0


def test_what_passed_is_known_after_a_failure(history, clock):
    def work(progress):
        with progress.step("image", job="rocm7.2") as image:
            image.skipped("unchanged")
        with progress.step("image", job="rocm6.4"):
            pass
        with pytest.raises(EngineError):
            fail_in(progress, "audit", EngineError("gone"))
        assert progress.passed("rocm7.2") == ("image",)

    run_plain(history, clock, work)


def test_only_steps_that_worked_are_measured(history, clock):
    def work(progress):
        with progress.step("image", job="rocm7.2") as image:
            clock.tick(1)
            image.skipped("unchanged")
        with progress.step("device code gfx942", job="rocm7.2"):
            clock.tick(41)
        with pytest.raises(EngineError):
            fail_in(progress, "audit", EngineError("gone"))

    run_plain(history, clock, work)
    assert json.loads(history.read_text()) == {"rocm7.2 device code gfx942": 41.0}


def test_other_steps_of_the_history_are_kept(history, clock):
    write_history(history, {"rocm6.4 image": 30.0})

    def work(progress):
        with progress.step("audit", job="rocm7.2"):
            clock.tick(2)

    run_plain(history, clock, work)
    assert read_history(history) == {"rocm6.4 image": 30.0, "rocm7.2 audit": 2.0}


@pytest.mark.parametrize("error", [EngineError("no compiler"), OSError("no compiler")])
def test_a_failure_gets_a_note_and_its_line(error, history, clock, tmp_path):
    log = tmp_path / "d.log"
    log.write_text("compiling\nfatal error: no such file\n")
    note = (
        "  step: device code gfx942 (2 of 3), job rocm7.2\n"
        "  | compiling\n"
        "  | fatal error: no such file\n"
        f"  log: {log}"
    )

    def work(progress):
        with progress.step("image", job="rocm7.2"):
            pass
        with pytest.raises(type(error)) as caught:
            fail_in(progress, "device code gfx942", error, log, lambda: clock.tick(12))
        assert caught.value.__notes__ == [note]

    lines = run_plain(history, clock, work)
    assert lines[-1] == f"[2/3] rocm7.2 device code gfx942 … failed after 12 s (log: {log})"


def test_an_interrupt_is_no_failure(history, clock):
    def work(progress):
        with pytest.raises(KeyboardInterrupt):
            fail_in(progress, "image", KeyboardInterrupt(), after=lambda: clock.tick(5))

    assert run_plain(history, clock, work)[-1] == "[1/3] rocm7.2 image … interrupted after 5 s"


def test_summary_counts_steps_and_time(history, clock):
    with Progress(STEPS, io.StringIO(), history, plain=True, clock=clock) as progress:
        with progress.step("image", job="rocm7.2") as image:
            image.skipped("unchanged")
        with progress.step("audit", job="rocm7.2"):
            clock.tick(75)
        assert progress.summary() == "2 steps in 1 min 15 s, 1 of them had nothing to do"


def test_a_terminal_shows_what_runs_and_keeps_what_is_done(history, clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    write_history(history, {"rocm7.2 image": 30.0, "rocm7.2 device code gfx942": 40.0, "rocm7.2 audit": 2.0})
    stream = Terminal()
    with Progress(STEPS, stream, history, plain=False, clock=clock) as progress:
        with progress.step("image", job="rocm7.2"):
            clock.tick(30)
        with progress.step("device code gfx942", job="rocm7.2"):
            clock.tick(4)
            shown = progress._status()
    assert shown == "[2/3] rocm7.2 device code gfx942 · 4 s · about 40 s left"
    assert "[1/3] rocm7.2 image … done in 30 s" in stream.getvalue()
    assert "[2/3] rocm7.2 device code gfx942 · 1 s" in stream.getvalue()


def test_the_terminal_is_released_after_a_failure(history, clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    progress = Progress(STEPS, stream, history, plain=False, clock=clock)
    with pytest.raises(EngineError), progress:
        fail_in(progress, "image", EngineError("gone"))
    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")


@pytest.mark.parametrize("plain", [True, False])
def test_what_looks_like_markup_is_shown_as_it_is(history, monkeypatch, plain):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Progress(STEPS, stream, history, plain=plain) as progress, progress.step("[red]:x:[/red]"):
        pass
    assert "[1/3] [red]:x:[/red] … done in 0.0 s" in stream.getvalue()


@pytest.mark.parametrize(
    ("stream", "env", "plain"),
    [
        (Terminal(), {"TERM": "xterm"}, False),
        (Terminal(), {"TERM": "xterm", "CI": "true"}, True),
        (Terminal(), {"TERM": "dumb"}, True),
        (Terminal(), {}, True),
        (io.StringIO(), {"TERM": "xterm"}, True),
    ],
)
def test_a_live_line_needs_a_real_terminal(stream, env, plain):
    assert wants_plain(stream, env) is plain


def test_ended_line_of_a_skipped_step_has_no_time():
    assert (
        ended_line(step(reason="unchanged"), "done", 3)
        == "[3/9] rocm7.2 device code gfx942 … skipped: unchanged"
    )


def test_a_step_that_failed_after_it_was_skipped_failed():
    assert "failed after 3 s" in ended_line(step(reason="unchanged"), "failed", 3)


def test_logs_are_shown_from_where_the_user_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ended_line(step(tmp_path / "build/d.log"), "done", 3).endswith("done in 3 s (log: build/d.log)")


def test_status_without_an_estimate_invents_none():
    assert status_line(step(), 12.3, None) == "[3/9] rocm7.2 device code gfx942 · 12 s"


def test_status_does_not_flicker_below_a_second():
    assert status_line(step(), 0.2, 70) == "[3/9] rocm7.2 device code gfx942 · 1 s · about 2 min left"


def test_time_left_is_what_the_same_steps_took():
    measured = {IMAGE.title: 30.0, DEVICE.title: 40.0, AUDIT.title: 2.0}
    assert seconds_left(STEPS, measured, IMAGE.title, 10) == 20 + 40 + 2


def test_a_step_that_takes_longer_than_ever_adds_nothing():
    measured = {IMAGE.title: 30.0, DEVICE.title: 40.0, AUDIT.title: 2.0}
    assert seconds_left(STEPS, measured, IMAGE.title, 99) == 40 + 2


def test_an_unmeasured_step_takes_its_weight_at_the_rate_of_the_others():
    # 30 s for weight 3 is 10 s for each unit of weight.
    assert seconds_left(STEPS, {IMAGE.title: 30.0}, IMAGE.title, 0) == 30 + 40 + 10


def test_on_a_fresh_machine_a_step_takes_its_weight_in_seconds():
    """The first release, the longest, once had no estimate at all."""
    assert seconds_left(STEPS, {"another step": 5.0}, IMAGE.title, 2) == (3 - 2) + 4 + 1


def test_a_run_without_planned_steps_has_no_estimate():
    assert seconds_left((), {}, "audit", 0) is None


def test_a_pipe_has_an_estimate_too(history, clock):
    write_history(history, {IMAGE.title: 300.0, DEVICE.title: 400.0, AUDIT.title: 20.0})

    def work(progress):
        with progress.step("image", job="rocm7.2"):
            clock.tick(300)
        with progress.step("device code gfx942", job="rocm7.2"):
            pass

    lines = run_plain(history, clock, work)
    assert lines[0] == "[1/3] rocm7.2 image … about 12 min left"
    assert lines[2] == "[2/3] rocm7.2 device code gfx942 … about 7 min left"


def test_a_step_that_ran_beside_others_costs_what_it_says(history, clock):
    """Otherwise each of nine suites, two at a time, would cost the machine's total while it was shown."""

    def work(progress):
        with progress.step("device code gfx942", job="rocm7.2") as step:
            step.took(41.2, beside=2, cpu_seconds=80.0)
        assert progress.costs == {DEVICE.title: StepCost(41.2, 80.0)}

    run_plain(history, clock, work)


def test_a_step_costs_what_the_machine_spent_meanwhile(history, clock):
    spent = iter([100.0, 107.5, 200.0, 200.0])
    with Progress(STEPS, io.StringIO(), history, plain=True, clock=clock, cpu=spent.__next__) as progress:
        with progress.step("image", job="rocm7.2"):
            clock.tick(5)
        with progress.step("audit", job="rocm7.2") as audit:
            audit.skipped("unchanged")
    assert progress.costs == {IMAGE.title: StepCost(5.0, 7.5)}


def test_the_note_leaves_out_a_log_that_the_message_already_shows(tmp_path):
    log = tmp_path / "d.log"
    message = str(CommandFailedError(f"clang ended with status 1\n  | boom\n  log: {log}"))
    assert failure_note(step(log), message, ["boom"]) == "  step: device code gfx942 (3 of 9), job rocm7.2"


def test_the_note_of_a_step_without_job_or_log():
    made = Step(Planned("index"), 9, 9, None, 0.0)
    assert failure_note(made, "no", []) == "  step: index (9 of 9)"


def test_last_lines_are_few_and_harmless(tmp_path):
    log = tmp_path / "d.log"
    log.write_bytes(b"x" * 100_000 + b"\n" + b"line\n" * 40 + b"\x1b[2Jred\xff\ttab\n\n")
    lines = last_lines(log)
    assert len(lines) == TAIL_LINES
    assert lines[-1] == "[2Jred\ufffd\ttab"
    assert lines[-2] == "line"


def test_a_log_that_was_never_written_has_no_lines(tmp_path):
    assert last_lines(tmp_path / "none.log") == []
    assert last_lines(None) == []


@pytest.mark.parametrize("text", ["", "{", "[1]", "\x00"])
def test_a_broken_history_is_no_history(tmp_path, text):
    path = tmp_path / "durations.json"
    path.write_text(text)
    assert read_history(path) == {}


def test_history_drops_what_is_no_time(tmp_path):
    path = tmp_path / "durations.json"
    path.write_text('{"a": 1, "b": "x", "c": null}')
    assert read_history(path) == {"a": 1.0}


def test_history_leaves_no_other_file(history):
    write_history(history, {"a": 1.0})
    assert list(history.parent.iterdir()) == [history]


def test_a_history_that_cannot_be_written_is_no_failure(tmp_path):
    (tmp_path / "build").write_text("a file where the folder should be")
    write_history(tmp_path / "build" / "durations.json", {"a": 1.0})
    assert read_history(tmp_path / "build" / "durations.json") == {}
