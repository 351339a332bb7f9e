"""Candidates as data in the repository: the committed ones are for today's rows, others are refused."""

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.base.errors import TuneError
from wheel_builder.extras.timings.wanted import FILE, MOST_BYTES, read_wanted, wanted_for
from wheel_builder.extras.tune.rows import Kernel, changed, rows_of
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import known_tiles

KERNEL = Kernel("gfx1100", "fwd", "fp16", 64)
TODAY = rows_of(known_tiles(), arch_named(KERNEL.arch), KERNEL).id_of(KERNEL)
GOOD = {
    "arch": KERNEL.arch,
    "kernel": KERNEL.name,
    "today": TODAY,
    "changes": "prefetch = 9",
    "why": "to try",
}


def written(root, *candidates, text=""):
    (root / FILE).parent.mkdir(parents=True, exist_ok=True)
    rows = ("\n".join(f'{key} = "{value}"' for key, value in each.items()) for each in candidates)
    (root / FILE).write_text(text + "".join(f"[[candidate]]\n{row}\n" for row in rows))
    return root


def test_those_of_the_repository_are_for_todays_rows():
    """A changed row of tiles.toml makes them stale: take them out, or write their changes again."""
    wanted = read_wanted(CHECKOUT)
    for arch in {each.arch for each in wanted}:
        for kernel, every in wanted_for(arch, wanted).items():
            rows = rows_of(known_tiles(), arch_named(arch), kernel)
            ids = {changed(rows, changes).id_of(kernel) for changes in every}
            assert len(ids) == len(every)
            assert rows.id_of(kernel) not in ids


def test_one_is_read(tmp_path):
    wanted = read_wanted(written(tmp_path, GOOD))
    assert [each.changes for each in wanted] == ["prefetch = 9"]
    assert [*wanted_for("gfx1100", wanted)] == [KERNEL]
    assert wanted_for("gfx942", wanted) == {}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arch": "gfx1101"}, "candidate 1: arch is 'gfx1101', expected one of gfx906"),
        ({"kernel": "fa_append_fp16_d64"}, "candidate 1: fa_append_fp16_d64 cannot be tuned"),
        (
            {"today": "01234567"},
            f"fa_fwd_fp16_d64 of gfx1100 has the rows {TODAY} today, and it refers to 01234567",
        ),
        ({"changes": "speed = 9"}, "candidate 1: no change of fwd: speed = 9"),
        ({"changes": "today's row"}, "changes nothing of fa_fwd_fp16_d64"),
        ({"why": ""}, "why: expected one line"),
        ({"more": "x"}, "Unexpected keyword argument"),
    ],
)
def test_another_form_is_refused(changes, words, tmp_path):
    with pytest.raises(TuneError, match=f"{FILE} cannot be used") as caught:
        read_wanted(written(tmp_path, {**GOOD, **changes}))
    assert words in str(caught.value)


def test_a_candidate_twice_or_one_too_many_is_refused(tmp_path):
    several = [{**GOOD, "changes": f"prefetch = {number}"} for number in range(20, 28)]
    with pytest.raises(TuneError) as caught:
        read_wanted(written(tmp_path, GOOD, *several, several[0]))
    assert caught.value.problems == (
        "gfx1100 fa_fwd_fp16_d64 prefetch = 20: it is there twice",
        "gfx1100 fa_fwd_fp16_d64: it has 10 candidates, expected at most 8",
    )


@pytest.mark.parametrize("text", ["#" * (MOST_BYTES + 1), "candidate = 3\n", "[[candidate\n"])
def test_what_is_no_table_is_refused(text, tmp_path):
    with pytest.raises(TuneError, match="cannot be used"):
        read_wanted(written(tmp_path, text=text))
