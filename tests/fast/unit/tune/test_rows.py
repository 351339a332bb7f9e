"""Rows of a kernel: read, changed, and written as tiles.toml has them."""

import tomllib

import pytest

from wheel_builder.base.errors import TuneError
from wheel_builder.extras.tune.rows import (
    NONE,
    Change,
    Kernel,
    alone,
    changed,
    changes_named,
    joined,
    rows_of,
    toml_row,
    words_of,
)
from wheel_builder.tables.archs import CHECKOUT, arch_named
from wheel_builder.tables.row_ids import row_id, rows_used
from wheel_builder.tables.tiles import TILES, known_tiles, parse_tiles

KERNEL = Kernel("gfx908", "fwd", "fp16", 64)
ARCH = arch_named("gfx908")
ROWS = rows_of(known_tiles(), ARCH, KERNEL)


def test_todays_rows_have_the_registrys_id():
    used = rows_used(known_tiles(), ARCH, "fwd", "fp16", 64)
    assert ROWS.id_of(KERNEL) == row_id("gfx908", "fa_fwd_fp16_d64", used)
    assert (ROWS.plain.loop, ROWS.featured.loop) == ("plain", "featured")


def test_a_kernel_without_rows_is_refused():
    with pytest.raises(TuneError, match="fa_fwd_fp16_d80 of gfx908 has no row"):
        rows_of(known_tiles(), ARCH, Kernel("gfx908", "fwd", "fp16", 80))


def test_a_change_is_of_the_plain_loop_alone():
    found = changed(ROWS, [Change("prefetch", 2), Change("two_sums", True)])
    assert (found.plain.prefetch, "two_sums" in found.plain.switches) == (2, True)
    assert found.featured == ROWS.featured


def test_both_loops_have_the_same_waves():
    found = changed(ROWS, [Change("waves", 8)])
    assert (found.plain.waves, found.featured.waves) == (8, 8)


def rows_for(op, arch="gfx908", head_dim=64):
    return rows_of(known_tiles(), arch_named(arch), Kernel(arch, op, "fp16", head_dim))


@pytest.mark.parametrize("op", ["fwd_masked", "bwd_fused", "bwd_dkdv_masked", "bwd_dq_masked"])
def test_kernels_with_one_loop_have_one_row(op):
    rows = rows_for(op)
    found = changed(rows, [Change("prefetch", 1)])
    assert found.plain.prefetch == found.featured.prefetch == 1
    both = rows_used(known_tiles(), ARCH, op, "fp16", 64)
    assert rows.id_of(Kernel("gfx908", op, "fp16", 64)) == row_id("gfx908", f"fa_{op}_fp16_d64", both)


def test_a_row_of_two_loops_is_changed_for_one():
    found = changed(rows_for("bwd_dkdv", head_dim=32), [Change("prefetch", 1), Change("pairs", 2)])
    assert (found.plain.prefetch, found.featured.prefetch) == (1, 3)
    assert (found.plain.pairs, found.featured.pairs) == (2, 2)


def test_a_fused_kernel_with_features_has_two_loops():
    rows = rows_for("bwd_fused", "gfx942", 96)
    assert "features" in rows.plain.switches
    assert not rows.together


def test_a_kernel_whose_table_has_no_featured_row():
    rows = rows_for("fwd_tall", "gfx942", 128)
    assert rows.featured is None
    assert rows.used == (rows.plain,)
    used = rows_used(known_tiles(), arch_named("gfx942"), "fwd_tall", "fp16", 128)
    kernel = Kernel("gfx942", "fwd_tall", "fp16", 128)
    assert rows.id_of(kernel) == row_id("gfx942", kernel.name, used)


def test_a_switch_is_turned_off_and_on_once():
    off = changed(ROWS, [Change("identity_shortcuts", False)])
    assert "identity_shortcuts" not in off.plain.switches
    on = changed(off, [Change("identity_shortcuts", True), Change("identity_shortcuts", True)])
    assert on.plain.switches.count("identity_shortcuts") == 1
    assert on.id_of(KERNEL) == ROWS.id_of(KERNEL)


def test_words_and_order_of_changes():
    both = [Change("prefetch", 2), Change("identity_shortcuts", False)]
    assert joined(both) == joined(reversed(both))
    assert words_of(joined(both)) == "without identity_shortcuts, prefetch = 2"
    assert words_of(NONE) == "today's row"


@pytest.mark.parametrize(
    "changes",
    [NONE, [Change("waves", 2)], [Change("two_sums", True), Change("schedule", "one_stage")],
     [Change("identity_shortcuts", False), Change("prefetch", 2), Change("keys", 64)]],
)  # fmt: skip
def test_changes_are_named_by_their_words(changes):
    assert changes_named("fwd", words_of(joined(changes))) == joined(changes)


@pytest.mark.parametrize(
    "words", ["", "waves", "waves = two", "with nothing", "pairs = 2", "two_sums = 1", "keys 2"]
)
def test_other_words_are_refused(words):
    with pytest.raises(TuneError, match="no change of fwd: ") as caught:
        changes_named("fwd", words)
    assert caught.value.problems == ("expected words such as 'waves = 2, without identity_shortcuts'",)


def test_every_row_of_the_table_is_written_as_it_is_read():
    rows = tomllib.loads((CHECKOUT / TILES).read_text(encoding="utf-8"))
    isas = {arch for op in rows.values() for arch in op}
    for op, tiles in known_tiles().rows.items():
        for isa, each in tiles.items():
            text = f"[{op}]\n{isa} = [\n" + "".join(f"{toml_row(op, row)},\n" for row in each) + "]\n"
            assert parse_tiles(text, isas).rows[op][isa] == each


def test_a_candidates_row_holds_for_every_compiler_and_dtype():
    tiles = known_tiles().rows["fwd"]["cdna3"]
    [older] = [row for row in tiles if row.before_clang and row.head_dim == 64 and row.loop == "plain"]
    assert alone(older, "plain").before_clang == 0
