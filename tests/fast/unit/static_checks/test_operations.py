import pytest

from wheel_builder.base.errors import DeviceCodeError
from wheel_builder.machine_code.disassembly.kernels import parse_operation
from wheel_builder.machine_code.disassembly.operations import registers


@pytest.mark.parametrize(
    ("operand", "expected"),
    [
        ("v5", ("v5",)),
        ("v[2:4]", ("v2", "v3", "v4")),
        ("a[0:1]", ("a0", "a1")),
        ("-|v7|", ("v7",)),
        ("neg(s3)", ("s3",)),
        ("v72.h", ("v72",)),
        ("vcc_lo", ("vcc",)),
        ("exec", ("exec",)),
        ("m0", ("m0",)),
        ("0x3f800000", ()),
        ("src_private_base", ()),
        ("off", ()),
    ],
)
def test_registers(operand, expected):
    assert registers(operand) == expected


@pytest.mark.parametrize(
    ("text", "writes", "reads"),
    [
        ("v_add_f32_e32 v1, v2, v3", "v1", "v2 v3 exec"),
        ("v_mfma_f32_16x16x16_f16 v[0:1], v[4:5], v[6:7], 0", "v0 v1", "v4 v5 v6 v7 exec"),
        ("v_add_co_u32_e32 v0, vcc, s0, v1", "v0 vcc", "s0 v1 exec"),
        ("v_mad_u64_u32 v[9:10], null, v23, s10, v[1:2]", "v9 v10", "v23 s10 v1 v2 exec"),
        ("v_add_u32_e32 v0, v1, v2", "v0", "v1 v2 exec"),
        ("v_swap_b32 v1, v2", "v1 v2", "v1 v2 exec"),
        ("v_permlane32_swap_b32_e32 v1, v2", "v1 v2", "v1 v2 exec"),
        ("v_cmp_gt_f32_e32 vcc_lo, v1, v2", "vcc", "v1 v2 exec"),
        ("v_cmpx_gt_f32_e32 v1, v2", "exec", "v1 v2 exec"),
        ("v_cmpx_gt_f32_e64 s[0:1], v1, v2", "s0 s1 exec", "v1 v2 exec"),
        ("v_readfirstlane_b32 s1, v1", "s1", "v1 exec"),
        ("v_nop", "", "exec"),
        ("ds_read_b64 v[0:1], v2 offset:16", "v0 v1", "v2 exec"),
        ("ds_write_b64 v2, v[0:1] offset:8", "", "v2 v0 v1 exec"),
        ("ds_add_rtn_u32 v0, v1, v2", "v0", "v1 v2 exec"),
        ("ds_add_u32 v1, v2", "", "v1 v2 exec"),
        ("ds_bpermute_b32 v0, v1, v2", "v0", "v1 v2 exec"),
        ("global_store_dword v[0:1], v2, off", "", "v0 v1 v2 exec"),
        ("global_load_dword v2, v[0:1], off", "v2", "v0 v1 exec"),
        ("global_atomic_add v[0:1], v2, off", "", "v0 v1 v2 exec"),
        ("global_atomic_add v3, v[0:1], v2, off glc", "v3", "v3 v0 v1 v2 exec"),
        ("buffer_load_dword v1, s[0:1], 0 offen lds", "", "v1 s0 s1 m0 exec"),
        ("buffer_load_dword v2, v1, s[0:1], 0 offen", "v2", "v1 s0 s1 exec"),
        ("s_and_saveexec_b64 s[0:1], vcc", "s0 s1 exec", "vcc"),
        ("s_cmp_lt_i32 s0, s1", "", "s0 s1"),
        ("v_fmac_f32_e32 v1, v2, v3", "v1", "v1 v2 v3 exec"),
        ("v_dot2c_f32_f16_e32 v1, v2, v3", "v1", "v1 v2 v3 exec"),
        ("v_fma_mixhi_f16 v1, v2, v3, v4", "v1", "v1 v2 v3 v4 exec"),
        ("s_load_dwordx2 s[0:1], s[4:5], 0x10", "s0 s1", "s4 s5"),
        ("s_waitcnt vmcnt(0) lgkmcnt(0)", "", ""),
    ],
)
def test_what_is_read_and_written(text, writes, reads):
    operation = parse_operation(text)
    assert operation.writes == set(writes.split())
    assert operation.reads == set(reads.split())


def test_an_instruction_of_no_known_kind_is_refused_in_words():
    with pytest.raises(DeviceCodeError, match="unknown instruction 'export_mrt0'"):
        _ = parse_operation("export_mrt0 v0").kind
