"""Which instructions the numerics suite executed: the gate, and the reasons for the rest."""

import re
from pathlib import Path

import pytest

from wheel_builder.verify.coverage import (
    LEAST,
    REASONS,
    SHOWN,
    Reason,
    coverage_problems,
    executed_share,
    explained,
    parse_reasons,
)

CHECKOUT = Path(__file__).parents[3]


PADDING = Reason("fa_*", re.compile("^s_nop 0$"), "padding", every=True)


def kernel(executed, *blocks):
    missed = [{"offset": 4 * number, "code": list(code)} for number, code in enumerate(blocks)]
    return {"instructions": executed + sum(map(len, blocks)), "not_executed": missed}


def test_the_share_is_over_all_kernels():
    found = {"fa_a": kernel(90, ["s_nop 0"] * 4, ["s_nop 1"] * 6), "fa_b": kernel(100)}
    assert executed_share(found) == pytest.approx(0.95)
    assert executed_share({}) == 0


@pytest.mark.parametrize(("executed", "refused"), [(980, False), (979, True)])
def test_the_gate(executed, refused):
    found = {"fa_a": kernel(executed, ["s_nop 0"] * (1000 - executed))}
    assert LEAST == 0.98
    assert [bool(words) for words in coverage_problems(found, [PADDING])] == [True] * refused


def test_nothing_executed_is_a_problem():
    assert list(coverage_problems({}, []))


def test_a_block_without_a_reason_is_named():
    found = {"fa_a": kernel(1000, ["s_nop 0"], ["s_branch 3", "s_nop 0"]), "fa_b": kernel(1000, ["s_nop 0"])}
    words = f"fa_a+0x4: 2 instructions never ran, from `s_branch 3` on, and {REASONS} has no reason"
    assert list(coverage_problems(found, [PADDING])) == [words]
    assert len(list(coverage_problems(found, []))) == 3


def test_of_many_blocks_without_a_reason_the_first_are_named():
    found = {"fa_a": kernel(10_000, *[["s_branch 3"]] * (SHOWN + 7))}
    *named, rest = coverage_problems(found, [PADDING])
    assert len(named) == SHOWN
    assert rest == "7 more such blocks"


def test_each_block_that_stayed_out_has_its_reason():
    reasons = (Reason("fa_ref*", re.compile("ushort"), "unrolled for more elements than a row has"),)
    found = {"fa_reference_fp16": kernel(5, ["s_nop 0", "global_load_ushort v1"], ["s_branch 3"])}
    told = explained(found, reasons)["fa_reference_fp16"]
    assert (told["instructions"], told["executed"]) == (8, 5)
    assert [block["why"] for block in told["not_executed"]] == [reasons[0].why, ""]
    assert (
        explained({"fa_fwd": found["fa_reference_fp16"]}, reasons)["fa_fwd"]["not_executed"][0]["why"] == ""
    )


def test_the_reasons_of_this_checkout():
    assert all(each.why and each.kernels for each in parse_reasons((CHECKOUT / REASONS).read_text()))
