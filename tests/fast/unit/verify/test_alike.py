"""Planted blocks that a pattern in not_executed.toml must not explain.

Each stands beside one that it explains. Those in EXECUTED are of kernels whose suite executes them: patterns
explained them before. tests/release/test_verify.py finds such blocks in every kernel of a release.
"""

import pytest

from tests.conftest import CHECKOUT
from tests.tools.alike import executed_alike
from wheel_builder.verify.coverage import REASONS, parse_reasons

ALL = parse_reasons((CHECKOUT / REASONS).read_text())
NO_NUMBER, NO_ROW = "waves moving no piece of a tile", "waves whose lanes all lack a row"
ALWAYS = "the branch before it is always taken: "
NEVER = f"{ALWAYS}its condition is constantly false"
BRANCH = ["s_branch 9"]

# (words of the reason, kernel, lines before the block that make the pattern, what may not stand there)
PLANTED = {
    NO_NUMBER: (
        "fa_bwd_dkdv_fp16_d32",
        ["s_cmpk_gt_i32 s4, 0x7f", "s_cbranch_scc0 5", "s_and_b64 vcc, exec, s[0:1]", "s_cbranch_vccnz 3"],
        {
            0: ["s_cmpk_lt_i32 s4, 0x7f", "s_cmpk_gt_i32 s4, 0xff", "s_cmp_gt_i32 s4, s5"],
            1: ["s_cbranch_scc1 5", "s_branch 5"],
            2: ["s_andn2_b64 vcc, exec, s[0:1]", "s_and_b64 s[2:3], exec, s[0:1]"],
            3: ["s_cbranch_vccz 3", "s_cbranch_execnz 3"],
        },
    ),
    NO_ROW: (
        "fa_bwd_dq_masked_fp16_d64",
        ["v_cmp_gt_i32_e32 vcc, s4, v1", "s_and_saveexec_b64 s[0:1], vcc", "s_cbranch_execnz 3"],
        {
            0: ["v_cmp_lt_i32_e32 vcc, s4, v1", "v_cmp_gt_i32_e32 vcc, v4, v1"],
            1: ["s_and_saveexec_b64 s[0:1], s[2:3]", "s_andn2_saveexec_b64 s[0:1], vcc"],
            2: ["s_cbranch_execz 3", "s_cbranch_vccnz 3"],
        },
    ),
}  # fmt: skip
CASES = [
    (why, place, line) for why, (*_, others) in PLANTED.items() for place, lines in others.items()
    for line in lines
]  # fmt: skip
# (words of the reason, kernel, lines before the block, the block)
EXECUTED = [
    (NEVER, "fa_bwd_dkdv_bf16_d64",
     ["s_mov_b64 s[24:25], 0", "s_andn2_b64 vcc, exec, s[24:25]", "s_cbranch_vccz 3",
      "s_and_b64 vcc, exec, s[10:11]", "s_cbranch_vccnz 65161"], BRANCH),
    ("Softmax::update: waves without a rising column", "fa_decode_bf16_d128",
     ["v_accvgpr_write_b32 a5, v8", "v_cmp_eq_u32_e32 vcc, 0, v117", "s_mov_b32 s27, 0", "s_cbranch_vccz 5"],
     BRANCH),
    ("after the maximum", "fa_reference_bf16",
     ["v_mov_b32_e32 v26, v1", "s_or_b64 exec, exec, s[14:15]", "s_andn2_b64 vcc, exec, s[12:13]",
      "s_cbranch_vccnz 65125"], BRANCH),
    (f"{ALWAYS}its condition is a register set to -1", "fa_decode_8bit_bf16_d256",
     ["s_and_not1_b32 vcc_lo, exec_lo, s21", "s_mov_b32 s2, 1", "s_cbranch_vccz 4"], BRANCH),
    ("the way to keys by cumulative lengths", "fa_decode_8bit_bf16_d128",
     ["global_load_dword v192, v[66:67], off", "s_cbranch_execz 3", "s_branch 94"], ["s_branch 1"]),
    ("the way to keys by cumulative lengths", "fa_decode_8bit_bf16_d64",
     ["v_mov_b32_e32 v29, v35", "s_cbranch_execz 64909", "s_branch 64954"], ["s_branch 64898"]),
    ("waves whose lanes all lack their first element", "fa_reference_fp16",
     ["v_max_f32_e32 v1, v2, v3", "s_or_b32 exec_lo, exec_lo, s1", "s_mov_b32 s1, exec_lo",
      "v_cmpx_gt_i32_e64 s2, v3", "s_cbranch_execnz 7"], ["s_or_b32 exec_lo, exec_lo, s1"]),
    ("boolean masks, in the loop for biases", "fa_fwd_masked_fp16_d64",
     ["s_branch 4", "s_mov_b64 s[2:3], -1", "s_mov_b64 s[4:5], 0", "s_lshl_b32 s1, s2, s3",
      "s_and_b32 s1, s1, s4", "s_and_b64 vcc, exec, s[2:3]", "s_cbranch_vccz 9"], ["s_cmp_eq_u32 s1, 0"]),
    ("empty sums", "fa_reference_fp16", ["s_cbranch_vccz 5"], BRANCH),
]  # fmt: skip


def named(words):
    [reason] = [each for each in ALL if each.why.startswith(words)]
    return reason


def explained(words, kernel, behind, code):
    return named(words).explains(kernel, {"behind": behind, "code": code})


@pytest.mark.parametrize("why", PLANTED)
def test_the_planted_block_is_explained_without_a_change(why):
    kernel, behind, _ = PLANTED[why]
    assert explained(why, kernel, behind, BRANCH)


@pytest.mark.parametrize(("why", "place", "line"), CASES)
def test_with_another_line_before_it_a_block_is_not_explained(why, place, line):
    kernel, behind, _ = PLANTED[why]
    assert not explained(why, kernel, [*behind[:place], line, *behind[place + 1 :]], BRANCH)


@pytest.mark.parametrize("why", PLANTED)
def test_neither_is_another_block_after_these_lines(why):
    kernel, behind, _ = PLANTED[why]
    assert not explained(why, kernel, [*behind, "s_nop 0"], BRANCH)
    assert not explained(why, kernel, behind, [*BRANCH, "global_store_dword v[0:1], v2, off"])
    assert not explained(why, kernel.replace("bwd", "fwd"), behind, BRANCH)


@pytest.mark.parametrize(("why", "kernel", "behind", "code"), EXECUTED)
def test_blocks_that_run_are_not_explained(why, kernel, behind, code):
    assert not explained(why, kernel, behind, code)


LINES = [
    "s_mov_b64 s[0:1], 0",
    "s_andn2_b64 vcc, exec, s[0:1]",
    "s_cbranch_vccnz 1",
    "s_branch 9",
    "s_endpgm",
]
LISTING = "0000000000000100 <fa_a>:\n" + "".join(
    f"\t{text} // {0x100 + 4 * n:012X}: BF800000\n" for n, text in enumerate(LINES)
)


@pytest.mark.parametrize("missed", [[], [{"offset": 12, "code": ["s_branch 9"]}]])
def test_an_executed_block_that_a_reason_explains_is_found(missed):
    coverage = {"fa_a": {"instructions": len(LINES), "not_executed": missed}}
    found = [(each.why, place) for each, place in executed_alike(LISTING, coverage, ALL)]
    never = named(NEVER).why
    assert found == ([] if missed else [(never, "fa_a+0xc")])
