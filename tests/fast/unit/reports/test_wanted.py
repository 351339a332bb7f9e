"""Candidates as data in the repository, a file for each arch: their form, and those of older rows."""

import json

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.base.errors import TuneError
from wheel_builder.extras.timings.wanted import (
    FOLDER,
    MOST_BYTES,
    OfKernel,
    Wanted,
    changes_of,
    file_of,
    is_current,
    read_wanted,
    to_text,
)
from wheel_builder.extras.tune.rows import Change, Kernel, changed, rows_of
from wheel_builder.extras.tune.run import kernel_named
from wheel_builder.tables.archs import arch_named, known_archs
from wheel_builder.tables.tiles import known_tiles

KERNEL = Kernel("gfx1100", "fwd", "fp16", 64)
TODAY = rows_of(known_tiles(), arch_named(KERNEL.arch), KERNEL).id_of(KERNEL)
FILE = file_of(KERNEL.arch)
GOOD = Wanted("prefetch = 9", "to try")
COMMITTED = sorted(file.stem for file in (CHECKOUT / FOLDER).glob("*.toml"))
STALE = 1 / 4  # of a file's kernels, at most
SMALL = 100_000  # bytes of a file that maintainers review


def written(root, *candidates, kernel=KERNEL.name, today=TODAY, text=""):
    (root / FILE).parent.mkdir(parents=True, exist_ok=True)
    (root / FILE).write_text(text or to_text(KERNEL.arch, {kernel: OfKernel(today, candidates)}))
    return root


@pytest.mark.parametrize("arch", COMMITTED)
def test_those_of_the_repository_are_other_rows_than_todays(arch):
    assert arch in known_archs()
    assert (CHECKOUT / file_of(arch)).stat().st_size < SMALL
    listed = read_wanted(CHECKOUT, arch)
    assert listed
    stale = []
    for name, own in listed.items():
        kernel = kernel_named(arch, name)
        if not is_current(kernel, own):
            stale.append(name)
            continue
        rows = rows_of(known_tiles(), arch_named(arch), kernel)
        ids = {changed(rows, changes).id_of(kernel) for changes in changes_of(kernel, own)}
        assert len(ids) == len(own.candidates)
        assert rows.id_of(kernel) not in ids
    assert len(stale) <= STALE * len(listed), f"scripts/wheel-builder candidates --arch {arch}: {stale}"


def test_the_documents_count_them():
    rows = ["| arch | kernels with candidates | candidates |", "| --- | --- | --- |"]
    for arch in sorted(COMMITTED, key=lambda name: int(name.removeprefix("gfx"), 16)):
        found = [len(own.candidates) for own in read_wanted(CHECKOUT, arch).values() if own.candidates]
        rows.append(f"| {arch} | {len(found)} | {sum(found)} |")
    text = (CHECKOUT / "docs/dev/tuning.md").read_text("utf-8")
    assert "\n".join(["", *rows, ""]) in text, "\n".join(rows)


def test_what_is_written_is_read(tmp_path):
    found = {
        KERNEL.name: OfKernel(TODAY, (GOOD, Wanted("waves = 2", 'said "maybe"'))),
        "fa_bwd_dq_bf16_d64": OfKernel("0123abcd", ()),
    }
    (tmp_path / FILE).parent.mkdir(parents=True)
    (tmp_path / FILE).write_text(to_text(KERNEL.arch, found))
    assert read_wanted(tmp_path, KERNEL.arch) == found
    assert changes_of(KERNEL, found[KERNEL.name]) == [(Change("prefetch", 9),), (Change("waves", 2),)]


def test_an_arch_without_a_file_has_none(tmp_path):
    assert read_wanted(written(tmp_path, GOOD), "gfx942") == {}


@pytest.mark.parametrize(("today", "current"), [(TODAY, True), ("01234567", False)])
def test_those_of_older_rows_are_told_apart(today, current, tmp_path):
    [own] = read_wanted(written(tmp_path, GOOD, today=today), KERNEL.arch).values()
    assert is_current(KERNEL, own) == current


@pytest.mark.parametrize(
    ("kernel", "candidate", "words"),
    [
        ("fa_append_fp16_d64", GOOD, "fa_append_fp16_d64: fa_append_fp16_d64 cannot be tuned"),
        ("fa_fwd_fp16_d48", GOOD, "fa_fwd_fp16_d48: fa_fwd_fp16_d48 of gfx1100 has no row"),
        (KERNEL.name, Wanted("speed = 9", "x"), f"{KERNEL.name}: no change of fwd: speed = 9"),
        (KERNEL.name, Wanted("today's row", "x"), '"today\'s row" changes nothing'),
        (KERNEL.name, Wanted("schedule = fast", "x"), f"{KERNEL.name}: no change of fwd: schedule = fast"),
        (
            KERNEL.name,
            Wanted("prefetch = 9, prefetch = 8", "x"),
            "no change of fwd: prefetch = 9, prefetch = 8",
        ),
        (KERNEL.name, Wanted("prefetch = 9", ""), f"{KERNEL.name}: why: expected one line"),
    ],
)
def test_another_form_is_refused(kernel, candidate, words, tmp_path):
    with pytest.raises(TuneError, match=f"{FILE} cannot be used") as caught:
        read_wanted(written(tmp_path, candidate, kernel=kernel), KERNEL.arch)
    assert words in str(caught.value)


def test_a_candidate_twice_or_one_too_many_is_refused(tmp_path):
    several = [Wanted(f"prefetch = {number}", "to try") for number in range(20, 28)]
    with pytest.raises(TuneError) as caught:
        read_wanted(written(tmp_path, GOOD, *several, several[0]), KERNEL.arch)
    assert caught.value.problems == (
        "fa_fwd_fp16_d64: prefetch = 20: it is there twice",
        "fa_fwd_fp16_d64: it has 10 candidates, expected at most 8",
    )


def test_numbers_that_no_row_has_are_refused_all_at_once(tmp_path):
    wrong = "waves = 0", "waves_per_simd = 0, keys = -16", "value_lanes = 0", "prefetch = 99999", "keys = 17"
    with pytest.raises(TuneError) as caught:
        read_wanted(written(tmp_path, GOOD, *(Wanted(each, "to try") for each in wrong)), KERNEL.arch)
    assert caught.value.problems == (
        "fa_fwd_fp16_d64: 'waves = 0': waves is 0, expected 1 to 1024",
        "fa_fwd_fp16_d64: 'waves_per_simd = 0, keys = -16': keys is -16, expected 1 to 1024",
        "fa_fwd_fp16_d64: 'waves_per_simd = 0, keys = -16': waves_per_simd is 0, expected 1 to 1024",
        "fa_fwd_fp16_d64: 'value_lanes = 0': value_lanes is 0, expected 1 to 1024",
        "fa_fwd_fp16_d64: 'prefetch = 99999': prefetch is 99999, expected 0 to 1024",
        "fa_fwd_fp16_d64: 'keys = 17': 17 keys are not whole matrix steps of 16 rows",
        "fa_fwd_fp16_d64: 'keys = 17': 8 lanes do not divide 4 groups of keys",
    )


def test_a_change_that_is_none_hides_no_other_problem(tmp_path):
    with pytest.raises(TuneError) as caught:
        read_wanted(
            written(tmp_path, Wanted("speed = 9", "x"), Wanted("waves = 0", "x"), Wanted("keys = 64", "")),
            KERNEL.arch,
        )
    assert [each.partition(": ")[2][:24] for each in caught.value.problems] == [
        "no change of fwd: speed ", "'waves = 0': waves is 0,", "why: expected one line o",
    ]  # fmt: skip


def test_candidates_of_older_rows_meet_no_rule_of_todays(tmp_path):
    assert read_wanted(written(tmp_path, Wanted("keys = 17", "x"), today="01234567"), KERNEL.arch)


@pytest.mark.parametrize("today", ["", "0123ABCD", "01234567\n"])
def test_what_is_no_row_id_is_refused(today, tmp_path):
    text = f"[{KERNEL.name}]\ntoday = {json.dumps(today)}\ncandidates = []\n"
    with pytest.raises(TuneError) as caught:
        read_wanted(written(tmp_path, text=text), KERNEL.arch)
    assert caught.value.problems == (f"{KERNEL.name}: today is {today!r}, expected a row id",)


@pytest.mark.parametrize(
    "text",
    ["#" * (MOST_BYTES + 1), "candidate = 3\n", "[fa_fwd\n", "[fa_fwd]\nx = 1\n", f"x = {'[' * 9999}\n"],
)
def test_what_is_no_table_is_refused(text, tmp_path):
    with pytest.raises(TuneError, match="cannot be used"):
        read_wanted(written(tmp_path, text=text), KERNEL.arch)
