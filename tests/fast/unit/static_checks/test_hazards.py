"""Two dependent instructions at the required distance and one step closer."""

import pytest

from tests.tools.made.assembly import kernel
from wheel_builder.base.errors import ArchError
from wheel_builder.machine_code.static_checks.hazards import check_hazards
from wheel_builder.tables.archs import arch_named

M908 = "v_mfma_f32_32x32x8f16 a[0:15], v[0:1], v[2:3], a[0:15]"
M908_8 = "v_mfma_f32_16x16x16f16 a[0:3], v[0:1], v[2:3], a[0:3]"
M908_2 = "v_mfma_f32_4x4x4f16 a[0:3], v[0:1], v[2:3], a[0:3]"
M90A = "v_mfma_f32_32x32x8f16 v[16:31], v[0:1], v[2:3], v[16:31]"
M90A_8 = "v_mfma_f32_16x16x16bf16_1k v[16:19], v[0:1], v[2:3], v[16:19]"
M90A_2 = "v_mfma_f32_4x4x4f16 v[16:19], v[0:1], v[2:3], v[16:19]"
F90A = "v_mfma_f32_16x16x4f32 v[16:19], v0, v2, v[16:19]"
M942 = "v_mfma_f32_32x32x8_f16 v[16:31], v[0:1], v[2:3], v[16:31]"
M942_4 = "v_mfma_f32_16x16x16_bf16 v[16:19], v[0:1], v[2:3], v[16:19]"
M942_16 = "v_mfma_f32_32x32x4_2b_f16 v[16:47], v[0:1], v[2:3], v[16:47]"
M942_2 = "v_mfma_f32_4x4x4_16b_f16 v[16:19], v[0:1], v[2:3], v[16:19]"
HALF = "v_max_f16 v1, v2, v3 op_sel:[0,0,1]"
HALF_BY_SDWA = "v_cvt_f16_f32_sdwa v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD"
PACK = "v_cvt_pk_fp8_f32 v1, v2, v3"
PACK_HIGH = "v_cvt_pk_bf8_f32 v1, v4, v5 op_sel:[0,0,1]"
BYTE = "v_cvt_sr_fp8_f32 v1, v2, v3"
BYTE_1 = "v_cvt_sr_fp8_f32 v1, v2, v3 op_sel:[0,0,1,0]"
BYTE_2 = "v_cvt_sr_fp8_f32 v1, v2, v3 op_sel:[0,0,0,1]"
SCALED = "v_cvt_scalef32_pk_fp8_f32 v1, v2, v3, v4"
I942 = "v_mfma_i32_32x32x16_i8 v[16:31], v[0:1], v[2:3], v[16:31]"
I950 = "v_mfma_i32_16x16x64_i8 v[16:19], v[0:3], v[4:7], v[16:19]"
WIDE = "v_mfma_f32_32x32x64_f8f6f4 v[16:31], v[0:7], v[8:15], v[16:31]"
WIDE_SCALED = "v_mfma_scale_f32_16x16x128_f8f6f4 v[48:51], v[0:7], v[8:15], 0, v20, v33 op_sel_hi:[0,0,0]"
M950 = "v_mfma_f32_32x32x16_f16 v[16:31], v[0:3], v[4:7], v[16:31]"
M950_4 = "v_mfma_f32_16x16x32_bf16 v[16:19], v[0:3], v[4:7], v[16:19]"
SWAP = "v_permlane32_swap_b32_e32 v1, v2"
F942 = "v_mfma_f32_16x16x4_f32 v[16:19], v0, v2, v[16:19]"
STORE = "global_store_dwordx4 v[8:9], v[4:7], off"
CLEAR = "v_mov_b32_e32 v5, 0"
EXP = "v_exp_f32_e32 v1, v1"
ADD = "v_add_f32_e32 v2, v1, v1"
MOVE = "v_mov_b32_e32 v1, v9"
TO_SCALAR = "v_readlane_b32 s4, v1, 0"
M908_APART = "v_mfma_f32_32x32x8f16 a[16:31], v[0:1], v[2:3], a[0:15]"
M90A_APART = "v_mfma_f32_32x32x8f16 v[16:31], v[0:1], v[2:3], v[32:47]"
M942_APART = "v_mfma_f32_32x32x8_f16 v[16:31], v[0:1], v[2:3], v[32:47]"
M950_APART = "v_mfma_f32_32x32x16_f16 v[16:31], v[0:3], v[4:7], v[32:47]"
M90A_PART = "v_mfma_f32_16x16x16f16 v[20:23], v[8:9], v[8:9], v[20:23]"
M942_PART = "v_mfma_f32_16x16x16_f16 v[20:23], v[8:9], v[8:9], v[20:23]"
M950_PART = "v_mfma_f32_16x16x32_f16 v[20:23], v[8:11], v[8:11], v[20:23]"
M908_OF_A = "v_mfma_f32_32x32x8f16 a[0:15], a[20:21], v[2:3], a[0:15]"
M950_LATER = "v_mfma_f32_32x32x16_f16 v[18:33], v[0:3], v[4:7], v[18:33]"
WMMA = "v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]"
# RDNA 4's, with operands half as large.
WMMA_SPLIT = "v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[16:19], v[0:7]"
WMMA_OF_SPLIT = "v_wmma_f32_16x16x16_f16 v[24:31], v[4:7], v[16:19], v[24:31]"
WMMA_OF_ITS_D = "v_wmma_f32_16x16x16_f16 v[24:31], v[0:7], v[16:23], v[24:31]"


def distance(arch, states):
    """Filler of so many independent wait states (near WMMA: VALU instructions)."""
    wmma = arch_named(arch).isa.unit.startswith("wmma")
    return ["v_nop"] * states if wmma else [f"s_nop {states - 1}"] if states else []


def texts(arch, *lines):
    return [finding.text for finding in check_hazards(arch, kernel(*lines))]


CASES = [
    # gfx908: a result goes on to ...
    ("gfx908", M908, "v_accvgpr_read_b32 v9, a3", 18, "reads the result of"),
    ("gfx908", M908_8, "v_accvgpr_read_b32 v9, a3", 10, "reads the result of"),
    ("gfx908", M908_2, "v_accvgpr_read_b32 v9, a3", 4, "reads the result of"),
    ("gfx908", M908_8, "v_accvgpr_write_b32 a2, v9", 7, "overwrites the result of"),
    ("gfx908", M908, "v_mfma_f32_32x32x8f16 a[16:31], a[2:3], v[8:9], a[16:31]", 4, "reads as SrcA or SrcB"),
    ("gfx908", M908, "v_mfma_f32_16x16x16f16 a[4:7], v[8:9], v[8:9], a[4:7]", 2, "reads as SrcC a part of"),
    ("gfx908", M908_APART, "v_accvgpr_write_b32 a0, v9", 13, "overwrites the SrcC of"),
    # ... and operands come from
    ("gfx908", MOVE, M908, 2, "reads the VGPR of"),
    ("gfx908", "v_accvgpr_read_b32 v1, a20", M908, 2, "reads the VGPR of"),
    ("gfx908", MOVE, "v_accvgpr_write_b32 a0, v1", 2, "reads the VGPR of"),
    ("gfx908", "v_accvgpr_write_b32 a1, v9", M908, 1, "reads as SrcC the AccVGPR of"),
    ("gfx908", "v_accvgpr_write_b32 a20, v9", M908_OF_A, 3, "reads as SrcA or SrcB the AccVGPR"),
    ("gfx908", "v_accvgpr_write_b32 a1, v9", "v_accvgpr_read_b32 v1, a1", 3, "reads the AccVGPR of"),
    ("gfx908", "v_accvgpr_read_b32 v1, a1", "ds_write_b32 v8, v1", 2, "reads the VGPR of"),
    ("gfx908", "v_cmpx_gt_f32_e32 vcc, v8, v9", M908, 4, "runs under the EXEC of"),
    ("gfx908", STORE, CLEAR, 1, "overwrites the data of"),
    (
        "gfx908",
        TO_SCALAR,
        "buffer_load_dword v1, v2, s[4:7], 0 offen",
        5,
        "reads the SGPR of",
    ),
    ("gfx908", TO_SCALAR, "v_writelane_b32 v2, s5, s4", 4, "selects a lane by the SGPR of"),
    ("gfx908", TO_SCALAR, "v_readlane_b32 s6, v2, s4", 4, "selects a lane by the SGPR of"),
    ("gfx908", MOVE, "v_add_f32_dpp v2, v1, v3 row_shr:1", 2, "reads lanes of the VGPR of"),
    ("gfx908", "v_cmp_gt_f32_e32 vcc, v1, v2", "v_div_fmas_f32 v3, v4, v5, v6", 4, "reads the VCC of"),
    # gfx906: gfx908's without its matrix unit
    ("gfx906", STORE, CLEAR, 1, "overwrites the data of"),
    ("gfx906", TO_SCALAR, "buffer_load_dword v1, v2, s[4:7], 0 offen", 5, "reads the SGPR of"),
    ("gfx906", TO_SCALAR, "v_writelane_b32 v2, s5, s4", 4, "selects a lane by the SGPR of"),
    ("gfx906", TO_SCALAR, "v_readlane_b32 s6, v2, s4", 4, "selects a lane by the SGPR of"),
    ("gfx906", MOVE, "v_add_f32_dpp v2, v1, v3 row_shr:1", 2, "reads lanes of the VGPR of"),
    ("gfx906", "v_cmp_gt_f32_e32 vcc, v1, v2", "v_div_fmas_f32 v3, v4, v5, v6", 4, "reads the VCC of"),
    # gfx90a
    ("gfx90a", M90A, "v_add_f32_e32 v9, v20, v20", 19, "reads the result of"),
    ("gfx90a", M90A_8, "v_add_f32_e32 v9, v17, v17", 11, "reads the result of"),
    ("gfx90a", M90A_2, "v_add_f32_e32 v9, v17, v17", 5, "reads the result of"),
    ("gfx90a", F90A, "v_add_f32_e32 v9, v17, v17", 11, "reads the result of"),
    ("gfx90a", M90A, "ds_write_b32 v8, v20", 19, "reads the result of"),
    ("gfx90a", M90A, "global_store_dword v[8:9], v20, off", 19, "reads the result of"),
    ("gfx90a", M90A, "v_mov_b32_e32 v20, 0", 19, "overwrites the result of"),
    ("gfx90a", M90A, "v_mfma_f32_16x16x16f16 v[48:51], v[20:21], v[8:9], 0", 19, "reads as SrcA or SrcB"),
    ("gfx90a", M90A, M90A_PART, 16, "reads as SrcC a part of"),
    ("gfx90a", M90A_APART, "v_mov_b32_e32 v32, 0", 15, "overwrites the SrcC of"),
    ("gfx90a", MOVE, M90A, 2, "reads the VGPR of"),
    ("gfx90a", "v_cmpx_gt_f32_e32 vcc, v8, v9", M90A, 4, "runs under the EXEC of"),
    ("gfx90a", "v_dot2_f32_f16 v1, v2, v3, v1", ADD, 3, "reads the dot product of"),
    ("gfx90a", STORE, CLEAR, 1, "overwrites the data of"),
    ("gfx90a", MOVE, "v_add_f32_dpp v2, v1, v3 row_shr:1", 2, "reads lanes of the VGPR of"),
    # gfx942
    ("gfx942", M942, "v_add_f32_e32 v9, v20, v20", 11, "reads the result of"),
    ("gfx942", M942_4, "v_add_f32_e32 v9, v17, v17", 7, "reads the result of"),
    ("gfx942", M942_16, "v_add_f32_e32 v9, v17, v17", 19, "reads the result of"),
    ("gfx942", M942_2, "v_add_f32_e32 v9, v17, v17", 5, "reads the result of"),
    ("gfx942", F942, "v_add_f32_e32 v9, v17, v17", 10, "reads the result of"),
    ("gfx942", M942, "ds_write_b32 v8, v20", 11, "reads the result of"),
    ("gfx942", M942, "global_store_dword v[8:9], v20, off", 11, "reads the result of"),
    ("gfx942", M942, "ds_read_b32 v20, v9", 11, "overwrites the result of"),
    ("gfx942", M942, "v_mfma_f32_16x16x16_f16 v[48:51], v[20:21], v[8:9], 0", 11, "reads as SrcA or SrcB"),
    ("gfx942", M942, M942_PART, 9, "reads as SrcC a part of"),
    ("gfx942", M942_2, M942_2, 2, "adds to the result of"),
    ("gfx942", MOVE, M942, 2, "reads the VGPR of"),
    ("gfx942", "v_cmpx_gt_f32_e32 vcc, v8, v9", M942, 4, "runs under the EXEC of"),
    ("gfx942", M942_APART, "v_mov_b32_e32 v32, 0", 7, "overwrites the SrcC of"),
    ("gfx942", "v_cmp_gt_f32_e32 vcc, v1, v2", "v_cndmask_b32_e32 v3, v4, v5, vcc", 2, "reads the SGPR of"),
    ("gfx942", EXP, ADD, 1, "reads the transcendental result of"),
    ("gfx942", "v_mov_b32_e32 v1, v2", "v_readfirstlane_b32 s0, v1", 1, "reads a lane of the VGPR of"),
    ("gfx942", STORE, CLEAR, 2, "overwrites the data of"),
    ("gfx942", HALF, ADD, 1, "reads or overwrites the half register of"),
    ("gfx942", HALF, "v_max_f16 v1, v4, v5 op_sel:[0,0,0]", 1, "reads or overwrites the half register of"),
    ("gfx942", HALF_BY_SDWA, ADD, 1, "reads or overwrites the half register of"),
    # two conversions into one register
    ("gfx942", PACK, PACK_HIGH, 1, "converts into another part of the register of"),
    ("gfx942", PACK_HIGH, PACK, 1, "reads or overwrites the half register of"),
    ("gfx942", BYTE, BYTE_1, 1, "converts into another part of the register of"),
    ("gfx942", BYTE_1, BYTE_2, 1, "reads or overwrites the half register of"),
    ("gfx942", BYTE_2, ADD, 1, "reads or overwrites the half register of"),
    ("gfx942", I942, "v_add_u32_e32 v9, v20, v20", 11, "reads the result of"),
    # gfx950
    ("gfx950", SCALED, SCALED + " op_sel:[0,0,0,1]", 1, "converts into another part of the register of"),
    ("gfx950", SCALED + " op_sel:[0,0,0,1]", ADD, 1, "reads or overwrites the half register of"),
    ("gfx950", I950, "v_add_u32_e32 v9, v17, v17", 8, "reads the result of"),
    ("gfx950", WIDE, "v_add_f32_e32 v9, v20, v20", 20, "reads the result of"),
    ("gfx950", WIDE, WIDE_SCALED, 20, "reads as SrcA or SrcB"),
    ("gfx950", STORE, CLEAR, 2, "overwrites the data of"),
    ("gfx950", M950, "v_add_f32_e32 v9, v20, v20", 12, "reads the result of"),
    ("gfx950", M950_4, "v_add_f32_e32 v9, v17, v17", 8, "reads the result of"),
    ("gfx950", M942, "v_add_f32_e32 v9, v20, v20", 12, "reads the result of"),
    ("gfx950", M942_16, "v_add_f32_e32 v9, v17, v17", 20, "reads the result of"),
    ("gfx950", M942_2, "v_add_f32_e32 v9, v17, v17", 5, "reads the result of"),
    ("gfx950", F942, "v_add_f32_e32 v9, v17, v17", 10, "reads the result of"),
    ("gfx950", M950, "ds_write_b32 v8, v20", 12, "reads the result of"),
    ("gfx950", M950, "global_store_dword v[8:9], v20, off", 12, "reads the result of"),
    ("gfx950", M950, "ds_read_b32 v20, v9", 12, "overwrites the result of"),
    ("gfx950", M950, "v_mfma_f32_16x16x32_f16 v[48:51], v[20:23], v[8:11], 0", 12, "reads as SrcA or SrcB"),
    ("gfx950", M950, M950_PART, 10, "reads as SrcC a part of"),
    ("gfx950", M942_2, M950_LATER, 4, "reads as SrcC a part of"),
    ("gfx950", M942_2, "v_mfma_f32_16x16x4_f32 v[18:21], v0, v2, v[18:21]", 3, "reads as SrcC a part of"),
    ("gfx950", M942_2, M942_2, 2, "adds to the result of"),
    ("gfx950", M950_APART, "v_mov_b32_e32 v32, 0", 7, "overwrites the SrcC of"),
    ("gfx950", MOVE, M950, 2, "reads the VGPR of"),
    ("gfx950", MOVE, SWAP, 2, "swaps lanes of the VGPR of"),
    ("gfx950", "v_mov_b32_e32 v2, v9", SWAP, 2, "swaps lanes of the VGPR of"),
    ("gfx950", SWAP, "v_permlane16_swap_b32_e32 v2, v3", 2, "swaps lanes of the VGPR of"),
    ("gfx950", EXP, ADD, 1, "reads the transcendental result of"),
    ("gfx950", HALF, ADD, 1, "reads or overwrites the half register of"),
    ("gfx950", HALF, "v_max_f16 v1, v4, v5 op_sel:[0,0,0]", 1, "reads or overwrites the half register of"),
    ("gfx950", HALF_BY_SDWA, ADD, 1, "reads or overwrites the half register of"),
    ("gfx950", "s_mov_b32 m0, s4", "global_load_lds_dwordx4 v1, s[8:9]", 1, "reads the M0 of"),
    # gfx1100, gfx1151, gfx1201
    ("gfx1100", WMMA, WMMA_OF_ITS_D, 1, "reads as A or B the D of"),
    ("gfx1151", WMMA, WMMA_OF_ITS_D, 1, "reads as A or B the D of"),
    ("gfx1201", WMMA_SPLIT, WMMA_OF_SPLIT, 1, "reads as A or B the D of"),
    ("gfx1100", EXP, ADD, 6, "reads the transcendental result of"),
]


@pytest.mark.parametrize(("arch", "first", "second", "needed", "how"), CASES)
def test_a_dependency_needs_exactly_this_much(arch, first, second, needed, how):
    assert texts(arch, first, *distance(arch, needed), second) == []
    found = [text for text in texts(arch, first, *distance(arch, needed - 1), second) if how in text]
    assert len(found) == 1
    assert f"`{second}` {how}" in found[0]
    assert f"`{first}`: needs {needed} " in found[0]
    assert f"between them, has {needed - 1} on the shortest path" in found[0]


@pytest.mark.parametrize(
    ("arch", "first", "second"),
    [
        ("gfx908", M908, M908),  # SrcC in the same registers: the hardware waits
        ("gfx908", TO_SCALAR, "v_writelane_b32 v2, s4, 0"),  # its value
        ("gfx906", TO_SCALAR, "v_writelane_b32 v2, s4, 0"),
        ("gfx906", "v_dot2_f32_f16 v1, v2, v3, v1", ADD),
        ("gfx90a", M90A, M90A),
        ("gfx90a", M90A_2, M90A_2),
        ("gfx90a", "v_dot2_f32_f16 v1, v2, v3, v1", "v_dot2_f32_f16 v1, v2, v3, v1"),
        # Required distances of CDNA 3.
        ("gfx90a", "v_cmp_gt_f32_e32 vcc, v1, v2", "v_cndmask_b32_e32 v3, v4, v5, vcc"),
        ("gfx90a", EXP, ADD),
        ("gfx90a", "v_mov_b32_e32 v1, v2", "v_readfirstlane_b32 s0, v1"),
        ("gfx942", M942, M942),
        ("gfx942", M942, M942.replace("v[16:31]", "v[48:63]")),  # independent
        ("gfx90a", HALF, ADD),
        # Its op_sel has no bit for the result.
        ("gfx942", "v_pk_mul_f16 v1, v2, v3 op_sel:[0,1]", ADD),
        ("gfx942", "v_fma_mix_f32 v1, v2, v3, v4 op_sel:[0,0,1]", ADD),
        ("gfx942", HALF, "ds_write_b32 v8, v1"),
        ("gfx942", PACK, "v_cvt_pk_fp8_f32 v6, v4, v5 op_sel:[0,0,1]"),  # of another register
        ("gfx942", PACK, ADD),
        ("gfx942", "v_cvt_pk_f32_fp8_e32 v[0:1], v4", "v_cvt_pk_f32_fp8_sdwa v[0:1], v4 src0_sel:WORD_1"),
        ("gfx950", "v_cvt_scalef32_pk_f16_fp8 v1, v2, v3 op_sel:[1,0,0]", ADD),
        ("gfx950", "v_cvt_pk_f16_f32 v1, v2, v3", "v_cvt_pk_f16_f32 v1, v2, v3"),
        ("gfx1201", PACK, PACK_HIGH),
        ("gfx942", HALF.replace("[0,0,1]", "[1,1,0]"), ADD),
        ("gfx950", M950, M950),
        ("gfx950", SWAP, "v_add_f32_e32 v3, v1, v2"),
        ("gfx1100", WMMA, WMMA),
        ("gfx1100", EXP, "v_add_f32_e32 v2, v3, v3"),
        ("gfx1030", EXP, ADD),
        ("gfx1151", EXP, ADD),
        ("gfx1201", EXP, ADD),
        ("gfx1201", WMMA_SPLIT, WMMA_SPLIT),
    ],
)
def test_what_needs_nothing_between(arch, first, second):
    assert texts(arch, first, second) == []


@pytest.mark.parametrize("second", ["v_mov_b32_e32 v9, v20", "v_mov_b32_e32 v20, 0", "ds_write_b32 v8, v20"])
def test_what_is_enough_on_gfx942_is_too_close_on_gfx950(second):
    """LLVM uses gfx942's wait states for gfx9-4-generic, which stands for both."""
    lines = [M942, *distance("gfx942", 11), second]
    assert texts("gfx942", *lines) == []
    assert len(texts("gfx950", *lines)) == 1


def test_a_finding_names_kernel_addresses_instructions_and_distances():
    (finding,) = check_hazards("gfx942", kernel(M942, "s_nop 3", "v_mov_b32_e32 v9, v20"))
    assert str(finding) == (
        "gfx942 fa_fwd_fp16_d64: 0x1608 `v_mov_b32_e32 v9, v20` reads the result of "
        f"0x1600 `{M942}`: needs 11 wait states between them, has 4 on the shortest path"
    )
    assert finding.fails


def test_the_shorter_of_two_paths_counts():
    # Branch: one wait state and the jump. Fallthrough: enough.
    lines = [M942, "s_cbranch_scc1 1", "s_nop 15", "v_mov_b32_e32 v9, v20"]
    assert len(texts("gfx942", *lines)) == 1
    assert "has 1 on the shortest path" in texts("gfx942", *lines)[0]


def test_the_way_back_to_the_top_of_a_loop_counts():
    # The result is read at the top of the next turn, five wait states after the matrix instruction.
    lines = ["s_nop 15", "v_mov_b32_e32 v9, v20", M942, "s_nop 3", "s_cbranch_scc1 65532"]
    assert len(texts("gfx942", *lines)) == 1
    assert "has 5 on the shortest path" in texts("gfx942", *lines)[0]


def test_a_loop_without_the_result_ends_the_search():
    assert texts("gfx942", M942, "s_nop 15", "s_cbranch_scc1 65534", "v_mov_b32_e32 v9, v20") == []


def test_a_register_written_in_between_is_that_instructions_result():
    closer = [M942, "s_nop 10", "v_mov_b32_e32 v20, 0", "v_mov_b32_e32 v9, v20"]
    assert texts("gfx942", *closer) == []


def test_wait_states_do_not_replace_a_valu_instruction_on_gfx1100():
    between = ["s_nop 15", "s_delay_alu instid0(VALU_DEP_1)"]
    assert len(texts("gfx1100", WMMA, *between, WMMA_OF_ITS_D)) == 1


@pytest.mark.parametrize(
    "wait",
    [
        "s_waitcnt_depctr depctr_va_vdst(0)",
        "s_waitcnt_depctr 0xfff",
        "ds_store_b32 v8, v9",
        "v_exp_f32_e32 v5, v6\n2",
    ],
)
def test_what_settles_a_transcendental_on_gfx1100(wait):
    line, _, times = wait.partition("\n")
    between = [line] * int(times or 1)
    assert texts("gfx1100", EXP, *between, ADD) == []


@pytest.mark.parametrize("counters", ["depctr_vm_vsrc(0)", "depctr_va_vdst(1)", "0xffe3", "0x1fff"])
def test_a_wait_for_something_else_does_not_settle_a_transcendental(counters):
    wait = f"s_waitcnt_depctr {counters}"
    assert len(texts("gfx1100", EXP, wait, ADD)) == 1


def test_a_scalar_load_does_not_settle_a_transcendental():
    assert len(texts("gfx1100", EXP, "s_load_b64 s[4:5], s[8:9], 0x20", ADD)) == 1


@pytest.mark.parametrize(("arch", "states"), [("gfx942", 1), ("gfx1100", 6)])
def test_a_sum_added_to_counts_as_read(arch, states):
    (text,) = texts(arch, "v_log_f32_e32 v1, v4", "v_fmac_f32_e32 v1, v2, v3")
    assert "reads the transcendental result of" in text
    assert f"needs {states} " in text


@pytest.mark.parametrize(
    ("arch", "line", "words"),
    [
        ("gfx942", "v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], 0", "no wait states are known"),
        ("gfx942", "v_smfmac_f32_16x16x32_f16 v[0:3], v[4:5], v[6:9], v10", "no wait states are known"),
        ("gfx942", M942.replace("v[0:1]", "v[16:17]"), "its SrcA or SrcB overlaps its result"),
        ("gfx908", M908_8.replace("a[0:3]", "a[2:5]", 1), "its SrcC overlaps its result without being"),
        ("gfx1100", WMMA.replace("v[8:15]", "v[4:11]"), "its A or B overlaps its D"),
        ("gfx1151", WMMA.replace("v[8:15]", "v[4:11]"), "its A or B overlaps its D"),
        ("gfx1201", WMMA_SPLIT.replace("v[8:11]", "v[4:7]"), "its A or B overlaps its D"),
        ("gfx1030", WMMA, "this arch has no matrix instructions"),
        ("gfx906", M908, "this arch has no matrix instructions"),
    ],
)
def test_a_matrix_instruction_that_is_wrong_by_itself(arch, line, words):
    assert any(words in text for text in texts(arch, line))


def test_an_arch_without_rules_is_refused_in_words():
    with pytest.raises(ArchError, match="nothing is known of gfx900"):
        check_hazards("gfx900", kernel())


# Compiler output for a matrix instruction in inline assembly: too few wait states around it.
INLINE_GFX908 = [
    "v_mov_b32_e32 v2, s6",
    "v_mov_b32_e32 v3, s7",
    "s_nop 1",
    "v_mfma_f32_32x32x8f16 a[0:15], v[0:1], v[2:3], a[0:15]",
    "v_accvgpr_read_b32 v15, a3",
]
INLINE_GFX942 = [
    "v_mov_b32_e32 v3, s7",
    "v_mfma_f32_16x16x16_f16 v[0:3], v[0:1], v[2:3], 0",
    "s_nop 0",
    "v_pk_add_f32 v[0:1], v[0:1], v[0:1]",
    "global_store_dwordx4 v4, v[0:3], s[0:1]",
]


def test_inline_assembly_on_gfx908_is_found():
    assert "needs 18 wait states between them, has 0" in texts("gfx908", *INLINE_GFX908)[0]


def test_inline_assembly_on_gfx942_is_found():
    found = "\n".join(texts("gfx942", *INLINE_GFX942))
    assert "reads the VGPR of 0x1600 `v_mov_b32_e32 v3, s7`: needs 2 wait states between them, has 0" in found
    assert "reads the result of" in found
    assert "needs 7 wait states between them, has 1" in found
