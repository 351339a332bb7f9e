from dataclasses import asdict, replace
from pathlib import Path

import pytest

from wheel_builder.base.errors import DeviceCodeError
from wheel_builder.machine_code.static_checks.golden import (
    GOLDEN,
    Entry,
    Limits,
    differences,
    limits_of,
    parse_golden,
    updated,
)

ENTRY = Entry(152, 0, 80, 0, 0, 0, 16384, 5092, 3, 32)
KERNEL = "fa_fwd_fp16_d64"
FOUND = {"gfx942": {KERNEL: ENTRY}}
REVIEWED = {"gfx942": {KERNEL: limits_of(ENTRY)}}


def changes(**changed):
    return differences(REVIEWED, {"gfx942": {KERNEL: replace(ENTRY, **changed)}})


def test_the_same_is_no_difference():
    assert changes() == ()


@pytest.mark.parametrize("name", ["vgpr", "agpr", "sgpr", "lds_bytes", "code_bytes", "matrix"])
def test_what_a_wheel_cannot_be_refused_for_is_no_difference(name):
    assert changes(**{name: 1000}) == ()


def test_all_changes_of_a_kernel_are_in_one_line():
    (finding,) = changes(vgpr_spills=7, occupancy=2)
    assert str(finding) == "gfx942 fa_fwd_fp16_d64: occupancy 3 -> 2, vgpr_spills 0 -> 7"


@pytest.mark.parametrize(
    "worse", [{"occupancy": 2}, {"vgpr_spills": 1}, {"sgpr_spills": 1}, {"scratch_bytes": 4}]
)
def test_what_a_wheel_is_refused_for(worse):
    (finding,) = changes(**worse)
    assert finding.fails


@pytest.mark.parametrize("name", ["vgpr_spills", "sgpr_spills", "scratch_bytes"])
def test_a_wheel_is_not_refused_for_what_is_better(name):
    reviewed = {"gfx942": {KERNEL: Limits(2, **{name: 5})}}
    (finding,) = differences(reviewed, FOUND)
    assert finding.text == f"occupancy 2 -> 3, {name} 5 -> 0"
    assert not finding.fails


def test_a_kernel_that_nobody_reviewed_fails():
    (finding,) = differences({}, FOUND)
    assert finding.fails
    assert "not in the golden file; review its resources and run with --update" in finding.text


def test_a_kernel_that_is_gone_fails():
    (finding,) = differences(REVIEWED, {"gfx942": {}})
    assert finding.fails
    assert finding.text == "in the golden file, but the kernel does not exist"


def test_archs_that_were_not_looked_at_are_no_difference():
    assert differences(REVIEWED, {}) == ()


def test_an_update_replaces_what_was_found_and_keeps_the_rest():
    limits = limits_of(ENTRY)
    old = {"7.2": {"gfx942": {KERNEL: limits, "gone": limits}, "gfx908": {KERNEL: limits}}, "6.4": REVIEWED}
    new = {"gfx942": {KERNEL: replace(ENTRY, occupancy=2, vgpr_spills=7)}}
    assert parse_golden(updated(old, "7.2", new)) == {
        "7.2": {"gfx942": {KERNEL: Limits(2, vgpr_spills=7)}, "gfx908": {KERNEL: limits}},
        "6.4": REVIEWED,
    }


def test_versions_that_agree_share_a_row_and_head_dims_too():
    kernels = {"fa_fwd_fp16_d64": ENTRY, "fa_fwd_fp16_d128": ENTRY, "fa_combine_fp16": ENTRY}
    old = parse_golden(updated({}, "6.4", {"gfx942": kernels}))
    new = {**kernels, "fa_fwd_fp16_d128": replace(ENTRY, occupancy=2, vgpr_spills=7, scratch_bytes=32)}
    _, text = updated(old, "7.2", {"gfx942": new}).split("none\n\n")
    assert text.splitlines() == [
        '[gfx942."6.4"]',
        "fa_fwd_fp16.occupancy = {d128 = 3}",
        "",
        '[gfx942."6.4 7.2"]',
        "fa_combine_fp16.occupancy = 3",
        "fa_fwd_fp16.occupancy = {d64 = 3}",
        "",
        '[gfx942."7.2"]',
        "fa_fwd_fp16.occupancy = {d128 = 2}",
        "fa_fwd_fp16.scratch_bytes = {d128 = 32}",
        "fa_fwd_fp16.vgpr_spills = {d128 = 7}",
    ]


def test_an_update_without_a_change_keeps_the_files_bytes():
    text = (Path(__file__).parents[4] / GOLDEN).read_text()
    known = parse_golden(text)
    assert known
    for rocm, archs in known.items():
        found = {
            arch: {name: replace(ENTRY, **asdict(limits)) for name, limits in kernels.items()}
            for arch, kernels in archs.items()
        }
        assert updated(known, rocm, found) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[gfx942."7.2"]\na.vgpr = 1\nb.occupancy = "2"', "gfx942 7.2 a vgpr"),
        ('[gfx942."7.2"]\na.vgpr = 1\nb.occupancy = "2"', "gfx942 7.2 b occupancy"),
        ('[gfx942."7.2"]\na.occupancy = 0', "greater than 0"),
        ('[gfx942."7.2"]\na.occupancy = {d64 = true}', "gfx942 7.2 a occupancy"),
        ('[gfx942."7.2"]\na.vgpr_spills = {d64 = 1}', "gfx942 7.2 a_d64: no occupancy"),
        (
            '[gfx942."7.2"]\na.occupancy = 1\n[gfx942."6.4 7.2"]\na.occupancy = 2',
            "gfx942 7.2 a: occupancy is 1 and 2",
        ),
    ],
)
def test_what_is_wrong_with_the_file_is_named(text, words):
    with pytest.raises(DeviceCodeError, match=r"golden\.toml is not right") as caught:
        parse_golden(text)
    assert words in str(caught.value)


def test_a_file_that_is_not_toml_is_refused():
    with pytest.raises(DeviceCodeError, match=r"golden\.toml is not right"):
        parse_golden("a = [")
