"""Rows that are better on users' GPUs: two machines, 2 % or more, no bin worse by 1 %."""

import tomllib

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.tunings import (
    KERNEL,
    NOW,
    SETTINGS,
    another,
    as_bytes,
    call,
    ids,
    report,
    signed,
    tuned,
)
from wheel_builder.cli.commands.indexes import report as command
from wheel_builder.cli.main import main
from wheel_builder.extras.timings.evidence import EVIDENCE, ids_of, text_of, tile_rows, words_of
from wheel_builder.extras.timings.merge import Key, verdicts
from wheel_builder.matrix.tuned.form import parse_tuning
from wheel_builder.matrix.tuned.tree import FOLDER, signed_tunings, to_json
from wheel_builder.tables.archs import known_archs
from wheel_builder.tables.tiles import parse_tiles

SHIPPED, FIRST, SECOND = ids(KERNEL)


def of_machine(make, *bins, **values):
    """A report about one kernel."""
    kernels = {KERNEL: {**tuned(KERNEL, *(call(KERNEL, ms, length=n + 2048) for n, ms in enumerate(bins)))}}
    found = make(**{"kernels": kernels, **values})
    for each in found["kernels"][KERNEL]["bins"]:
        best = min(each["times"], key=lambda row: each["times"][row]["ms"])
        each["winner"] = best
    return signed(parse_tuning(as_bytes(found), NOW))


def decided(*reports):
    found = verdicts({f"{number}.json": each for number, each in enumerate(reports)})
    return {each.key.row: each for each in found}


GOOD = (5.0, 4.8, 5.5)  # 4 % faster, and 9 % slower


def test_a_row_that_is_better_on_two_machines_is_merged():
    found = decided(of_machine(report, GOOD), of_machine(another, GOOD))
    assert found[FIRST].lacking == ()
    assert found[FIRST].gain == pytest.approx(5.0 / 4.8 - 1)
    assert [each.device for each in found[FIRST].timings] == ["AMD Radeon RX 7900 XTX"] * 2
    assert (
        found[SECOND]
        .lacking[0]
        .startswith("0 of 2 machines gain 2% or more: -9.1% on AMD Radeon RX 7900 XTX")
    )
    assert "-9.1% on AMD Radeon RX 7900 XTX: forward 2048, 8 x 16 heads, width 1" in found[SECOND].lacking[1]


@pytest.mark.parametrize(
    ("bins", "words"),
    [
        ([(5.0, 4.91, 5.5)], "0 of 2 machines gain 2% or more: +1.8% on"),
        ([(5.0, 4.0, 5.5), (5.0, 5.051, 5.5)], "-1.0% on AMD Radeon RX 7900 XTX: forward 2049"),
    ],
)
def test_what_a_row_lacks_is_said(bins, words):
    [first, *_] = decided(of_machine(report, *bins), of_machine(another, *bins))[FIRST].lacking
    assert words in first


@pytest.mark.parametrize("bins", [[(5.0, 4.9, 5.5)], [(5.0, 4.0, 5.5), (5.0, 5.049, 5.5)]])
def test_just_within_the_limits_is_enough(bins):
    """2.04 % faster, and a bin that takes 0.98 % longer."""
    assert decided(of_machine(report, *bins), of_machine(another, *bins))[FIRST].lacking == ()


def test_one_machine_is_not_enough_however_often_it_reports():
    again = of_machine(another, GOOD, machine="0123456789abcdef", candidates="1" * 64)
    found = decided(of_machine(report, GOOD), again)[FIRST]
    assert found.lacking == ("1 of 2 machines gain 2% or more: +4.2% on AMD Radeon RX 7900 XTX",)
    assert [each.file for each in found.timings] == ["1.json"], "its last report counts"


def test_a_third_machine_may_gain_less_but_not_lose():
    both = of_machine(report, GOOD), of_machine(another, GOOD)
    third = {"machine": "a" * 16, "scale": 1.03}
    assert decided(*both, of_machine(another, (5.0, 4.99, 5.5), **third))[FIRST].lacking == ()
    slower = decided(*both, of_machine(another, (5.0, 5.2, 5.5), **third))[FIRST].lacking
    assert slower == ("-3.8% on AMD Radeon RX 7900 XTX: forward 2048, 8 x 16 heads, width 1",)


def test_a_wrong_result_on_any_machine_is_a_fault():
    state = {FIRST: {"state": "wrong", "words": "out: error 0.5"}, SECOND: {"state": "timed", "words": ""}}
    rows = call(KERNEL, (5.0, 4.8, 5.5))
    del rows["times"][FIRST]
    rows["winner"] = SHIPPED
    kernels = {KERNEL: {**tuned(KERNEL, rows), "candidates": state}}
    third = signed(parse_tuning(as_bytes(another(machine="a" * 16, kernels=kernels)), NOW))
    found = decided(of_machine(report, GOOD), of_machine(another, GOOD), third)
    assert found[FIRST].lacking == ("AMD Radeon RX 7900 XTX: wrong: out: error 0.5",)


def test_of_two_better_rows_the_best_is_merged():
    both = (5.0, 4.8, 4.0)
    found = decided(of_machine(report, both), of_machine(another, both))
    assert {row: each.lacking for row, each in found.items()} == {
        SECOND: (),
        FIRST: ("another one gains more",),
    }


def test_the_evidence_is_toml_with_rows_for_the_table():
    found = verdicts({"a.json": of_machine(report, GOOD), "b.json": of_machine(another, GOOD)})
    [row] = tomllib.loads(text_of(found))["rows"]
    assert (row["arch"], row["kernel"], row["row"], row["replaces"]) == ("gfx1100", KERNEL, FIRST, SHIPPED)
    assert [each["file"] for each in row["reports"]] == ["a.json", "b.json"]
    assert row["gain"] == row["reports"][0]["gain"] == 0.0417
    [tile] = row["tiles"]
    table = parse_tiles(f"[fwd]\nwmma = [{tile}]\n", {"wmma"})
    assert (table.rows["fwd"]["wmma"][0].waves, table.rows["fwd"]["wmma"][0].dtype) == (2, "fp16")


def test_any_name_of_a_device_is_toml():
    def named(**values):
        return report(device='AMD "Radeon" \U0001f600', **values)

    found = verdicts({"a.json": of_machine(named, GOOD), "b.json": of_machine(another, GOOD)})
    [row] = tomllib.loads(text_of(found))["rows"]
    assert row["reports"][0]["device"] == 'AMD "Radeon" \U0001f600'


def test_rows_of_two_loops_are_two_rows():
    key = Key("gfx1100", KERNEL, SHIPPED, FIRST)
    assert len(tile_rows(key, [SETTINGS[0], SETTINGS[0]])) == 1
    assert ['loop = "plain"' in row for row in tile_rows(key, SETTINGS[:2])] == [True, False]


def test_a_maintainer_reads_what_to_do():
    found = verdicts({"a.json": of_machine(report, GOOD), "b.json": of_machine(another, GOOD)})
    of = "gfx1100", KERNEL
    said = {row: words_of(found, {of: row}) for row in (SHIPPED, FIRST, "00000000")}
    assert f"{FIRST} +4.2% mean of 2: waves = 2" in said[SHIPPED]
    assert f"copy its tiles from {EVIDENCE} to kernels/tables/tiles.toml" in said[SHIPPED]
    assert "read the same rows" in said[SHIPPED]
    assert "kernels/tables/tiles.toml has it" in said[FIRST]
    assert "its kernel has other rows by now, 00000000: tune it again" in said["00000000"]
    assert "lacking: 0 of 2 machines" in said[SHIPPED]


def test_ids_of_todays_rows_are_those_of_the_package():
    key = Key("gfx908", "fa_fwd_fp16_d64", "", "")
    assert ids_of([key]) == {("gfx908", "fa_fwd_fp16_d64"): "08500202"}
    assert "gfx908" in known_archs()


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "ROOT", tmp_path)
    assert main(["report", "merge"]) == 0
    assert "no tuning report is in the tree" in capsys.readouterr().out
    assert "rows" not in tomllib.loads((tmp_path / EVIDENCE).read_text())
    (tmp_path / FOLDER).mkdir(parents=True)
    for name, make in (("a", report), ("b", another)):
        (tmp_path / FOLDER / f"{name}.json").write_bytes(to_json(of_machine(make, GOOD)))
    assert main(["report", "merge"]) == 0
    assert "lacking: " in capsys.readouterr().out
    assert len(tomllib.loads((tmp_path / EVIDENCE).read_text())["rows"]) == 1


def test_the_evidence_in_the_tree_is_that_of_its_reports():
    expected = text_of(verdicts(signed_tunings(CHECKOUT)))
    assert (CHECKOUT / EVIDENCE).read_text(encoding="utf-8") == expected, "scripts/wheel-builder report merge"
