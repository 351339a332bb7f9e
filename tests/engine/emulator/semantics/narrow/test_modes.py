"""MODE.FP16_OVFL, forms that are refused in words, and undefined bits beside bytes that were written."""

import re

import pytest

from tests.engine.emulator.semantics.machine import ARCHS, HALVES, Snippet, assembly, expand
from tests.engine.emulator.semantics.test_launch import run
from wheel_builder.machine_code.emulator.machine import Options
from wheel_builder.tables.archs import arch_named

SATURATE = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1"
WITH_FP8 = [arch for arch in ARCHS if arch_named(arch).isa.fp8 != "none"]
STORE = """
v_lshlrev_b32 v0, 2, v0
s_waitcnt lgkmcnt(0)
global_store_{width} v0, v{register}, s[4:5]"""
LARGEST = {"fnuz": 0x7F, "ocp": 0x7E}
# 1000 is beyond FP8, 1 is within.
CONVERT = "v_mov_b32 v2, 0x447a0000\nv_mov_b32 v3, 1.0\nv_mov_b32 v4, 0\nv_cvt_pk_fp8_f32 v4, v2, v3"


def store(register, width="dword"):
    return STORE.format(register=register, width=width)


def first(out, arch):
    return out.values("I")[0]


@pytest.mark.parametrize("arch", ARCHS)
def test_a_kernel_that_sets_the_mode_has_only_instructions_that_are_implemented_for_it(arch, assembled):
    code = f"v_mov_b32 v1, 0\n{SATURATE}\nv_exp_f16 v2, v3" + store(1)
    result, _ = run(assembled, arch, code)
    assert re.search(r"sets FP16_OVFL; 'v_exp_f16_e32 .*' is not implemented for it", result.error)


@pytest.mark.parametrize("arch", ARCHS)
def test_the_mode_may_be_switched_off_and_on(arch, assembled):
    """65520 becomes an infinity, the largest half, and an infinity again."""
    off = SATURATE[:-1] + "0"
    low = ".l" if HALVES in arch_named(arch).isa.assembler_features else ""
    convert = [f"v_cvt_f16_f32 v{register}{low}, v1" for register in (2, 3, 4)]
    code = "\n".join(["v_mov_b32 v1, 0x477ff000", convert[0], SATURATE, convert[1], off, convert[2]])
    for register, want in ((2, 0x7C00), (3, 0x7BFF), (4, 0x7C00)):
        result, out = run(assembled, arch, code + store(register))
        assert not result.error
        assert first(out, arch) & 0xFFFF == want


@pytest.mark.parametrize("arch", WITH_FP8)
def test_a_descriptor_may_set_the_mode(arch, assembled):
    largest = LARGEST[arch_named(arch).isa.fp8]
    one = 0x40 if arch_named(arch).isa.fp8 == "fnuz" else 0x38
    result, out = run(assembled, arch, CONVERT + store(4), described="52\n.amdhsa_fp16_overflow 1")
    assert not result.error
    assert first(out, arch) == one << 8 | largest


@pytest.mark.parametrize("arch", ARCHS)
def test_a_descriptor_that_sets_it_for_other_instructions_is_refused_before_it_runs(arch, assembled):
    code = "v_mov_b32 v1, 0\nv_rcp_f16 v2, v3" + store(1)
    result, _ = run(assembled, arch, code, described="52\n.amdhsa_fp16_overflow 1")
    assert result.executed == 0
    assert re.search(r"FP16_OVFL is set; 'v_rcp_f16_e32 .*' is not implemented for it", result.error)


def test_an_infinite_product_under_the_mode_is_refused(assembled):
    lines = ["v_mov_b32 v1, 0", "v_mov_b32 v2, 0", "v_mov_b32 v3, 0", "v_mov_b32 v4, 0x7f800000"]
    lines += [f"v_mov_b32 v{i}, v4" for i in (5, 6, 7)]
    product = "v_mfma_f32_16x16x32_fp8_fp8 v[4:7], v[2:3], v[2:3], v[4:7]"
    for before, error in (("", ""), (SATURATE, "an infinite result under FP16_OVFL is not implemented")):
        result, _ = run(assembled, "gfx942", "\n".join([*lines, before, product]) + store(1))
        assert (error in result.error) if error else not result.error


def test_operands_of_six_and_four_bits_are_refused(assembled):
    product = "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[0:3], v[0:5], v[0:3] cbsz:4 blgp:2"
    (missing,) = assembled(assembly([Snippet("product", product)], "gfx950"), "gfx950").missing
    assert "FP6, BF6 and FP4 operands (cbsz or blgp above 1) are not implemented" in missing


def test_a_scale_far_from_one_is_refused(assembled):
    product = "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[0:7], v[0:7], v[0:3], v1, v1 op_sel_hi:[0,0,0]"
    result, _ = run(assembled, "gfx950", f"v_mov_b32 v1, 200\n{product}" + store(1))
    assert "the scale 2^73 is not implemented; those from 2^-64 to 2^64 are" in result.error


# v5 is undefined. Each text leaves only a part of v4 defined.
PARTS = [
    ("v_mov_b32 v2, 1.0\nv_cvt_pk_fp8_f32 v5, v2, v2", 5, "short", "dword"),
    ("v_mov_b32 v2, 1.0\nv_cvt_sr_fp8_f32 v5, v2, v2", 5, "byte", "short"),
    ("v_mov_b32 v2, 1.0\nv_cvt_pk_bf8_f32 v5, v2, v2\nv_cvt_f32_bf8 v4, v5", 4, "dword", None),
    ("v_mov_b32 v2, 1.0\nv_mov_b32 v4, 0\nv_cvt_pk_fp8_f32 v4, v2, v5", 4, None, "short"),
]


@pytest.mark.parametrize("arch", WITH_FP8)
@pytest.mark.parametrize(("code", "register", "defined", "undefined"), PARTS)
def test_bits_beside_the_written_ones_stay_undefined(arch, code, register, defined, undefined, assembled):
    for width, kinds in ((defined, set()), (undefined, {"undefined-store"})):
        if width:
            text = expand(code + store(register, width), arch)
            result, _ = run(assembled, arch, text, options=Options(checks=("uninit",)))
            assert not result.error
            assert set(result.kinds()) == kinds
