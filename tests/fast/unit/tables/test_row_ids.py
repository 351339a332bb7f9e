"""Row ids: which changes they show, and the table for the build of kernels."""

import json
from dataclasses import replace

import pytest

from wheel_builder.tables.archs import CHECKOUT, arch_named, known_archs
from wheel_builder.tables.generated import ROW_IDS
from wheel_builder.tables.row_ids import ids_json, name_of, row_id, rows_used, settings
from wheel_builder.tables.tiles import Tile, Tiles, known_tiles

ROW = Tile(head_dim=64, waves_per_simd=2, waves=4, keys=32, schedule="pipelined", switches=("two_sums",))
KERNEL = name_of("fwd", "fp16", 64)


def test_an_id_is_of_one_kernel_of_one_arch():
    ids = {
        row_id(arch, kernel, (ROW,))
        for arch in ("gfx908", "gfx90a")
        for kernel in (KERNEL, name_of("fwd", "bf16", 64))
    }
    assert len(ids) == 4
    assert row_id("gfx908", KERNEL, (ROW,)) == "7dbe53ae"  # stays as long as the rule does


@pytest.mark.parametrize(
    "changes", [{"keys": 64}, {"switches": ()}, {"switches": ("two_sums", "out_first")}, {"prefetch": 1}]
)
def test_an_id_changes_with_every_setting(changes):
    assert row_id("gfx908", KERNEL, (ROW,)) != row_id("gfx908", KERNEL, (replace(ROW, **changes),))


def test_an_id_ignores_selectors_and_the_order_of_switches():
    one = replace(ROW, switches=("two_sums", "out_first"), loop="plain", dtype="fp16")
    other = replace(ROW, switches=("out_first", "two_sums"), before_clang=22)
    assert row_id("gfx908", KERNEL, (one,)) == row_id("gfx908", KERNEL, (other,))


def test_an_id_is_of_both_loops_in_their_order():
    other = replace(ROW, keys=64)
    assert row_id("gfx908", KERNEL, (ROW, other)) != row_id("gfx908", KERNEL, (other, ROW))


def test_settings_leave_out_defaults():
    assert settings(ROW) == {
        "waves_per_simd": 2, "waves": 4, "keys": 32, "schedule": "pipelined", "switches": ["two_sums"],
    }  # fmt: skip
    assert "switches" not in settings(replace(ROW, switches=()))


def test_an_older_compiler_has_an_id_where_its_rows_differ():
    arch = arch_named("gfx942")
    older = replace(ROW, before_clang=22, keys=64)
    same = replace(ROW, head_dim=32)
    tiles = Tiles({"fwd": {arch.isa.name: (older, ROW, same)}}, {})
    found = json.loads(ids_json(tiles, {"gfx942": arch}))["gfx942"]
    with_newest = row_id("gfx942", KERNEL, (ROW, ROW))
    assert found[KERNEL] == [[22, row_id("gfx942", KERNEL, (older, older))], [0, with_newest]]
    assert [before for before, _ in found[name_of("fwd", "fp16", 32)]] == [0]


def test_every_row_of_todays_compiler_is_used_by_some_kernel():
    used = {
        row
        for arch in known_archs().values()
        for op, isas in known_tiles().rows.items()
        for head_dim in {row.head_dim for row in isas.get(arch.isa.name, ())}
        for dtype in ("fp16", "bf16")
        for row in rows_used(known_tiles(), arch, op, dtype, head_dim)
    }
    every = {row for isas in known_tiles().rows.values() for rows in isas.values() for row in rows}
    assert {row for row in every if not row.before_clang} <= used


def test_the_file_for_the_build_is_todays():
    assert (CHECKOUT / ROW_IDS).read_text(encoding="utf-8") == ids_json(known_tiles(), known_archs())
