import pytest

from tests.tools.made.assembly import START, disassembly, kernel
from wheel_builder.base.errors import DeviceCodeError
from wheel_builder.machine_code.disassembly.kernels import parse_disassembly


def test_lines_as_the_tool_prints_them():
    text = (
        "\n/in/k.hsaco:\tfile format elf64-amdgpu\n\nDisassembly of section .text:\n\n"
        "0000000000001600 <k>:\n"
        "\tv_dual_mov_b32 v1, v0 :: v_dual_and_b32 v10, 14, v9      // 000000001600: CA240100 010A148E\n"
        "\tv_mfma_f32_32x32x8_f16 v[18:33], v[0:1], v[2:3], v[18:33]// 000000001608: D3CC0012 044A6580\n"
        "\ts_cbranch_scc1 65533                                     // 000000001610: BF85FFFD <k+0x8>\n"
        "\ts_endpgm                                                 // 000000001614: BF810000\n"
    )
    (found,) = parse_disassembly(text)
    pair, matrix, branch, end = found.instructions
    assert (found.name, [i.address for i in found.instructions]) == ("k", [0x1600, 0x1608, 0x1610, 0x1614])
    assert [o.mnemonic for o in pair.operations] == ["v_dual_mov_b32", "v_dual_and_b32"]
    assert pair.writes == {"v1", "v10"}
    assert matrix.first.operands == ("v[18:33]", "v[0:1]", "v[2:3]", "v[18:33]")
    assert branch.target == 0x1608
    assert (end.target, str(end)) == (None, "0x1614 `s_endpgm`")


def test_labels_are_headings_inside_a_function():
    lines = disassembly("s_nop 0", "s_cbranch_scc1 label_0001", "s_endpgm").splitlines()
    text = "\n".join([*lines[:-2], f"{START + 4:016x} <label_0001>:", *lines[-2:]])
    with pytest.raises(ValueError, match="label_0001"):
        parse_disassembly(text)
    (found,) = parse_disassembly(text, ["fa_fwd_fp16_d64"])
    assert [each.mnemonic for each in found.instructions] == ["s_nop", "s_cbranch_scc1", "s_endpgm"]
    assert found.instructions[1].target == START + 4


def test_modifiers_are_no_operands():
    (operation,) = kernel("v_pk_mul_f32 v[0:1], v[2:3], v[4:5] op_sel_hi:[0,1]").instructions[0].operations
    assert operation.operands == ("v[0:1]", "v[2:3]", "v[4:5]")
    assert operation.modifiers == "op_sel_hi:[0,1]"


def test_paths_follow_jumps_and_loops():
    found = kernel("s_cbranch_scc1 2", "v_nop", "s_branch 65533", "s_cbranch_vccz 65535")
    assert found.predecessors == ((2,), (0,), (1,), (0, 3), (3,))


def test_code_behind_the_end_is_not_reached():
    found = kernel("s_endpgm", "s_nop 0")
    assert (found.reached, found.predecessors[2]) == ((0,), ())


def test_s_nop_passes_as_many_wait_states_as_it_says():
    assert [i.wait_states for i in kernel("s_nop 7", "v_nop").instructions] == [8, 1, 1]


def test_all_lines_that_are_not_understood_are_named():
    text = disassembly("s_endpgm") + "<unknown>\n???\n"
    with pytest.raises(DeviceCodeError, match=r"(?s)line 8: '<unknown>'.*line 9: '\?\?\?'"):
        parse_disassembly(text)


def test_an_empty_disassembly_is_refused():
    with pytest.raises(DeviceCodeError, match="it has no function"):
        parse_disassembly("")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("s_setpc_b64 s[30:31]", "jumps to an address in a register"),
        ("s_branch 100", f"jumps out of the function, to {START + 4 * 101:#x}"),
    ],
)
def test_a_jump_to_nowhere_known_is_refused(line, words):
    with pytest.raises(DeviceCodeError, match=words):
        _ = kernel(line).predecessors


def test_running_past_the_end_is_refused():
    (found,) = parse_disassembly(disassembly("v_nop"))
    with pytest.raises(DeviceCodeError, match="runs past the end of the function"):
        _ = found.predecessors
