"""Evaluation of the first-use check's verdicts on mutants."""

import pytest

from tests.tools.mutation.canary import as_text, below, costs_as_text, op_of, refuse_blind, score


def rows(verdict, count, op="fwd", arch="gfx942"):
    row = {"arch": arch, "op": op, "verdict": verdict, "name": "it", "family": "fp16", "words": "why"}
    return [row] * count


@pytest.mark.parametrize(
    ("kernel", "op"),
    [("fa_fwd_fp16_d64", "fwd"), ("fa_bwd_dkdv_bf16_d128", "bwd_dkdv"), ("fa_append_fp16", "append")],
)
def test_kernels_of_one_op_are_one_row(kernel, op):
    assert op_of(kernel) == op


def test_the_score_counts_what_a_small_call_can_show():
    found = [*rows("seen", 9), *rows("missed", 1), *rows("far", 1), *rows("last bits", 1), *rows("same", 7)]
    assert score(found) == 0.9
    assert score(found, "far", "last bits") == 0.75
    assert score(rows("same", 3)) == 1.0


def test_mutants_that_were_not_loaded_are_no_score():
    """All but the first of a process ran the original's code: they changed nothing, which was 100 %."""
    refuse_blind("gfx942", [*rows("seen", 5), *rows("same", 15)])
    refuse_blind("gfx942", rows("same", 19))
    with pytest.raises(SystemExit, match="gfx942: 19 of 20 mutants change no result: did the worker load"):
        refuse_blind("gfx942", [*rows("seen", 1), *rows("same", 19)])


def test_an_arch_below_98_percent_fails_and_an_op_of_which_enough_was_judged():
    assert below([*rows("seen", 49), *rows("missed", 1)], 0.98) == []
    assert below([*rows("seen", 48), *rows("missed", 1)], 0.98) == [("gfx942", "all")], "too few of the op"
    found = [*rows("seen", 60), *rows("missed", 2), *rows("seen", 200, "decode")]
    assert below(found, 0.98) == [("gfx942", "fwd")]
    assert below([*found, *rows("missed", 6, "decode")], 0.98) == [
        ("gfx942", "fwd"), ("gfx942", "decode"), ("gfx942", "all"),
    ]  # fmt: skip
    assert below([*rows("seen", 60, arch="gfx908"), *rows("missed", 9)], 0.98) == [("gfx942", "all")]


def test_the_table_has_a_row_for_each_op_and_lists_what_was_missed():
    lines = as_text(
        [*rows("seen", 3), *rows("missed", 1), *rows("set aside", 2), *rows("far", 1)]
    ).splitlines()
    assert lines[1].split() == ["gfx942", "fwd", "7", "3", "1", "1", "0", "2", "0", "75.0%", "60.0%"]
    assert lines[2].split()[:3] == ["gfx942", "all", "7"]
    assert lines[3:] == ["missed: it (fp16; why)", "far: it (fp16; why)"]


def test_costs_are_milliseconds_of_each_family():
    cost = {
        "arch": "gfx942",
        "family": "fp16, head_dim 64",
        "calls": 26,
        "launches": 30,
        "milliseconds": 41.6,
    }
    assert costs_as_text([cost]).splitlines()[1].split() == [
        "gfx942", "fp16,", "head_dim", "64", "26", "30", "42",
    ]  # fmt: skip
