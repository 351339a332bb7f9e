"""Mutants of single instructions, as text."""

import random
from datetime import date, timedelta

import pytest

from tests.tools.made.assembly import disassembly
from tests.tools.mutation.__main__ import passed, those_launching
from tests.tools.mutation.mutants import KINDS, NOTHING, assembled, changes, drawn, mutated_listing, places_of
from tests.tools.mutation.options import of_the_day
from tests.tools.mutation.table import as_text, below, score
from wheel_builder.machine_code.disassembly.kernels import parse_disassembly

CODE = [
    "s_load_dwordx2 s[4:5], s[0:1], 0x10", "v_cmp_lt_f32_e32 vcc, v1, v2", "s_waitcnt vmcnt(3) lgkmcnt(0)",
    "ds_read_b128 v[4:7], v8 offset:64", "s_barrier", "v_add_f32_e32 v3, 1.0, v1", "s_cbranch_scc0 1",
    "v_mov_b32_e32 v1, 0x3fb8aa3b", "s_endpgm",
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "text", "after"),
    [
        ("register", "v_add_f32_e32 v3, 1.0, v1", "v_add_f32_e32 v3, 1.0, v2"),
        ("register", "ds_read_b128 v[4:7], v8", "ds_read_b128 v[4:7], v9"),
        ("immediate", "v_add_f32_e32 v3, 1.0, v1", "v_add_f32_e32 v3, 2.0, v1"),
        ("offset", "ds_read_b128 v[4:7], v8 offset:64", "ds_read_b128 v[4:7], v8 offset:68"),
        ("offset", "s_load_dwordx2 s[4:5], s[0:1], 0x10", "s_load_dwordx2 s[4:5], s[0:1], 0x14"),
        ("condition", "v_cmp_lt_f32_e32 vcc, v1, v2", "v_cmp_le_f32_e32 vcc, v1, v2"),
        ("condition", "v_cmp_eq_f32_e32 vcc, v1, v2", "v_cmp_neq_f32_e32 vcc, v1, v2"),
        ("condition", "s_cmp_eq_u32 s1, s2", "s_cmp_lg_u32 s1, s2"),
        ("condition", "s_cbranch_scc0 1", "s_cbranch_scc1 1"),
        ("opcode", "v_add_f32_e32 v3, v2, v1", "v_sub_f32_e32 v3, v2, v1"),
        ("dropped", "v_add_f32_e32 v3, v2, v1", NOTHING),
        ("wait", "s_waitcnt vmcnt(3) lgkmcnt(0)", "s_waitcnt vmcnt(4) lgkmcnt(0)"),
        ("wait", "s_waitcnt vmcnt(3) lgkmcnt(0)", "s_waitcnt vmcnt(3) lgkmcnt(1)"),
        ("wait", "s_wait_loadcnt 0x3", "s_wait_loadcnt 0x4"),
        ("wait", "s_wait_loadcnt_dscnt 0x101", "s_wait_loadcnt_dscnt 0x201"),
        ("wait", "s_wait_loadcnt_dscnt 0x101", "s_wait_loadcnt_dscnt 0x102"),
        ("wait", "s_wait_alu depctr_sa_sdst(0)", NOTHING),
        ("barrier", "s_barrier_signal -1", NOTHING),
        ("barrier", "s_barrier", NOTHING),
    ],
)
def test_what_an_instruction_may_become(kind, text, after):
    assert after in changes(kind, text, random.Random(0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [*CODE, "s_nop 3", "s_branch 7", "s_clause 0x1"])
def test_a_change_is_a_change(kind, text):
    assert text not in changes(kind, text, random.Random(0))


@pytest.mark.parametrize("text", ["s_endpgm", "s_nop 3", "s_clause 0x1"])
def test_what_computes_nothing_stays(text):
    assert [changes(kind, text, random.Random(0)) for kind in KINDS] == [[]] * len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_found_where_it_can_be(kind):
    (mutant,) = drawn("gfx942", "gfx942-0", *places_of(disassembly(*CODE)), kind, 1, random.Random(0))
    assert mutant.kind == kind
    assert mutant.after != mutant.before


def test_the_same_seed_draws_the_same_mutants_each_of_another_instruction():
    first, again, other = (
        drawn("gfx942", "gfx942-0", *places_of(disassembly(*CODE)), "register", 4, random.Random(seed))
        for seed in (1, 1, 2)
    )
    assert first == again != other
    assert len({mutant.line for mutant in first}) == len(first) == 4


def test_a_kernel_without_a_barrier_has_no_mutant_of_one():
    code = [line for line in CODE if line != "s_barrier"]
    assert drawn("gfx942", "gfx942-0", *places_of(disassembly(*code)), "barrier", 3, random.Random(0)) == []


def test_an_instruction_that_does_not_fit_is_no_mutant():
    mutant = drawn("gfx942", "f", *places_of(disassembly(*CODE)), "register", 1, random.Random(0))[0]
    assert assembled(mutant, 1, ("7E020281",)).words == ("7E020281",)
    assert assembled(mutant, 1, ("7E0202FF", "00000000")) is None
    assert assembled(mutant, 1, ()) is None


def test_a_dropped_instruction_leaves_the_addresses_of_others():
    listing = disassembly(*CODE).replace("BF800000\n\ts_barrier", "BF800000 00000000\n\ts_barrier")
    mutant = next(
        m
        for m in drawn("gfx942", "f", *places_of(listing), "dropped", 40, random.Random(0))
        if "ds_" in m.before
    )
    name, places = places_of(listing)
    (place,) = (place for place in places if place.line == mutant.line)
    assert (name, place.dwords) == ("fa_fwd_fp16_d64", 2)
    (kernel,) = parse_disassembly(mutated_listing(listing, assembled(mutant, 2, ())))
    texts = [(i.address, i.text) for i in kernel.instructions]
    assert texts[3:5] == [(place.address, NOTHING), (place.address + 4, NOTHING)]


def row(verdict, kind="wait", by=""):
    return {"arch": "gfx942", "kind": kind, "verdict": verdict, "by": by, "name": "it", "words": "why"}


def test_the_table_counts_by_kind_and_lists_what_nothing_killed():
    rows = [
        row("killed", by="static: waits"),
        row("killed", by="numerics"),
        row("survived"),
        row("not judged"),
        row("as exact"),
        row("as exact"),
    ]
    text = as_text([*rows, row("killed", "barrier", "sanitizer")])
    every = text.splitlines()[3].split()
    assert every[:8] == ["gfx942", "all", "7", "3", "1", "1", "2", "75.0%"]
    assert text.endswith("survived: it (why)\nnot judged: it (why)\nas exact: it (why)\nas exact: it (why)")
    assert score([row("not judged"), row("as exact")]) == 1.0


@pytest.mark.parametrize(
    ("answer", "verdict", "words"),
    [
        ({"same": 60, "calls": 60}, "not judged", "60 of 60 random calls give the same"),
        ({"same": 58, "calls": 60, "worse": ""}, "as exact", "58 of 60 random calls give the same"),
        (
            {"same": 58, "calls": 60, "worse": "dq: why"},
            "survived",
            "58 of 60 random calls give the same; dq: why",
        ),
    ],
)
def test_a_mutant_that_passes_all_tests_survived_if_it_is_less_exact(answer, verdict, words):
    assert passed(answer) == {"verdict": verdict, "words": words}


def test_an_arch_below_the_least_score_is_named():
    rows = [row("killed")] * 49 + [row("survived")]
    assert below(rows, 0.98) == []
    assert below([*rows, row("survived"), row("not judged")], 0.98) == ["gfx942"]


def test_archs_take_turns_and_every_day_has_its_own_seed():
    days = [of_the_day(date(2026, 1, 1) + timedelta(n), ("a", "b", "c")) for n in range(6)]
    assert sorted(arch for (arch,), _ in days) == ["a", "a", "b", "b", "c", "c"]
    assert len({seed for _, seed in days}) == 6


def test_the_those_launching_a_kernel_are_those_that_launch_it():
    tests = {
        "slow": {"seconds": 2.0, "kernels": {"fa_append_fp16": 1, "fa_fwd_fp16_d64": 1}},
        "other": {"seconds": 0.1, "kernels": {"fa_fwd_fp16_d64": 3}},
        "fast": {"seconds": 0.2, "kernels": {"fa_append_fp16": 2}},
    }
    assert those_launching(tests, "fa_append_fp16") == ["fast", "slow"]
    assert those_launching(tests, "fa_append_bf16") == []
