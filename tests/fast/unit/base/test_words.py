"""Words for names, paths and times."""

from pathlib import Path

import pytest

from wheel_builder.base.words import (
    aligned,
    duration,
    line_problem,
    listed,
    shown,
    time_left,
    unknown,
    visible,
)


@pytest.mark.parametrize(("names", "text"), [("a", "a"), ("ab", "a and b"), ("abc", "a, b and c")])
def test_a_list_in_words(names, text):
    assert listed(names, "and") == text


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


def test_columns_are_as_wide_as_their_widest_cell():
    rows = [("kernel", "FLOP", "waves"), ("a", "10", ""), ("much longer", "2", "12")]
    assert aligned(rows, left=1) == [
        "kernel       FLOP  waves",
        "a              10",
        "much longer     2     12",
    ]


@pytest.mark.parametrize("text", ["wrong results on gfx908", "café, 数値が違う", "a\u00a0b", "👩\u200d🔬"])
def test_a_line_of_any_language_is_fit(text):
    assert line_problem(text) == ""
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("caf\udce9", "it has U+DCE9 (a byte that is not UTF-8) as character 4"),
        ("a\x1b[2J", "it has U+001B (a control character) as character 2"),
        ("a\x9b2J", "it has U+009B (a control character) as character 2"),
        ("a\nb", "it has U+000A (a control character) as character 2"),
        ("a\tb", "it has U+0009 (a control character) as character 2"),
        ("a\u2028b", "it has U+2028 (a control character) as character 2"),
        ("a\0b", "it has U+0000 (a control character) as character 2"),
        ("\u202ebad", "it has U+202E (a control character) as character 1"),
        (" ", "it is empty"),
        ("a" * 2001, "it has 2001 characters, expected at most 2000"),
    ],
)
def test_what_is_no_line_of_text(text, problem):
    assert line_problem(text) == problem


def test_a_terminal_gets_no_character_that_changes_it():
    assert visible("a\x1b[2J\r\u202eb\udce9\n\tc") == "a\\x1b[2J\\r\\u202eb\\udce9\n\tc"
