"""Disputed rates: each changes what its source says, and the table has a column for it."""

from dataclasses import replace

import pytest

from tests.fast.unit.perf.test_measure import measured
from tests.tools.made.assembly import kernel
from wheel_builder.extras.perf.model.disputed import DISPUTES, disputed
from wheel_builder.extras.perf.model.schedule import play
from wheel_builder.extras.perf.model.steps import steps
from wheel_builder.extras.perf.table import disputed_table
from wheel_builder.tables.archs import arch_named, known_archs

MFMA = "v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], v[0:15]"
EXP, ADD = "v_exp_f32_e32 v20, v21", "v_add_f32_e32 v22, v23, v23"


def clocks(arch, name, *waves):
    machine = disputed(arch_named(arch))[name] if name else None
    paths = [list(steps(arch, kernel(*lines).instructions, machine).values()) for lines in waves]
    return play(arch, paths, 1, 1).clocks


RDNA = ("gfx1010", "gfx1012", "gfx1030", "gfx1100", "gfx1102", "gfx1151", "gfx1201")


def test_each_arch_has_the_lines_of_its_isa():
    assert {arch: [*disputed(each)] for arch, each in known_archs().items()} == {
        "gfx906": [], "gfx908": [], "gfx90a": [],
        "gfx942": ["two passes"], "gfx950": ["two passes", "VALU pairs"],
        **{arch: ["own exponentials"] for arch in RDNA},
    }  # fmt: skip


def test_a_line_changes_nothing_else():
    for arch in known_archs().values():
        for name, timing in disputed(arch).items():
            changed = DISPUTES[name].changes
            assert (
                replace(timing, **{field: getattr(arch.isa.timing, field) for field in changed})
                == arch.isa.timing
            )


@pytest.mark.parametrize(("name", "wanted"), [("", 40), ("two passes", 44)])
def test_a_matrix_instruction_holds_the_valu(name, wanted):
    """The first and the last wave share a SIMD."""
    assert clocks("gfx942", name, [MFMA], [], [], [], [ADD] * 9) == wanted


@pytest.mark.parametrize(("name", "wanted"), [("", 5), ("own exponentials", 4)])
def test_an_addition_runs_beside_an_exponential_in_a_unit_of_its_own(name, wanted):
    assert clocks("gfx1100", name, [EXP, ADD]) == wanted


@pytest.mark.parametrize(("name", "wanted"), [("", 8), ("own exponentials", 8)])
def test_exponentials_wait_for_each_other(name, wanted):
    assert clocks("gfx1100", name, [EXP, EXP.replace("20", "30")]) == wanted


def test_exponentials_wait_for_matrix_instructions_of_rdna():
    wmma = "v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[24:31], v[0:7]"
    assert clocks("gfx1100", "own exponentials", [wmma, EXP]) == 36


def test_the_table_has_a_column_for_each_line():
    text = disputed_table([measured(), measured(arch="gfx908")])
    assert all(f"{name}: {dispute.source}" in text for name, dispute in DISPUTES.items())
    assert sum(line.startswith("gfx942") for line in text.splitlines()) == 1
    assert "gfx908" not in text, "it has no line"


def test_figures_alone_need_no_lines():
    assert measured(only_figures=True).charged[0].disputed == {}
