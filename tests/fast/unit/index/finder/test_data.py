"""The page's wheel for a GPU and ROCm version, and the facts shown about it."""

from dataclasses import replace

import pytest

from tests.tools.made.catalogues import CATALOGUE
from wheel_builder.index.finder.data import (
    Wheel,
    best_wheel,
    lack,
    make_finder,
    offers,
    torch_notes,
    windows_offer,
)
from wheel_builder.index.simple.pages import Entry, Record

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


def found(*wheels, catalogue=CATALOGUE):
    """Version or reason of each ROCm version's offer."""
    made = offers(make_finder(catalogue, wheels))
    return [(offer.rocm, offer.wheel.version if offer.wheel else offer.reason) for offer in made]


def test_urls_are_relative_to_the_page():
    path = "rocm7.2/simple/flash-attn-rocm/flash_attn_rocm-0.1.0%2Brocm7.2-py3-none-any.whl"
    assert wheel().url == path
    assert wheel().attachments == {"verification": f"{path}.verification.json"}


def test_every_rocm_version_is_named_and_those_with_a_wheel_come_first():
    catalogue = replace(CATALOGUE, built_rocm=("7.2", "6.4"))
    assert found(wheel("0.1.0+rocm6.4", serves=("6.3",)), catalogue=catalogue) == [
        ("6.4", "0.1.0+rocm6.4"),
        ("6.3", "0.1.0+rocm6.4"),
        ("7.2", "its wheel is built, but this index does not have it yet"),
        ("5.7", "no torch runs on it"),
    ]


@pytest.mark.parametrize(
    ("reason", "said"), [("wrong numbers", " (wrong numbers)"), ("", ", without a reason")]
)
def test_a_wheel_that_is_withdrawn_and_the_only_one_is_told_as_such(reason, said):
    catalogue = replace(CATALOGUE, built_rocm=("7.2",))
    name = "flash_attn_rocm-0.1.0+rocm7.2-py3-none-any.whl"
    assert found(wheel(yanked=reason), catalogue=catalogue)[0] == (
        "7.2", f"its wheel, {name}, was withdrawn{said}",
    )  # fmt: skip
    assert found(wheel(yanked=reason), wheel("0.0.9+rocm7.2"))[0] == ("7.2", "0.0.9+rocm7.2")


def test_why_a_gpu_gets_no_kernels():
    one, other, gone = CATALOGUE.gpus
    offer, missing = offers(make_finder(CATALOGUE, [wheel(verified=["gfx908"])]))
    assert lack(one, offer) == ""
    assert lack(other, offer) == "the wheel for ROCm 7.2 has no verification record for gfx1100"
    assert lack(gone, offer) == lack(gone, missing) == "there is no kernel for it"
    assert lack(one, missing) == "no torch runs on it"


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
    best = best_wheel(make_finder(CATALOGUE, wheels), "7.2")
    assert (best.version if best else None) == expected


def test_a_rocm_version_without_a_wheel_of_its_own_may_be_served_by_another():
    assert found(wheel())[1] == ("5.7", "no torch runs on it")
    assert found(wheel(serves=("5.7",)))[1] == ("5.7", "0.1.0+rocm7.2")


def test_torch_releases_say_what_was_run():
    notes = torch_notes(make_finder(CATALOGUE, []))
    assert [(name, served) for name, served, _ in notes] == [
        ("2.13", True), ("2.12", True), ("2.11", True), ("2.10", True), ("newer than 2.13", True),
        ("older than 2.10", False),
    ]  # fmt: skip
    assert notes[0][2] == "the wheel's tests were run with the CPU build of torch 2.13.0"
    assert all(note.startswith("not run with this torch: ") for _, _, note in notes[1:5])


UNDER_WINE = "executed under wine on an ISA emulator, not on Windows; 9 launches"


def windows_wheel(version="0.1.0", **changes):
    """The public wheel for Windows, with gfx1100 executed and gfx908 not."""
    verified = {"gfx1100": UNDER_WINE, "gfx908": "not executed under wine"}
    made = wheel(version, filename=f"flash_attn_rocm-{version}-py3-none-win_amd64.whl", **changes)
    url = f"public/simple/flash-attn-rocm/{made.filename}"
    return replace(made, rocm="public", serves=changes.get("serves", ()), verified=verified, url=url)


def test_on_windows_the_newest_wheel_is_offered_and_to_no_rocm_version_of_linux():
    """Otherwise a wheel that claims some ROCm versions would be the best for them."""
    wheels = [windows_wheel(), windows_wheel("0.2.0", serves=("7.2",)), wheel()]
    finder = make_finder(CATALOGUE, wheels)
    assert windows_offer(finder).wheel == wheels[1]
    assert windows_offer(finder).name == "Windows"
    assert best_wheel(finder, "7.2") == wheels[2]


def test_without_a_wheel_for_windows_it_is_said_why():
    assert windows_offer(make_finder(CATALOGUE, [wheel()])).reason == "this index does not have its wheel yet"
    withdrawn = make_finder(CATALOGUE, [windows_wheel(yanked="wrong numbers"), wheel()])
    name = "flash_attn_rocm-0.1.0-py3-none-win_amd64.whl"
    assert windows_offer(withdrawn).reason == f"its wheel, {name}, was withdrawn (wrong numbers)"


def test_a_gpu_that_rocm_does_not_serve_on_windows_learns_that():
    gpu, _, unknown = CATALOGUE.gpus
    offer = windows_offer(make_finder(CATALOGUE, [windows_wheel()]))
    assert lack(replace(gpu, not_with=(("windows", "not there"),)), offer) == "not there"
    assert lack(gpu, offer) == ""
    assert lack(replace(gpu, arch="gfx942"), offer) == (
        "the wheel for Windows has no verification record for gfx942"
    )
    assert lack(unknown, offer) == "there is no kernel for it"
