"""Words for names, paths and times."""

from pathlib import Path

import pytest

from wheel_builder.words import duration, shown, time_left, unknown


def test_unknown_guesses_and_lists_what_there_is():
    text = unknown("arch", "gfx110", ["gfx908", "gfx1100"])
    assert text == "unknown arch 'gfx110': did you mean gfx1100? known: gfx908, gfx1100"


def test_unknown_does_not_guess_wildly():
    assert unknown("arch", "sm_90", ["gfx908"]) == "unknown arch 'sm_90': known: gfx908"


def test_unknown_with_nothing_known():
    assert unknown("arch", "gfx908", []) == "unknown arch 'gfx908': known: none"


def test_paths_are_relative_to_where_the_user_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown(tmp_path / "build" / "a.log") == "build/a.log"
    assert shown(Path("build/a.log")) == "build/a.log"
    assert shown(Path("/etc/passwd")) == "/etc/passwd"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.94, "0.9 s"),
        (0.97, "1 s"),
        (41.4, "41 s"),
        (59.6, "1 min 0 s"),
        (75, "1 min 15 s"),
        (3599.7, "1 h 0 min"),
        (3725, "1 h 2 min"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "a few seconds left"),
        (9.9, "a few seconds left"),
        (31, "about 40 s left"),
        (50, "about 50 s left"),
        (51, "about 1 min left"),
        (61, "about 2 min left"),
        (3540, "about 59 min left"),
        (3541, "about 1 h 0 min left"),
        (3661, "about 1 h 10 min left"),
    ],
)
def test_time_left_is_no_more_precise_than_an_estimate(seconds, text):
    assert time_left(seconds) == text
