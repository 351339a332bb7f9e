import pytest

from tests.tools.made.assembly import kernel
from wheel_builder.base.errors import ArchError, DeviceCodeError
from wheel_builder.machine_code.static_checks.matrix_use import check_matrix_use

MFMA_16 = "v_mfma_f32_32x32x8_f16 v[16:31], v[0:1], v[2:3], v[16:31]"
MFMA_BF = "v_mfma_f32_32x32x8_bf16 v[16:31], v[0:1], v[2:3], v[16:31]"
MFMA_16_GFX908 = "v_mfma_f32_32x32x8f16 a[0:15], v[0:1], v[2:3], a[0:15]"
MFMA_BF_GFX908 = "v_mfma_f32_32x32x4bf16 a[0:15], v0, v1, a[0:15]"
MFMA_16_GFX950 = "v_mfma_f32_32x32x16_f16 v[16:31], v[0:3], v[4:7], v[16:31]"
MFMA_BF_GFX950 = MFMA_16_GFX950.replace("_f16", "_bf16")
WMMA_16 = "v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]"
WMMA_BF = "v_wmma_f32_16x16x16_bf16 v[0:7], v[8:15], v[16:23], v[0:7]"
DOT2 = "v_dot2c_f32_f16 v0, v1, v2"
MIXED = "v_fma_mix_f32 v0, v1, v2, v0 op_sel_hi:[1,1,0]"
FP16, BF16 = "fa_fwd_fp16_d64", "fa_fwd_bf16_d128"
FP8, MFMA_FP8 = "fa_fwd_fp8_bf16_d128", "v_mfma_f32_32x32x16_fp8_fp8 v[0:15], v[16:17], v[18:19], v[0:15]"


def texts(arch, name, *lines):
    return [finding.text for finding in check_matrix_use(arch, kernel(*lines, name=name))]


def test_an_arch_that_the_table_does_not_have_is_refused():
    with pytest.raises(ArchError, match="nothing is known of gfx900"):
        texts("gfx900", FP16, WMMA_16)


@pytest.mark.parametrize(
    ("arch", "name", "line"),
    [
        ("gfx908", FP16, MFMA_16_GFX908),
        ("gfx908", BF16, MFMA_BF_GFX908),
        ("gfx942", FP16, MFMA_16),
        ("gfx942", BF16, MFMA_BF),
        ("gfx942", FP8, MFMA_FP8),
        ("gfx950", FP16, MFMA_16_GFX950),
        ("gfx950", BF16, MFMA_BF_GFX950),
        ("gfx1010", FP16, MIXED),
        ("gfx1010", BF16, MIXED),
        ("gfx1030", FP16, DOT2),
        ("gfx1030", BF16, "v_fmac_f32_e32 v0, v1, v2"),
        ("gfx1100", FP16, WMMA_16),
        ("gfx1100", BF16, WMMA_BF),
    ],
)
def test_the_right_instruction(arch, name, line):
    assert texts(arch, name, line) == []


def test_mixed_multiply_adds_are_products_where_dot_products_are_missing():
    (missing,) = texts("gfx1010", FP16, "v_fmac_f32_e32 v0, v1, v2")
    assert missing == "no matrix instruction of its type, expected v_fma_mix_f32"
    (foreign,) = texts("gfx1010", FP16, MIXED, DOT2)
    assert foreign == "1 of v_dot2c_f32_f16, expected v_fma_mix_f32"
    assert texts("gfx1010", "fa_reference_fp16", MIXED) == []
    (missing,) = texts("gfx1030", FP16, MIXED)
    assert missing.startswith("no matrix instruction of its type")
    assert texts("gfx942", FP16, MFMA_16, MIXED) == []


def test_half_a_step_may_be_a_shorter_instruction_on_gfx950_but_not_every_step():
    assert texts("gfx950", FP16, MFMA_16_GFX950, MFMA_16) == []
    assert texts("gfx950", BF16, MFMA_BF_GFX950, MFMA_BF) == []
    (missing,) = texts("gfx950", FP16, MFMA_16)
    assert missing.startswith("no matrix instruction of its type, expected v_mfma_f32_(32x32x16|16x16x32)")


def test_numbers_of_rows_are_spread_in_bf16_only_by_gradients_with_loads_straight_into_lds():
    dkdv = "fa_bwd_dkdv_fp16_d64"
    assert texts("gfx950", dkdv, MFMA_16_GFX950, MFMA_BF) == []
    assert texts("gfx950", FP16, MFMA_16_GFX950, MFMA_BF)
    assert texts("gfx942", dkdv, MFMA_16, MFMA_BF)
    (missing,) = texts("gfx950", dkdv, MFMA_BF)
    assert missing.startswith("no matrix instruction of its type")


def test_a_kernel_for_any_head_dim_has_no_tiles_to_multiply():
    assert texts("gfx942", "fa_append_fp16", "v_fma_f32 v0, v1, v2, v3") == []
    assert texts("gfx942", "fa_append_fp16", MFMA_16) == ["1 of v_mfma_f32_32x32x8_f16, expected none"]


@pytest.mark.parametrize(
    ("arch", "name", "line", "foreign"),
    [
        ("gfx942", FP16, MFMA_BF, "v_mfma_f32_32x32x8_bf16"),
        ("gfx942", BF16, MFMA_16, "v_mfma_f32_32x32x8_f16"),
        ("gfx942", BF16, MFMA_FP8, "v_mfma_f32_32x32x16_fp8_fp8"),
        ("gfx942", FP8, MFMA_BF, "v_mfma_f32_32x32x8_bf16"),
        ("gfx942", FP8, MFMA_FP8.replace("fp8_fp8", "bf8_bf8"), "v_mfma_f32_32x32x16_bf8_bf8"),
        ("gfx950", FP8, MFMA_FP8, "v_mfma_f32_32x32x16_fp8_fp8"),
        ("gfx942", FP16, "v_mfma_f32_32x32x2_f32 v[0:15], v16, v17, v[0:15]", "v_mfma_f32_32x32x2_f32"),
        ("gfx950", FP16, MFMA_BF_GFX950, "v_mfma_f32_32x32x16_bf16"),
        ("gfx950", BF16, MFMA_16, "v_mfma_f32_32x32x8_f16"),
        ("gfx942", FP16, MFMA_16_GFX950, "v_mfma_f32_32x32x16_f16"),
        ("gfx908", FP16, MFMA_BF_GFX908, "v_mfma_f32_32x32x4bf16"),
        ("gfx1100", FP16, WMMA_BF, "v_wmma_f32_16x16x16_bf16"),
        ("gfx1100", FP16, WMMA_16.replace("f32_16", "f16_16", 1), "v_wmma_f16_16x16x16_f16"),
        ("gfx1030", FP16, "v_dot2_f16_f16 v0, v1, v2, v3", "v_dot2_f16_f16"),
    ],
)
def test_a_foreign_instruction_instead(arch, name, line, foreign):
    missing, found = texts(arch, name, line)
    assert missing.startswith("no matrix instruction of its type, expected ")
    assert found.startswith(f"1 of {foreign}, expected ")


def test_a_foreign_instruction_beside_the_right_one():
    assert len(texts("gfx942", FP16, MFMA_16, "s_nop 15", MFMA_BF)) == 1


def test_int8_needs_both_kinds_of_products():
    int8 = "fa_fwd_int8_fp16_d128"
    fp8 = "v_wmma_f32_16x16x16_fp8_fp8 v[0:7], v[8:9], v[10:11], v[0:7]"
    counts = "v_wmma_i32_16x16x16_iu8 v[0:7], v[8:9], v[10:11], v[0:7]"
    assert texts("gfx1201", int8, fp8, counts) == []
    (missing,) = texts("gfx1201", int8, fp8)
    assert missing == "no matrix instruction of int8, expected v_wmma_i32_16x16x16_iu8"
    (missing,) = texts("gfx1201", int8, counts)
    assert missing.startswith("no matrix instruction of its type, expected ")


@pytest.mark.parametrize(
    ("arch", "fp8", "counts", "name"),
    [
        ("gfx942", "v_mfma_f32_32x32x16_fp8_fp8 v[0:15], v[16:17], v[18:19], v[0:15]",
         "v_mfma_i32_32x32x16_i8 v[0:15], v[16:17], v[18:19], v[0:15]", "v_mfma_i32_32x32x16_i8"),
        ("gfx950", "v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[16:23], v[24:31], v[0:15]",
         "v_mfma_i32_32x32x32_i8 v[0:15], v[16:19], v[20:23], 0.15915494", "v_mfma_i32_32x32x32_i8"),
    ],
)  # fmt: skip
def test_int8_by_mfma(arch, fp8, counts, name):
    int8 = "fa_fwd_int8_bf16_d128"
    assert texts(arch, int8, fp8, counts) == []
    (missing,) = texts(arch, int8, fp8)
    assert missing == f"no matrix instruction of int8, expected {name}"


def test_rows_of_656_bytes_need_both_kinds_of_products():
    rows = "fa_mla_rows_bf16_d576"
    assert texts("gfx942", rows, MFMA_16, MFMA_BF) == []
    (missing,) = texts("gfx942", rows, MFMA_16)
    assert missing.startswith("no matrix instruction of bf16, expected v_mfma_f32_")
    (missing,) = texts("gfx942", rows, MFMA_BF)
    assert missing.startswith("no matrix instruction of its type, expected ")
    (foreign,) = texts("gfx942", "fa_mla_8bit_bf16_d576", MFMA_16, MFMA_BF)
    assert foreign.startswith("1 of v_mfma_f32_32x32x8_bf16, expected ")


def test_int8_counts_by_dots_without_matrix_instructions():
    int8, counts = "fa_fwd_int8_fp16_d128", "v_dot4c_i32_i8 v0, v1, v2"
    assert texts("gfx1030", int8, DOT2, counts, "v_dot4_i32_i8 v0, v1, v2, v3") == []
    (missing,) = texts("gfx1030", int8, DOT2)
    assert missing == "no matrix instruction of int8, expected v_dot4c?_i32_i8"
    (text,) = texts("gfx1030", "fa_fwd_fp16_d128", DOT2, counts)
    assert text.startswith("1 of v_dot4c_i32_i8, expected ")


def test_bf16_may_be_multiplied_as_fp16_where_the_unit_has_no_bf16():
    assert texts("gfx1030", BF16, DOT2) == []
    (text,) = texts("gfx1030", BF16, "v_dot2_f16_f16 v0, v1, v2, v3")
    assert text.startswith("1 of v_dot2_f16_f16, expected ")


@pytest.mark.parametrize(("arch", "line"), [("gfx942", MFMA_16), ("gfx1100", WMMA_16), ("gfx1030", DOT2)])
def test_codes_of_8_bits_are_multiplied_as_fp16_beside_queries_of_bf16(arch, line):
    assert texts(arch, "fa_decode_8bit_bf16_d64", line) == []
    assert len(texts(arch, "fa_decode_bf16_d64", line)) == (2 if arch != "gfx1030" else 0)
    (text,) = texts(arch, "fa_decode_8bit_bf16_d64", "s_nop 0")
    assert text.startswith("no matrix instruction of its type")


def test_half_of_a_dual_issue_pair_counts():
    (text,) = texts("gfx1100", FP16, WMMA_16, "v_dual_dot2acc_f32_f16 v8, v9, v10 :: v_dual_mov_b32 v11, v12")
    assert text.startswith("1 of v_dual_dot2acc_f32_f16, expected v_wmma")


def test_code_that_is_not_reached_does_not_count():
    assert "no matrix instruction" in texts("gfx942", FP16, "s_endpgm", MFMA_16)[0]


def test_a_name_that_is_no_instances_is_refused_in_words():
    with pytest.raises(DeviceCodeError, match="k is not an instance's name"):
        texts("gfx942", "k")


SPREAD = {
    "gfx908": "v_mfma_f32_32x32x2f32 a[0:15], v0, v1, 0",
    "gfx942": "v_mfma_f32_32x32x2_f32 v[0:15], v0, v1, 0",
}


@pytest.mark.parametrize(("arch", "product"), [("gfx908", MFMA_16_GFX908), ("gfx942", MFMA_16)])
def test_the_kernels_of_dk_and_dv_spread_a_number_by_a_product_of_fp32(arch, product):
    """They also have the products of their type. All other kernels lack the product of fp32."""
    assert texts(arch, "fa_bwd_dkdv_fp16_d64", SPREAD[arch], product) == []
    assert texts(arch, "fa_bwd_fused_fp16_d64", SPREAD[arch], product) == []
    assert "no matrix instruction of its type" in texts(arch, "fa_bwd_dkdv_fp16_d64", SPREAD[arch])[0]
    assert len(texts(arch, "fa_bwd_dq_fp16_d64", SPREAD[arch], product)) == 1
    assert len(texts(arch, FP16, SPREAD[arch], product)) == 1
