"""Which wheel the page names for a GPU and ROCm version, and what it says about it."""

from dataclasses import replace

import pytest

from tests.catalogues import CATALOGUE
from wheel_builder.index.finder.data import Wheel, answers, best_wheel, make_finder, torch_notes
from wheel_builder.index.pages import Entry, Record

EMULATED = "executed on an ISA emulator, not run on hardware; 9 launches"


def wheel(version="0.1.0+rocm7.2", *, serves=(), yanked=None, verified=("gfx908", "gfx1100"), **changes):
    rocm = version.partition("+rocm")[2]
    record = Record(
        filename=f"flash_attn_rocm-{version}-py3-none-any.whl",
        project="flash-attn-rocm",
        version=version,
        requires_python=">=3.10",
        size=5,
        sha256="ab" * 32,
        metadata_sha256="cd" * 32,
        upload_time="2026-01-02T03:04:05.000678Z",
        serves=serves,
        verified=dict.fromkeys(verified, EMULATED),
        attachments={"verification": "ef" * 32},
    )
    entry = Entry(replace(record, **changes), yanked, f"rocm{rocm}/simple/flash-attn-rocm/")
    return Wheel.of(entry, rocm, {"verification": ".verification.json"})


def rows(*wheels, catalogue=CATALOGUE):
    found = answers(make_finder(catalogue, wheels))
    return [(row.gpu.arch, row.rocm, row.wheel and row.wheel.version, row.text) for row in found]


def test_urls_are_relative_to_the_page():
    path = "rocm7.2/simple/flash-attn-rocm/flash_attn_rocm-0.1.0%2Brocm7.2-py3-none-any.whl"
    assert wheel().url == path
    assert wheel().attachments == {"verification": f"{path}.verification.json"}


def test_every_gpu_and_runtime_has_a_row():
    assert rows(wheel(), wheel("0.1.0+rocm6.4", verified=["gfx908"])) == [
        ("gfx908", "7.2", "0.1.0+rocm7.2", EMULATED),
        ("gfx908", "6.4", "0.1.0+rocm6.4", EMULATED),
        ("gfx1100", "7.2", "0.1.0+rocm7.2", EMULATED),
        ("gfx1100", "6.4", None, "no record says that the wheel for ROCm 6.4 was verified for gfx1100"),
        ("gfx906", "", None, "there is no kernel for it"),
    ]


def test_an_empty_index_says_so():
    assert rows()[0] == ("gfx908", "", None, "no wheel was published yet")


@pytest.mark.parametrize(
    ("wheels", "expected"),
    [
        ([wheel(), wheel("0.2.0+rocm7.2")], "0.2.0+rocm7.2"),
        ([wheel("0.10.0+rocm7.2"), wheel("0.9.0+rocm7.2")], "0.10.0+rocm7.2"),
        ([wheel(), wheel("0.2.0+rocm7.2", yanked="broken")], "0.1.0+rocm7.2"),
        ([wheel(yanked="")], None),
        ([wheel(), wheel("0.1.0+rocm7.3", serves=("7.2",))], "0.1.0+rocm7.2"),
        ([wheel(), wheel("0.2.0+rocm7.1", serves=("7.2",))], "0.2.0+rocm7.1"),
        ([wheel(project="other")], None),
    ],
)
def test_the_newest_wheel_that_is_not_withdrawn_is_named_and_an_own_one_first(wheels, expected):
    found = best_wheel(make_finder(CATALOGUE, wheels), "7.2")
    assert (found.version if found else None) == expected


def test_a_rocm_version_without_a_wheel_has_its_reason_unless_another_wheel_serves_it():
    assert make_finder(CATALOGUE, [wheel()]).unserved_rocm == (("5.7", "no torch runs on it"),)
    assert make_finder(CATALOGUE, [wheel(serves=("5.7",))]).unserved_rocm == ()


def test_torch_releases_say_what_was_run():
    notes = torch_notes(make_finder(CATALOGUE, []))
    assert [(name, served) for name, served, _ in notes] == [
        ("2.13", True), ("2.12", True), ("2.11", True), ("2.10", True), ("newer than 2.13", True),
        ("older than 2.10", False),
    ]  # fmt: skip
    assert notes[0][2] == "the wheel's tests were run with the CPU build of torch 2.13.0"
    assert all(note.startswith("not run with this torch: ") for _, _, note in notes[1:5])
