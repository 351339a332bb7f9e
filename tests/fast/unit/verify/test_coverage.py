"""Instructions executed by the numerics suite: the gate, and the reasons for the rest."""

import re
from pathlib import Path

import pytest

from wheel_builder.verify.coverage import (
    LEAST,
    LEAST_EXPLAINED,
    REASONS,
    SHOWN,
    UNEXPLAINED,
    Reason,
    accounted_share,
    coverage_problems,
    explained,
    parse_reasons,
)

CHECKOUT = Path(__file__).parents[4]


PADDING = Reason("fa_*", re.compile("^s_nop 0$"), "padding", every=True)
BRANCH = Reason("fa_a", re.compile("s_branch"), "unreachable")


def kernel(executed, *blocks, behind=()):
    missed = [
        {"offset": 4 * number, "behind": list(behind), "code": list(code)}
        for number, code in enumerate(blocks)
    ]
    return {"instructions": executed + sum(map(len, blocks)), "not_executed": missed}


def test_what_only_aligns_does_not_count():
    found = kernel(90, ["s_nop 0"] * 7, ["s_nop 0", "s_branch 3"] * 5)
    assert accounted_share("fa_a", found, []) == pytest.approx(0.9)


@pytest.mark.parametrize(("executed", "refused"), [(980, False), (979, True)])
def test_the_gate(executed, refused):
    """Each kernel must pass, even a short one: others do not make up for it."""
    found = {"fa_b": kernel(executed, ["s_branch 3"] * (1000 - executed)), "fa_c": kernel(50_000)}
    words = (
        f"fa_b: 97.9% of its instructions were executed or have a reason in {REASONS}, expected at least 98%"
    )
    assert LEAST == 0.98
    assert list(coverage_problems(found, [BRANCH])) == [words] * refused


@pytest.mark.parametrize("name", ["fa_a", "fa_b"])
def test_blocks_with_a_reason_are_not_missed(name):
    """Missed blocks have no reason, in any kernel."""
    found = {name: kernel(900, ["s_branch 3"] * 100), "fa_c": kernel(50_000)}
    assert bool(list(coverage_problems(found, [BRANCH]))) == (name == "fa_b")


def test_nothing_executed_is_a_problem():
    assert list(coverage_problems({}, [])) == ["no kernel's instructions were counted"]


def test_too_many_blocks_without_a_reason_are_named():
    found = {
        "fa_a": kernel(985, ["s_nop 0"] * 5, ["s_branch 3"], ["s_mul_i32 s0, s1, s2", *["s_nop 0"] * 9]),
        "fa_b": kernel(1),
    }
    assert list(coverage_problems(found, [PADDING])) == [
        f"11 of 1002 instructions never ran without a reason in {REASONS}, expected at most 0.5%",
        "fa_a+0x8: 10 of them, from `s_mul_i32 s0, s1, s2` on",
        "fa_a+0x4: 1 of them, from `s_branch 3` on",
    ]
    assert [words[:4] for words in coverage_problems(found, [PADDING, BRANCH])] == ["10 o", "fa_a"]
    product = Reason("fa_a", re.compile("s_mul"), "unreachable")
    assert not list(coverage_problems(found, [PADDING, product]))


@pytest.mark.parametrize(("missed", "refused"), [(5, False), (6, True)])
def test_the_gate_for_what_has_no_reason(missed, refused):
    assert LEAST_EXPLAINED == 0.995
    assert bool(list(coverage_problems({"fa_a": kernel(1000 - missed, ["s_mul"] * missed)}, []))) == refused


def test_of_many_blocks_without_a_reason_the_largest_are_named():
    found = {"fa_a": kernel(1000, *[["s_branch 3"]] * (SHOWN + 3))}
    _, *named, rest = coverage_problems(found, [PADDING])
    assert len(named) == SHOWN
    assert rest == "3 more such blocks"


def test_each_block_that_stayed_out_has_its_reason():
    reasons = (Reason("fa_ref*", re.compile("ushort"), "unrolled for more elements than a row has"),)
    found = {"fa_reference_fp16": kernel(5, ["s_nop 0", "global_load_ushort v1"], ["s_branch 3"])}
    told = explained(found, reasons)["fa_reference_fp16"]
    assert (told["instructions"], told["executed"]) == (8, 5)
    assert [block["why"] for block in told["not_executed"]] == [reasons[0].why, UNEXPLAINED]
    assert (
        explained({"fa_fwd": found["fa_reference_fp16"]}, reasons)["fa_fwd"]["not_executed"][0]["why"]
        == UNEXPLAINED
    )


@pytest.mark.parametrize(
    ("behind", "explained_"),
    [(["s_mov_b32 s1, 0", "s_cbranch_vccz 7"], True), (["s_cbranch_vccz 7", "s_nop 0"], False), ([], False)],
)
def test_a_reason_may_ask_for_what_is_before_a_block(behind, explained_):
    reason = Reason(
        "fa_*", re.compile("^s_branch"), "constant", behind=re.compile(r"b32 s1, 0\ns_cbranch_vccz \d$")
    )
    told = explained({"fa_a": kernel(9, ["s_branch 3"], behind=behind)}, [reason])
    assert told["fa_a"]["not_executed"] == [
        {"offset": 0, "code": ["s_branch 3"], "why": reason.why if explained_ else UNEXPLAINED}
    ]


def test_the_reasons_of_this_checkout():
    """Each has a different text, by which tests/release/test_verify.py finds unused ones."""
    reasons = parse_reasons((CHECKOUT / REASONS).read_text())
    assert all(each.why and each.kernels for each in reasons)
    assert len({each.why for each in reasons}) == len(reasons)
