"""The busy bound, by hand."""

import pytest

from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.model.bound import busy_bound
from wheel_builder.extras.perf.model.lds import Charge
from wheel_builder.machine_code.emulator.machine import Count


def counts(**executed):
    """Counts by mnemonic. A pair is (wave-instructions, active lanes)."""
    pairs = {name: n if isinstance(n, tuple) else (n, 0) for name, n in executed.items()}
    return {name.replace("__and__", " :: "): Count("", n, lanes) for name, (n, lanes) in pairs.items()}


def test_matrix_and_valu_overlap_on_gfx9():
    bound = busy_bound("gfx942", counts(v_mfma_f32_32x32x8_f16=8, v_add_f32=10, v_exp_f32=4))
    assert (bound.matrix, bound.valu, bound.alu) == (64, 26, 64)  # 8 x 32 / 4; (10 x 4 + 4 x 16) / 4
    assert bound.matrix_busy == 1


def test_matrix_and_valu_add_up_on_gfx1100():
    bound = busy_bound("gfx1100", counts(v_wmma_f32_16x16x16_f16=2, v_add_f32=8, v_exp_f32=2))
    assert (bound.matrix, bound.valu, bound.clocks) == (32, 8, 40)  # 2 x 32 / 2; (8 + 2 x 4) / 2
    assert bound.matrix_busy == 0.8


@pytest.mark.parametrize(
    ("arch", "mnemonic", "clocks"),
    [
        ("gfx908", "v_mfma_f32_32x32x8f16", 64),
        ("gfx908", "v_mfma_f32_16x16x16f16", 32),
        ("gfx908", "v_mfma_f32_32x32x4bf16", 64),
        ("gfx908", "v_mfma_f32_16x16x8bf16", 32),
        ("gfx942", "v_mfma_f32_32x32x8_bf16", 32),
        ("gfx942", "v_mfma_f32_16x16x16_f16", 16),
        ("gfx908", "v_mfma_i32_32x32x8i8", 64),
        ("gfx90a", "v_mfma_i32_16x16x16i8", 32),
        ("gfx942", "v_mfma_i32_32x32x16_i8", 32),
        ("gfx942", "v_mfma_f32_16x16x32_fp8_bf8", 16),
        ("gfx950", "v_mfma_i32_32x32x32_i8", 32),
        ("gfx950", "v_mfma_i32_16x16x64_i8", 16),
        ("gfx950", "v_mfma_f32_32x32x64_f8f6f4", 64),
        ("gfx950", "v_mfma_scale_f32_16x16x128_f8f6f4", 32),
    ],
)
def test_clocks_of_matrix_instructions(arch, mnemonic, clocks):
    assert busy_bound(arch, counts(**{mnemonic: 4})).matrix == clocks


@pytest.mark.parametrize(
    ("arch", "mnemonic", "clocks"),
    [
        ("gfx1100", "v_wmma_i32_16x16x16_iu8", 32),
        ("gfx1201", "v_wmma_f32_16x16x16_f16", 16),
        ("gfx1201", "v_wmma_i32_16x16x16_iu8", 8),
        ("gfx1201", "v_wmma_f32_16x16x16_fp8_bf8", 8),
    ],
)
def test_clocks_of_matrix_instructions_of_two_simds(arch, mnemonic, clocks):
    assert busy_bound(arch, counts(**{mnemonic: 2})).matrix == clocks


@pytest.mark.parametrize(
    ("arch", "mnemonic", "clocks"),
    [
        ("gfx942", "v_cvt_pk_fp8_f32", 16),
        ("gfx942", "v_cvt_f32_bf8", 16),
        ("gfx950", "v_cvt_sr_bf8_f32", 16),
        ("gfx950", "v_cvt_scalef32_pk_f16_fp8", 4),
        ("gfx942", "v_cvt_pkrtz_f16_f32", 4),
        ("gfx1201", "v_cvt_pk_f32_fp8", 2),
    ],
)
def test_clocks_of_conversions_of_8_bits(arch, mnemonic, clocks):
    assert busy_bound(arch, counts(**{mnemonic: 4})).valu == clocks


def test_a_dual_issue_pair_counts_once_and_dot2_within_it():
    bound = busy_bound("gfx1100", counts(v_dual_dot2acc_f32_f16__and__v_dual_mul_f32=6, v_nop=2))
    assert (bound.valu, bound.dot2) == (4, 3)


def test_dot2_share():
    bound = busy_bound("gfx1030", counts(v_dot2_f32_f16=2, v_dot2c_f32_f16=4, v_mov_b32=2))
    assert (bound.valu, bound.dot2_busy, bound.matrix_busy) == (4, 0.75, 0)


def test_the_lds_is_charged_at_its_banks_and_at_two_ports():
    bound = busy_bound("gfx942", counts(v_nop=4), [(Charge(12, 20, 4, 2), 3), (Charge(8, 20, 0, 1), 1)])
    assert (bound.banks, bound.conflicts, bound.port) == (44, 12, 40)
    assert bound.clocks == 44


def test_the_port_can_be_what_binds():
    assert busy_bound("gfx942", {}, [(Charge(2, 8, 0, 1), 2)]).clocks == 8


def test_scalars_waits_and_global_memory_are_left_out():
    found = busy_bound("gfx908", counts(s_add_u32=9, s_waitcnt=9, global_load_dwordx4=(9, 576), v_nop=4))
    assert found.clocks == 4


def test_a_matrix_instruction_without_clocks_is_an_error():
    with pytest.raises(PerfError, match="no clocks are known for a matrix instruction of gfx942"):
        busy_bound("gfx942", counts(v_mfma_f32_99x99x9_f16=1))
