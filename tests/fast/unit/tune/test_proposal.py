"""The proposal: verdicts, the choice, and a file that says all of it."""

import tomllib
from dataclasses import replace

import pytest

from wheel_builder.extras.tune.measuring import Figures
from wheel_builder.extras.tune.proposal import (
    Outcome,
    Search,
    better,
    chosen,
    file_name,
    table,
    to_text,
    verdicts,
)
from wheel_builder.extras.tune.rows import NONE, Change, Kernel, changed, joined, rows_of
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import known_tiles, parse_tiles

KERNEL = Kernel("gfx908", "fwd", "fp16", 64)
ROWS = rows_of(known_tiles(), arch_named("gfx908"), KERNEL)
PORT = "fwd causal, port, measured"
LINES = {"fwd, schedule, measured": 100.0, PORT: 50.0, "launch 4096 x 24": 10.0}
BEST, SECOND, BEHIND, WORSE, LITTLE, TWIN, REFUSED = (
    joined([Change(*each)])
    for each in (
        ("prefetch", 1), ("prefetch", 2), ("prefetch", 3), ("keys", 64), ("two_sums", True),
        ("dual_issue", True), ("waves", 8),
    )
)  # fmt: skip


def made(factor, **lines):
    found = {line: value * factor for line, value in LINES.items()} | lines
    return Outcome(figures=Figures(found, vgpr=84, agpr=64, lds_bytes=8192, code_bytes=20768, resident=3))


OUTCOMES = {
    NONE: made(1),
    BEST: made(1.2, **{PORT: 51.0}),
    SECOND: made(1.1, **{PORT: 80.0}),
    BEHIND: made(1.05),
    WORSE: made(2, **{PORT: 40.0}),
    LITTLE: made(1.001),
    TWIN: replace(made(1), twin=ROWS.id_of(KERNEL)),
    REFUSED: Outcome(refused="vgpr_spill_count = 14"),
}


def search(ended="the budget is spent", **outcomes):
    found = OUTCOMES | {{"best": BEST, "second": SECOND}[name]: each for name, each in outcomes.items()}
    return Search(KERNEL, ROWS, found, "clang 22", "0123", ended)


def with_wrong(changes, wrong):
    return replace(OUTCOMES[changes], wrong=wrong)


def test_without_execution_nothing_is_proposed():
    assert better(search()) == [SECOND, BEST]
    assert chosen(search()) == NONE


def test_the_best_executed_candidate_is_proposed():
    assert chosen(search(second=with_wrong(SECOND, ""))) == SECOND


def test_wrong_results_are_refused_however_fast():
    found = search(second=with_wrong(SECOND, "out[0] is nan"), best=with_wrong(BEST, ""))
    assert chosen(found) == BEST
    assert verdicts(found)[SECOND] == "wrong results: out[0] is nan"


def test_a_wrong_candidate_dominates_none():
    found = search(second=with_wrong(SECOND, "out[0] is nan"))
    assert verdicts(found)[BEHIND] == "better, and not executed"


def test_verdicts_name_dominators_lines_and_reasons():
    found = search(second=with_wrong(SECOND, ""))
    of_second = changed(ROWS, SECOND).id_of(KERNEL)
    assert verdicts(found) == {
        NONE: "today's",
        BEST: "better, and not executed",
        SECOND: "proposed",
        BEHIND: f"dominated by {of_second}",
        WORSE: f"worse under '{PORT}'",
        LITTLE: f"dominated by {of_second}",
        TWIN: f"the same code as {ROWS.id_of(KERNEL)}",
        REFUSED: "refused: vgpr_spill_count = 14",
    }


def test_a_gain_below_the_models_error_is_too_little():
    found = Search(KERNEL, ROWS, {NONE: made(1), LITTLE: made(1.001)}, "", "", "")
    assert verdicts(found)[LITTLE] == "gains too little"
    assert chosen(found) == NONE


def test_the_file_has_all_candidates_and_the_chosen_rows():
    text = to_text(search(second=with_wrong(SECOND, "")))
    assert text.startswith("# Modelled, not measured. Written by `scripts/wheel-builder tune --arch gfx908 ")
    found = tomllib.loads(text)
    assert (found["arch"], found["kernel"], found["ended"]) == (
        "gfx908", "fa_fwd_fp16_d64", "the budget is spent",
    )  # fmt: skip
    assert len(found["assumptions"]) > 3
    assert len(found["candidates"]) == len(OUTCOMES)
    today, proposed = found["candidates"][:2]
    assert (today["row"], proposed["row"]) == (found["today"], found["proposed"])
    assert proposed["gain"]["mean"] == pytest.approx(0.22, abs=0.05)
    assert proposed["lines"][PORT] == 80
    assert proposed["takes"] == {
        "vgpr": 84, "agpr": 64, "lds_bytes": 8192, "code_bytes": 20768, "resident": 3,
    }  # fmt: skip
    assert found["candidates"][-1]["verdict"] == "refused: vgpr_spill_count = 14"


def test_the_proposed_rows_are_rows_of_the_table():
    text = to_text(search(second=with_wrong(SECOND, "")))
    [line] = [each for each in text.splitlines() if each.startswith("rows = [") and "prefetch = 2" in each]
    tiles = parse_tiles(f"[fwd]\ncdna1 = {line.removeprefix('rows = ')}\n", {"cdna1"})
    assert tiles.rows["fwd"]["cdna1"] == (changed(ROWS, SECOND).plain, ROWS.featured)


def test_words_of_a_compiler_cannot_break_the_file():
    hostile = Outcome(refused='"] \\ \n[other]\tx')
    found = Search(KERNEL, ROWS, {NONE: made(1), REFUSED: hostile}, "", "", "")
    assert tomllib.loads(to_text(found))["candidates"][1]["verdict"] == f"refused: {hostile.refused}"


def test_the_table_shows_the_best_first():
    lines = table(search(second=with_wrong(SECOND, ""))).splitlines()
    assert lines[0].startswith(ROWS.id_of(KERNEL))
    assert lines[1].endswith("prefetch = 2: proposed")
    assert lines[-1] == "8 candidates, 1 refused; the budget is spent. Modelled, not measured."


def test_the_files_name():
    assert file_name(KERNEL) == "gfx908-fa_fwd_fp16_d64.toml"
