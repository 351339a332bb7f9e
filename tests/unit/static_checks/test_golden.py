from dataclasses import replace
from pathlib import Path

import pytest

from wheel_builder.base.errors import DeviceCodeError
from wheel_builder.static_checks.golden import GOLDEN, Entry, differences, parse_golden, updated

ENTRY = Entry(152, 0, 80, 0, 0, 0, 16384, 5092, 3, 32)
KERNEL = "fa_fwd_fp16_d64"
REVIEWED = {"gfx942": {KERNEL: ENTRY}}


def changes(**changed):
    return differences(REVIEWED, {"gfx942": {KERNEL: replace(ENTRY, **changed)}})


def test_the_same_is_no_difference():
    assert changes() == ()


def test_a_change_reads_as_a_line():
    (finding,) = changes(vgpr=160)
    assert str(finding) == "gfx942 fa_fwd_fp16_d64: vgpr 152 -> 160 (occupancy 3 -> 3)"
    assert not finding.fails


def test_all_changes_of_a_kernel_are_in_one_line():
    (finding,) = changes(vgpr=170, code_bytes=5100, occupancy=2)
    assert finding.text == "vgpr 152 -> 170, code_bytes 5092 -> 5100 (occupancy 3 -> 2)"


@pytest.mark.parametrize(
    "worse", [{"occupancy": 2}, {"vgpr_spills": 1}, {"sgpr_spills": 1}, {"scratch_bytes": 4}]
)
def test_what_a_wheel_is_refused_for(worse):
    (finding,) = changes(**worse)
    assert finding.fails


@pytest.mark.parametrize("better", [{"occupancy": 4}, {"code_bytes": 1}, {"vgpr": 200}, {"matrix": 16}])
def test_what_a_wheel_is_not_refused_for(better):
    (finding,) = changes(**better)
    assert not finding.fails


def test_a_kernel_that_nobody_reviewed_fails():
    (finding,) = differences({}, REVIEWED)
    assert finding.fails
    assert "not in the golden file; look at what it takes and run with --update" in finding.text


def test_a_kernel_that_is_gone_fails():
    (finding,) = differences(REVIEWED, {"gfx942": {}})
    assert finding.fails
    assert finding.text == "in the golden file, but there is no such kernel"


def test_archs_that_were_not_looked_at_are_no_difference():
    assert differences(REVIEWED, {}) == ()


def test_an_update_replaces_what_was_found_and_keeps_the_rest():
    old = {"7.2": {"gfx942": {KERNEL: ENTRY, "gone": ENTRY}, "gfx908": {KERNEL: ENTRY}}, "6.4": REVIEWED}
    new = {"gfx942": {KERNEL: replace(ENTRY, vgpr=160)}}
    assert parse_golden(updated(old, "7.2", new)) == {
        "7.2": {"gfx942": new["gfx942"], "gfx908": {KERNEL: ENTRY}},
        "6.4": REVIEWED,
    }


def test_an_update_without_a_change_keeps_the_files_bytes():
    text = (Path(__file__).parents[3] / GOLDEN).read_text()
    known = parse_golden(text)
    assert known
    for rocm, archs in known.items():
        assert updated(known, rocm, archs) == text


def test_all_that_is_wrong_with_the_file_is_named():
    text = '["7.2".gfx942]\na = {vgpr = 1}\nb = {vgpr = "2"}\n'
    with pytest.raises(DeviceCodeError, match=r"(?s)7\.2 gfx942 a: expected the keys .*7\.2 gfx942 b"):
        parse_golden(text)


def test_a_file_that_is_not_toml_is_refused_in_words():
    with pytest.raises(DeviceCodeError, match=r"resources\.toml is not right"):
        parse_golden("a = [")
