"""The order of candidates, from nothing but what is known of earlier ones."""

import math

import pytest

from wheel_builder.extras.tune import space
from wheel_builder.extras.tune.rows import NONE, Change, Kernel, changed, joined, rows_of
from wheel_builder.extras.tune.rules import refusal
from wheel_builder.extras.tune.space import next_candidates, single_changes
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import SETS, SWITCHES, known_tiles

KERNEL = Kernel("gfx908", "fwd", "fp16", 64)
ARCH = arch_named("gfx908")
ROWS = rows_of(known_tiles(), ARCH, KERNEL)
ALL = 10_000


def following(gains, limit=ALL):
    return next_candidates(KERNEL, ARCH, ROWS, gains, limit)


def singles():
    return [each for each in following({}) if each]


def test_todays_rows_come_first_then_one_change_each():
    first = following({})
    assert first[0] == NONE
    assert all(len(each) == 1 for each in first[1:])
    assert len(set(first)) == len(first) > 25


def test_no_candidate_is_refused_by_the_rules_or_is_todays():
    ids = [changed(ROWS, each).id_of(KERNEL) for each in singles()]
    assert ROWS.id_of(KERNEL) not in ids
    assert len(set(ids)) == len(ids)
    assert not any(refusal(KERNEL, ARCH, changed(ROWS, each)) for each in singles())


def test_every_switch_is_tried_and_fields_of_the_host_never():
    fields = {change.field for change in single_changes(KERNEL, ARCH, ROWS)}
    assert {name for name in SETS["fwd"] if name in SWITCHES} <= fields
    assert not fields & {*space.NEVER}


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        ("fwd_masked", {"early_mask", "query_steps", "schedule", "keys"}),
        ("bwd_dkdv", {"pairs", "queries", "own_steps", "column_blocks", "ping_pong"}),
        ("bwd_fused", {"pairs", "queries", "own_steps", "early_numbers", "tight_registers"}),
        ("bwd_dq_masked", {"waves", "keys", "q_steps", "dout_steps", "early_mask"}),
    ],
)
def test_kernels_of_every_kind_have_their_fields(op, fields):
    kernel = Kernel("gfx908", op, "fp16", 64)
    rows = rows_of(known_tiles(), ARCH, kernel)
    found = {change.field for change in single_changes(kernel, ARCH, rows)}
    assert fields <= found
    assert not found & {*space.NEVER}
    tried = next_candidates(kernel, ARCH, rows, {}, ALL)
    assert len(tried) > 10
    assert not any(refusal(kernel, ARCH, changed(rows, each)) for each in tried)


def test_a_limit_cuts_the_same_order():
    assert following({}, 5) == following({})[:5]


def test_known_candidates_are_not_tried_again():
    known = dict.fromkeys(following({}, 5), 0.0)
    assert following(known, 1) == [following({})[5]]


@pytest.fixture
def known():
    """Gains of all single changes, one of them refused."""
    found = dict.fromkeys(following({}), 0.0)
    found[joined([Change("prefetch", 1)])] = 0.05
    found[joined([Change("two_sums", True)])] = 0.03
    found[joined([Change("keys", 64)])] = None
    found[joined([Change("half_stores", True)])] = -0.2
    return found


def test_then_the_best_pair(known):
    best = following(known, 1)
    assert best == [joined([Change("prefetch", 1), Change("two_sums", True)])]


def test_a_change_that_costs_much_is_tried_with_no_other(known):
    assert not any(Change("half_stores", True) in each for each in following(known))


def test_a_refused_change_is_tried_with_others_late(known):
    pairs = following(known)
    refused = [at for at, each in enumerate(pairs) if Change("keys", 64) in each]
    gaining = [at for at, each in enumerate(pairs) if Change("prefetch", 1) in each]
    assert refused
    assert min(gaining) < min(refused)


def test_a_change_that_the_rules_refuse_alone_is_tried_with_what_it_needs(known):
    """16 waves need registers for 4 of them on a SIMD."""
    pairs = following(known)
    assert joined([Change("waves", 16), Change("waves_per_simd", 4)]) in pairs
    assert joined([Change("waves", 16)]) not in following({})


def test_a_field_has_one_value(known):
    assert all(len({change.field for change in each}) == len(each) for each in following(known))


def test_a_third_change_joins_the_best_pair(known):
    pair = joined([Change("prefetch", 1), Change("two_sums", True)])
    more = following(known | {pair: 0.2}, 1)
    assert len(more[0]) == 3
    assert set(pair) < set(more[0])


def test_the_neighbourhood_ends(monkeypatch):
    monkeypatch.setattr(space, "MOST_CHANGES", 1)
    assert following(dict.fromkeys(following({}), 0.0)) == []


@pytest.mark.parametrize(("arch", "step"), [("gfx908", 32), ("gfx1100", 16), ("gfx1030", 16)])
def test_keys_are_whole_steps(arch, step):
    kernel = Kernel(arch, "fwd", "fp16", 64)
    rows = rows_of(known_tiles(), arch_named(arch), kernel)
    keys = [each.value for each in single_changes(kernel, arch_named(arch), rows) if each.field == "keys"]
    assert keys
    assert math.gcd(*keys) == step


def test_keys_of_waves_that_multiply_64_at_once_are_whole_steps():
    arch, kernel = arch_named("gfx906"), Kernel("gfx906", "decode_8bit", "fp16", 128)
    rows = rows_of(known_tiles(), arch, kernel)
    found = {change.value for change in single_changes(kernel, arch, rows) if change.field == "keys"}
    assert found == {64, 128} - {rows.plain.keys}
