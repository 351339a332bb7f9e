"""RDNA 4: scalar registers read by the vector unit, then written and read again."""

import pytest

from tests.tools.made.assembly import kernel
from wheel_builder.machine_code.static_checks.hazards import check_hazards

ARCH = "gfx1201"
SEEN = "v_add_f32_e32 v1, s4, v2"  # the vector unit reads s4, so s[4:5] is tracked
BY_SALU, BY_VALU = "s_mov_b32 s4, s9", "v_readfirstlane_b32 s4, v9"
READ, SCALAR_READ = "v_add_f32_e32 v3, s4, v2", "s_mov_b32 s8, s4"
VCC_SEEN, VCC_READ = "v_cndmask_b32_e32 v1, v2, v3, vcc_lo", "v_cndmask_b32_e32 v5, v2, v3, vcc_lo"
VCC_BY_VALU, VCC_BY_SALU = "v_cmp_lt_f32_e32 vcc_lo, v1, v2", "s_mov_b32 vcc_lo, s9"
SA_SDST, VA_SDST, VA_VCC = "s_wait_alu 0xfffe", "s_wait_alu 0xf1ff", "s_wait_alu 0xfffd"
WAITS = {"sa_sdst": SA_SDST, "va_sdst": VA_SDST, "va_vcc": VA_VCC}


def texts(*lines, arch=ARCH):
    return [finding.text for finding in check_hazards(arch, kernel(*lines))]


# The vector unit reads a register, then it is written and read again: the field to wait for.
CASES = {
    "the scalar unit writes, the vector unit reads": (SEEN, BY_SALU, READ, "sa_sdst"),
    "the scalar unit writes and reads": (SEEN, BY_SALU, SCALAR_READ, "sa_sdst"),
    "the scalar unit adds to what it wrote": (SEEN, BY_SALU, "s_addk_co_i32 s4, 0x80", "sa_sdst"),
    "the scalar unit writes, a mask": (SEEN, BY_SALU, "v_cndmask_b32_e64 v5, v2, v3, s4", "sa_sdst"),
    "the scalar unit writes, half of a pair": (
        SEEN, "s_mov_b32 s5, s9", "s_add_nc_u64 s[10:11], s[4:5], s[10:11]", "sa_sdst",
    ),
    "the scalar unit writes the other half of the pair": (
        SEEN, "s_mov_b32 s5, s9", "s_mov_b32 s8, s5", "sa_sdst",
    ),
    "half of a dual-issue pair reads": (
        SEEN, BY_SALU, "v_dual_mov_b32 v3, v4 :: v_dual_mul_f32 v6, s4, v7", "sa_sdst",
    ),
    "the vector unit writes and reads": (SEEN, BY_VALU, READ, "va_sdst"),
    "a comparison writes": (SEEN, "v_cmp_lt_f32_e64 s4, v1, v2", READ, "va_sdst"),
    "VCC, the vector unit writes": (VCC_SEEN, VCC_BY_VALU, VCC_READ, "va_vcc"),
    "VCC, the scalar unit writes": (VCC_SEEN, VCC_BY_SALU, VCC_READ, "sa_sdst"),
    "VCC, the scalar unit writes, a branch": (VCC_SEEN, VCC_BY_SALU, "s_cbranch_vccz 0", "sa_sdst"),
    "VCC, named by no operand": (VCC_SEEN, VCC_BY_VALU, "v_div_fmas_f32 v1, v2, v3, v4", "va_vcc"),
}  # fmt: skip


@pytest.mark.parametrize(("seen", "write", "read", "field"), CASES.values(), ids=CASES)
def test_a_register_that_was_written_needs_a_wait_of_its_kind(seen, write, read, field):
    assert texts(seen, write, WAITS[field], read) == []
    assert texts(seen, write, f"s_wait_alu depctr_{field}(0)", read) == []
    (text,) = texts(seen, write, read)
    assert f"`{read}` reads " in text
    assert f"needs s_wait_alu with {field}(0) before it" in text
    for other, wait in WAITS.items():
        assert bool(texts(seen, write, wait, read)) == (other != field), other


@pytest.mark.parametrize(
    "lines",
    [
        (BY_SALU, READ),  # the vector unit never read it
        (SEEN, "s_mov_b32 s6, s9", "s_mov_b32 s8, s6"),  # nor this one
        (SEEN, BY_VALU, SCALAR_READ),  # the scalar unit waits for the vector unit
        (SEEN, BY_VALU, SCALAR_READ, READ),  # and so for all
        (VCC_SEEN, VCC_BY_VALU, "s_mov_b32 s8, vcc_lo", VCC_READ),
        (SEEN, BY_SALU, "s_load_b32 s8, s[0:1], 0x0", READ),  # scalar loads wait for all
        (SEEN, BY_SALU, "buffer_load_b32 v9, v8, s[12:15], null offen", READ),
        (SEEN, "s_mov_b32 m0, s9", "s_mov_b32 s8, m0"),
        ("v_cmp_lt_f32_e64 s4, v1, v2", READ),
        (SEEN, BY_SALU, "s_wait_alu depctr_va_vcc(0) depctr_sa_sdst(0)", READ),
    ],
)
def test_what_needs_no_wait(lines):
    assert texts(*lines) == []


@pytest.mark.parametrize(
    "between", ["global_load_b32 v9, v[8:9], off", "ds_load_b32 v9, v8", "s_nop 7", "s_wait_kmcnt 0x0"]
)
def test_other_instructions_do_not_help(between):
    assert len(texts(SEEN, BY_SALU, between, READ)) == 1


def test_a_read_around_a_loop_counts():
    """The vector unit's first read is after the others, and before them in the next turn."""
    loop = [BY_SALU, "{}", "s_add_co_u32 s8, s4, 1", SEEN, "s_cbranch_scc1 65531"]
    assert texts(*(line.format(SA_SDST) for line in loop)) == []
    found = texts(*(line.format("s_nop 0") for line in loop))
    assert [text.split("`")[1] for text in found] == ["s_add_co_u32 s8, s4, 1", SEEN]


def test_where_paths_meet_the_one_without_a_wait_counts():
    assert texts(SEEN, BY_SALU, SA_SDST, "s_cbranch_scc1 0", READ) == []
    assert len(texts(SEEN, BY_SALU, "s_cbranch_scc1 1", SA_SDST, READ)) == 1


def test_a_finding_names_the_registers():
    (text,) = texts(SEEN, VCC_SEEN, BY_SALU, VCC_BY_SALU, "v_add_co_ci_u32_e64 v1, s6, s4, v2, vcc_lo")
    assert "reads s4, vcc, written since the vector unit has read it" in text


def test_other_isas_do_not_have_the_rule():
    assert texts(SEEN, BY_SALU, READ, arch="gfx1151") == []
