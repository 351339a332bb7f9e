"""The output of ``emulate``, and its failures."""

import pytest

from wheel_builder.base.errors import FindingsError
from wheel_builder.machine_code.emulator.attention import Case, Difference, Numbers
from wheel_builder.machine_code.emulator.command import Emulated, report
from wheel_builder.machine_code.emulator.machine import Count, Finding, Result

CASE = Case("bf16", 64, 17, 65, nheads=4, nheads_k=2, causal=True)
COUNTS = {
    "v_add_f32": Count("valu", 1200, 38400),
    "v_mul_f32": Count("valu", 30, 960),
    "s_nop": Count("wait", 4, 0),
}
GOOD = Numbers(out_error=1e-3, out_allowed=4e-3, lse_error=1e-7, first=None)
WRONG = Numbers(0.5, 4e-3, 1e-7, Difference("out", (0, 3, 1, 7), 0.75, 0.25, 4e-3))
RACE = Finding("lds-race", "k", "k+0x8", "ds_read_b32 v1, v2", (0, 1, 0), 2, 5, 16, "load conflicts", 3)

TITLE = "fa_fwd_bf16_d64 on gfx1100: batch 1, seqlen 17 x 65, heads 4/2, causal"
PLACE = "kernel k at k+0x8, 'ds_read_b32 v1, v2', workgroup (0, 1, 0) wave 2 lane 5"


def emulated(numbers=GOOD, findings=(), error=""):
    return Emulated("gfx1100", CASE, Result(1234, findings, COUNTS, error), numbers)


def test_a_run_that_passed():
    assert report(emulated()).splitlines() == [
        f"{TITLE} (executed on an ISA emulator, not run on hardware)",
        "  out: worst error 1.000e-03 against float64; the rule allows 4.000e-03, 25% of it used",
        "  lse: worst error 1.000e-07 against float64",
        "  first difference: none",
        "  1,234 wave-instructions",
        "           1,230 valu",
        "               4 wait",
        "  passed",
    ]
    emulated().raise_unless_passed()


def test_wrong_numbers_name_the_first_difference():
    words = "first difference: out[0, 3, 1, 7] is 0.75, expected 0.25 +- 4.000e-03"
    assert f"  {words}" in report(emulated(WRONG)).splitlines()
    with pytest.raises(FindingsError) as caught:
        emulated(WRONG).raise_unless_passed()
    assert caught.value.problems == (words,)
    assert "fa_fwd_bf16_d64 on gfx1100 did not pass" in caught.value.message


def test_everything_that_is_wrong_is_told():
    with pytest.raises(FindingsError) as caught:
        emulated(None, (RACE,), "kernel 'k': endless loop?").raise_unless_passed()
    assert caught.value.problems == (
        "it stopped: kernel 'k': endless loop?",
        f"lds-race: load conflicts; address 0x10; {PLACE} (3 times)",
    )
    assert report(emulated(None, (RACE,), "x")).splitlines()[-1] == "  FAILED"
