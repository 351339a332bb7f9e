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
    every_call,
    ids,
    report,
    signed,
    tuned,
)
from wheel_builder.cli.commands.indexes import report as command
from wheel_builder.cli.main import main
from wheel_builder.extras.timings.evidence import EVIDENCE, ids_of, text_of, tile_rows, words_of
from wheel_builder.extras.timings.merge import Key, verdicts
from wheel_builder.matrix.tuned.calls import calls_of
from wheel_builder.matrix.tuned.form import LEAST_MS, MOST_MS, parse_tuning
from wheel_builder.matrix.tuned.tree import FOLDER, signed_tunings, to_json
from wheel_builder.tables.archs import known_archs
from wheel_builder.tables.tiles import parse_tiles

SHIPPED, FIRST, SECOND = ids(KERNEL)


def of_machine(make, *bins, without=(), **values):
    """A report about one kernel, whose calls have the times of ``bins`` in turn."""
    every = every_call(KERNEL, lambda number: bins[number % len(bins)])
    kept = [each for number, each in enumerate(every) if number not in without]
    found = make(**{"kernels": {KERNEL: tuned(KERNEL, *kept)}, **values})
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
    assert "-9.1% on AMD Radeon RX 7900 XTX: forward 512, 32 x 16 heads, width 1" in found[SECOND].lacking[1]


@pytest.mark.parametrize(
    ("bins", "words"),
    [
        ([(5.0, 4.91, 5.5)], "0 of 2 machines gain 2% or more: +1.8% on"),
        ([(5.0, 4.0, 5.5), (5.0, 5.051, 5.5)], "-1.0% on AMD Radeon RX 7900 XTX: forward causal 512"),
        ([(5.2, 4.0, 5.5), (5.2, 5.252, 5.5)], "-1.0% on AMD Radeon RX 7900 XTX: forward causal 512"),
        ([(7.0, 5.0, 8.0), (7.0, 7.07, 8.0)], "-1.0% on AMD Radeon RX 7900 XTX: forward causal 512"),
    ],
)
def test_what_a_row_lacks_is_said(bins, words):
    """One that takes 1 % longer in a bin is out."""
    [first, *_] = decided(of_machine(report, *bins), of_machine(another, *bins, scale=2.0))[FIRST].lacking
    assert words in first


LEAST = (5.1, 5.0, 6.0), (6.018, 5.9, 6.4), (9.078, 8.9, 9.5)
MOST = (7.0, 5.0, 8.0), (7.0, 7.0699999, 8.0)


@pytest.mark.parametrize("bins", [*([each] for each in LEAST), LEAST, MOST])
def test_just_within_the_limits_is_enough(bins):
    """Exactly 2 % faster, which a mean of floats misses, and a bin that takes nearly 1 % longer."""
    assert decided(of_machine(report, *bins), of_machine(another, *bins, scale=2.0))[FIRST].lacking == ()


TIMED = {  # calls, and the last one of them
    "fa_fwd_fp16_d64": (12, ("forward", 8192, True, 4, "", "fp16", 64, 2, 16)),
    "fa_fwd_masked_bf16_d128": (12, ("forward", 8192, False, 4, "bias", "bf16", 128, 2, 16)),
    "fa_decode_fp16_d64": (6, ("decode", 8192, False, 4, "", "fp16", 64, 16, 16)),
    "fa_bwd_dq_fp16_d64": (12, ("backward", 8192, True, 4, "", "fp16", 64, 2, 16)),
}


@pytest.mark.parametrize("kernel", TIMED)
def test_the_calls_of_a_kernel_are_those_that_the_package_times(kernel):
    """As in tests/installed/wheel/tools/test_tune.py, which has the package."""
    found = calls_of(kernel)
    assert (len(found), found[-1]) == TIMED[kernel]
    assert calls_of("fa_mla_bf16_d576") == calls_of("fa_append_fp16_d64") == ()


DEVICE = "AMD Radeon RX 7900 XTX"
LEFT_OUT = "forward causal 512, 32 x 16 heads, width 1: it is no evidence for a row"


def test_times_of_some_calls_are_no_evidence():
    """A forged report leaves out the calls that a row loses, and has others that it wins."""
    bins = [(5.0, 4.0, 5.5), (5.0, 6.0, 5.5)]
    others = [call(KERNEL, (5.0, 4.0, 5.5), length=64 + n) for n in range(12)]
    lost = of_machine(another, *bins), of_machine(report, *bins)
    assert "-16.7% on" in decided(*lost)[FIRST].lacking[0]
    few = [of_machine(make, *bins, without=range(1, 12, 2)) for make in (report, another)]
    assert decided(*few)[FIRST].lacking == (
        f"0 of 2 machines gain 2% or more: +25.0% on {DEVICE}, +25.0% on {DEVICE}",
        *2 * [f"expected times of 12 calls, found 6 on {DEVICE}, and none of {LEFT_OUT}"],
    )
    assert decided(few[0], of_machine(another, GOOD), of_machine(third, GOOD))[FIRST].lacking == ()
    for each in (*lost, *few):
        kernel = each.report.kernels[KERNEL]
        more = parse_tuning(as_bytes(report(kernels={KERNEL: tuned(KERNEL, *others)})), NOW).kernels[KERNEL]
        kernel.__dict__["bins"] += more.bins
    assert "-16.7% on" in decided(*lost)[FIRST].lacking[0]
    assert decided(*few)[FIRST].lacking[0].startswith("0 of 2 machines")


def test_the_most_extreme_times_are_judged():
    """Of a kernel with masks, whose times no peak bounds."""
    masked, (most, least) = "fa_fwd_masked_fp16_d64", (MOST_MS / 2, LEAST_MS * 2)
    bins = [call(masked, (most, least, most), **each._asdict()) for each in calls_of(masked)]
    both = [make(kernels={masked: tuned(masked, *bins)}) for make in (report, another)]
    for each in both:
        each["kernels"][masked]["winner"] = ids(masked)[1]
    found = decided(*(signed(parse_tuning(as_bytes(each), NOW)) for each in both))[ids(masked)[1]]
    assert found.lacking == ()
    assert found.gain == pytest.approx(most / least)


def third(**values):
    return another(**{"machine": "a" * 16, "scale": 1.03, **values})


def test_one_machine_is_not_enough_however_often_it_reports():
    again = of_machine(another, GOOD, machine="0123456789abcdef", candidates="1" * 64)
    found = decided(of_machine(report, GOOD), again)[FIRST]
    assert found.lacking == ("1 of 2 machines gain 2% or more: +4.2% on AMD Radeon RX 7900 XTX",)
    assert [each.file for each in found.timings] == ["1.json"], "its last report counts"


def test_a_third_machine_may_gain_less_but_not_lose():
    both = of_machine(report, GOOD), of_machine(another, GOOD)
    assert decided(*both, of_machine(third, (5.0, 4.99, 5.5)))[FIRST].lacking == ()
    slower = decided(*both, of_machine(third, (5.0, 5.2, 5.5)))[FIRST].lacking
    assert slower == ("-3.8% on AMD Radeon RX 7900 XTX: forward 512, 32 x 16 heads, width 1",)


def test_a_wrong_result_on_any_machine_is_a_fault():
    state = {FIRST: {"state": "wrong", "words": "out: error 0.5"}, SECOND: {"state": "timed", "words": ""}}
    rows = call(KERNEL, (5.0, 4.8, 5.5))
    del rows["times"][FIRST]
    rows["winner"] = SHIPPED
    kernels = {KERNEL: {**tuned(KERNEL, rows), "candidates": state}}
    wrong = signed(parse_tuning(as_bytes(third(kernels=kernels)), NOW))
    found = decided(of_machine(report, GOOD), of_machine(another, GOOD), wrong)
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
