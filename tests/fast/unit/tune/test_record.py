"""Figures before and after searches, kept in the repository."""

from dataclasses import replace

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.extras.site.tables import searches
from wheel_builder.extras.tune.measuring import Figures
from wheel_builder.extras.tune.proposal import Outcome, Search, verdicts
from wheel_builder.extras.tune.record import SEARCHES, Line, lines_of, parse_searches, recorded, to_text
from wheel_builder.extras.tune.rows import NONE, Change, Kernel, joined, rows_of
from wheel_builder.extras.tune.run import keep
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import known_tiles

KERNEL = Kernel("gfx908", "fwd", "fp16", 32)
TWO, FOUR, REFUSED = (joined([Change(*each)]) for each in (("waves", 2), ("keys", 64), ("prefetch", 1)))
LINES = {
    "fwd, schedule, a": 470.6, "fwd, schedule, b": 480.0, "fwd, port, a": 100.0,
    "fwd causal, schedule, a": 400.0, "fwd causal, schedule, b": 390.0, "launch 1": 2.0,
}  # fmt: skip


def made(factor, wrong=None):
    return Outcome(figures=Figures({line: factor * value for line, value in LINES.items()}), wrong=wrong)


@pytest.fixture
def search():
    rows = rows_of(known_tiles(), arch_named("gfx908"), KERNEL)
    found = {NONE: made(1), TWO: made(1.1, ""), FOUR: made(1.2, ""), REFUSED: Outcome(refused="spills")}
    return Search(KERNEL, rows, found, "", "", "")


def test_the_worst_schedule_of_each_workload_before_and_after(search):
    assert [*lines_of(search)] == [
        Line("gfx908", "fa_fwd_fp16_d32", 3, 1, "keys = 64", 0.2, "fwd", 471, 565),
        Line("gfx908", "fa_fwd_fp16_d32", 3, 1, "keys = 64", 0.2, "fwd causal", 390, 468),
    ]


def test_the_candidate_that_was_asked_for_even_if_dominated(search):
    asked = replace(search, asked=TWO)
    assert {line.changes for line in lines_of(asked)} == {"waves = 2"}
    assert verdicts(asked)[TWO] == "proposed"
    assert verdicts(search)[TWO].startswith("dominated by")


@pytest.mark.parametrize("asked", [NONE, REFUSED, joined([Change("waves", 8)])])
def test_an_asked_candidate_without_gain_leaves_todays_row(search, asked):
    lines = [*lines_of(replace(search, asked=asked))]
    assert {(line.changes, line.gain) for line in lines} == {("", 0.0)}
    assert [line.before for line in lines] == [line.after for line in lines]


def test_a_wrong_asked_candidate_leaves_todays_row(search):
    wrong = replace(search, asked=TWO, outcomes={**search.outcomes, TWO: made(1.1, "out is nan")})
    assert {line.changes for line in lines_of(wrong)} == {""}


def test_a_kernels_lines_are_replaced_and_others_stay(search):
    other = Line("gfx908", "fa_fwd_bf16_d32", 1, 0, "", 0.0, "fwd", 1, 1)
    older = Line("gfx908", "fa_fwd_fp16_d32", 1, 0, "", 0.0, "fwd", 2, 2)
    text = recorded(to_text([older, other]), lines_of(search))
    assert parse_searches(text) == (other, *lines_of(search))


def test_the_file_is_made_and_written_again(search, tmp_path):
    keep(search, tmp_path / "searches.csv")
    first = (tmp_path / "searches.csv").read_text()
    keep(search, tmp_path / "searches.csv")
    assert (tmp_path / "searches.csv").read_text() == first
    assert parse_searches(first) == tuple(lines_of(search))


def test_the_repositorys_file_is_as_written():
    text = (CHECKOUT / SEARCHES).read_text(encoding="utf-8")
    assert to_text(parse_searches(text)) == text


def test_the_table_of_the_documents(search):
    none = Line("gfx908", "fa_bwd_dq_fp16_d32", 61, 20, "", 0.0, "bwd_dq", 7, 7)
    table = searches([none, *lines_of(search)]).splitlines()[2:]
    assert table[0] == "| gfx908 | fa_bwd_dq_fp16_d32 | 61, 20 refused | none |  | bwd_dq 7 |"
    start = "| gfx908 | fa_fwd_fp16_d32 | 3, 1 refused | keys = 64 | 20.0% |"
    assert table[1:] == [f"{start} fwd 471 → 565, fwd causal 390 → 468 |"]
