"""A changed row of the table of tiles changes only the includes of its own kernels.

With one header for the rows of all kernels, one row made 87 to 91 kernels of an ISA compile again.
"""

import re

import pytest

from kernels.build.instances.generate import OPS, include, load_table, source
from wheel_builder.tables.archs import CHECKOUT, known_archs
from wheel_builder.tables.tiles import TILES, cpp_tiles, known_tiles, parse_tiles

INCLUDE, FOLDER = CHECKOUT / "kernels", "generated/device/tiles"
INSTANCES = load_table()
QUOTED = re.compile(r'^#include "((?:device|generated)/[^"]+)"', re.MULTILINE)
DEFINED = re.compile(r'^#define FA_TILES_\w+ "((?:device|generated)/[^"]+)"', re.MULTILINE)


def included(text):
    """All headers included by a translation unit, rows included by macro too."""
    found, todo = set(), [*QUOTED.findall(text), *DEFINED.findall(text)]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += QUOTED.findall((INCLUDE / name).read_text())
    return found


def rows_in(text):
    """The files of rows among them. Workgroups belong to kernels without rows."""
    names = {name.removeprefix(f"{FOLDER}/") for name in included(text) if name.startswith(f"{FOLDER}/")}
    return names - {"workgroups.inc"}


@pytest.mark.parametrize("instance", INSTANCES, ids=lambda instance: instance.name)
def test_a_kernel_includes_the_rows_of_its_op_and_head_dim_only(instance):
    own = {f"{instance.op}/d{instance.head_dim}.inc"} if OPS[instance.op].per_head_dim else set()
    assert rows_in(source(instance)) == own


@pytest.mark.parametrize("header", sorted({op.shared for op in OPS.values()}))
def test_a_precompiled_header_has_no_rows(header):
    """With a kernel's row, a change would compile all its readers again."""
    text = include(header)
    assert len(included(text)) > 10
    assert rows_in(text) == set()


@pytest.mark.parametrize(
    ("kernel", "head_dim", "names"),
    [
        ("fwd", 64, ["fa_fwd_fp16_d64", "fa_fwd_bf16_d64"]),
        ("decode", 128, ["fa_decode_fp16_d128", "fa_decode_bf16_d128"]),
        ("bwd_dq", 64, ["fa_bwd_dq_fp16_d64", "fa_bwd_dq_bf16_d64"]),
        ("bwd_fused", 64, ["fa_bwd_fused_fp16_d64", "fa_bwd_fused_bf16_d64"]),
    ],
)
def test_a_changed_row_compiles_two_kernels_again(kernel, head_dim, names):
    text = (CHECKOUT / TILES).read_text()
    table = text.index(f"\n[{kernel}]\n")
    own = rf"\{{ head_dim = {head_dim},(?![^\n]*steps_at_once)[^\n]*?waves_per_simd = \d+"
    row = re.compile(own).search(text, table)
    changed = text[: row.end()] + ", steps_at_once = 9" + text[row.end() :]
    now = cpp_tiles(parse_tiles(changed, {arch.isa.name for arch in known_archs().values()}))
    before = cpp_tiles(known_tiles())
    differ = {name for name in before if now[name] != before[name]}
    assert differ == {f"{kernel}/d{head_dim}.inc"}  # and nothing of the host's
    assert [each.name for each in INSTANCES if rows_in(source(each)) & differ] == names
