"""The launch model on launches whose time can be computed by hand."""

from dataclasses import replace

import pytest

from wheel_builder.extras.perf.launch.order import (
    as_numbered,
    heads_in_turn,
    heads_on_dies,
    most_in_turn,
)
from wheel_builder.extras.perf.launch.shapes import (
    Shape,
    Work,
    backward_works,
    decode_works,
    forward_works,
    packed,
    seen_queries,
)
from wheel_builder.extras.perf.launch.simulate import CHUNK, IDLE, Die, Speed, simulate

KIB = 1024
FAST = 1e9  # bytes a clock: no limit
DIE = Die(units=2, l2_bytes=0, l2=FAST, far_bytes=0, far=FAST, memory=FAST, latency=0, dispatch=0.0)
ALONE = Speed(clocks=(100.0,), start=0.0, row_bytes=8)
ADDING = replace(ALONE, added_bytes=8)
SHAPES = (
    Shape(1024, 1024, 16, 16),
    Shape(1024, 1024, 16, 16, causal=True),
    Shape(1024, 1024, 32, 8, batch=2, causal=True, window=128),
    packed((1024, 256, 512), 4),
)
ORDERS = [as_numbered, heads_on_dies, heads_in_turn(2), heads_in_turn(4)]


def works(*chunks):
    """A workgroup of each number of chunks, of a head of its own."""
    return [Work(0, head, 0, CHUNK * each) for head, each in enumerate(chunks)]


def clocks(queue, speed=ALONE, die=DIE):
    return simulate((tuple(queue),), speed, die).clocks


@pytest.mark.parametrize(
    ("chunks", "wanted"),
    [((), 0), ((3,), 300), ((3, 3), 300), ((1, 1, 1, 1, 4), 600), ((4, 1, 1, 1, 1), 400), ((2, 2, 2), 400)],
)
def test_a_free_slot_gets_the_next_workgroup(chunks, wanted):
    assert clocks(works(*chunks)) == pytest.approx(wanted, abs=1)


def test_workgroups_of_a_unit_share_it():
    """One alone takes 100 clocks a chunk, two of them 150: 75 for each chunk."""
    shared = Speed(clocks=(100.0, 150.0), start=0.0, row_bytes=8)
    assert clocks(works(4, 4, 4, 4), shared) == pytest.approx(600, abs=1)
    assert clocks(works(4, 4), shared) == pytest.approx(400, abs=1)
    found = simulate((tuple(works(4, 4, 4, 4)),), shared, DIE)
    assert found.ideal == pytest.approx(600)
    assert found.busy == pytest.approx(1, abs=0.01)


def test_a_start_is_charged_to_each_workgroup():
    assert clocks(works(1, 1, 1, 1), replace(ALONE, start=50.0)) == pytest.approx(300, abs=1)


def test_memory_limits_a_launch():
    """Eight chunks of 1 KiB from memory with a byte a clock. Nothing is read twice."""
    slow = replace(DIE, memory=1.0)
    assert clocks(works(4, 4), die=slow) == pytest.approx(8 * KIB, rel=0.03)
    assert clocks(works(4, 4), die=replace(DIE, l2=1.0)) == pytest.approx(8 * KIB, rel=0.03)


@pytest.mark.parametrize(("l2", "far", "memory", "last"), [(8, 0, 4, 0), (0, 8, 4, 4), (0, 0, 8, 0)])
def test_caches_hold_what_was_read_last(l2, far, memory, last):
    """Two workgroups of one head, one after the other, with four chunks of 1 KiB."""
    one = replace(DIE, units=1, l2_bytes=l2 * KIB, far_bytes=far * KIB)
    found = simulate(((Work(0, 0, 0, 4 * CHUNK), Work(1, 0, 0, 4 * CHUNK)),), ALONE, one)
    assert (found.memory_bytes, found.far_bytes) == (memory * KIB, last * KIB)


def test_parts_of_a_chunk_are_not_taken_for_each_other():
    parts = (Work(0, 0, 0, 64), Work(1, 0, 64, 128))
    one = replace(DIE, units=1, l2_bytes=KIB)
    assert simulate((parts,), ALONE, one).memory_bytes == KIB


def test_a_cache_too_small_for_a_head_holds_nothing_of_it():
    one = replace(DIE, units=1, l2_bytes=3 * KIB)
    found = simulate(((Work(0, 0, 0, 4 * CHUNK), Work(1, 0, 0, 4 * CHUNK)),), ALONE, one)
    assert found.memory_bytes == 8 * KIB


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dies", [1, 2, 8])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_an_order_has_every_workgroup_once(order, dies, shape):
    given = [*forward_works(shape, 128)]
    queues = order(given, dies)
    assert len(queues) == dies
    assert sorted(map(repr, (work for queue in queues for work in queue))) == sorted(map(repr, given))


def test_heads_in_turn_begin_with_the_heaviest_blocks():
    shape = Shape(512, 512, 4, 4, causal=True)
    (queue,) = heads_in_turn(2)([*forward_works(shape, 128)], 1)
    assert [(work.head, work.block) for work in queue[:4]] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [work.length for work in queue[:8]] == [512, 512, 384, 384, 256, 256, 128, 128]


def test_a_causal_launch_ends_with_its_lightest_workgroups():
    """Three heads on two units: 4 + 3 + 2 + 1 chunks each, 15 for each unit at best."""
    given = [*forward_works(Shape(512, 512, 3, 3, causal=True), 128)]
    apart, together = (simulate(order(given, 1), ALONE, DIE) for order in (heads_on_dies, heads_in_turn(3)))
    assert together.clocks == pytest.approx(1500, abs=1)
    assert apart.clocks >= together.clocks
    assert apart.ideal == together.ideal == pytest.approx(1500)


def test_a_row_sees_keys_up_to_the_diagonal_within_its_window():
    shape = Shape(256, 512, 1, 1, causal=True, window=100)
    assert [(work.begin, work.end) for work in forward_works(shape, 128)] == [(284, 512), (156, 384)]
    assert [(work.begin, work.end) for work in forward_works(Shape(128, 512, 1, 1), 128)] == [(0, 512)]


@pytest.mark.parametrize("window", [-1, 0, 50, 300])
@pytest.mark.parametrize(("queries", "keys"), [(256, 256), (128, 320), (320, 128)])
def test_queries_of_a_block_of_keys_are_those_that_see_it(queries, keys, window):
    shape = Shape(queries, keys, 1, 1, causal=True, window=window)
    for first in range(0, keys, 64):
        block = range(first, min(keys, first + 64))
        seeing = [row for row in range(queries) if {*block} & seen_by(row, shape)]
        assert [*range(*seen_queries(shape, first, 64))] == seeing


def seen_by(row, shape):
    """The keys of a row, by the definition of the mask."""
    diagonal = row + shape.keys - shape.queries
    least = 0 if shape.window < 0 else diagonal - shape.window
    return {key for key in range(shape.keys) if least <= key <= diagonal}


def test_backwards_have_a_workgroup_for_each_block_of_keys():
    found = [*backward_works(Shape(256, 256, 2, 2, causal=True), 128)]
    assert [(work.head, work.begin, work.end) for work in found] == [
        (0, 0, 256), (0, 128, 256), (1, 0, 256), (1, 128, 256),
    ]  # fmt: skip


def test_each_die_has_whole_groups_of_heads_that_fit_into_the_last_cache():
    assert [most_in_turn(heads, 1, 1, 1) for heads in (1, 6, 12, 64)] == [1, 2, 4, 16]
    assert [most_in_turn(32, batch, 8, 1) for batch in (1, 2, 4)] == [4, 8, 16]
    assert [most_in_turn(16, 1, 1, size << 20) for size in (2, 8, 16, 17, 33)] == [16, 4, 2, 1, 1]


def test_packed_sequences_have_idle_workgroups_up_to_the_longest():
    found = [*forward_works(packed((256, 128), 1), 128)]
    assert [(work.head, work.begin, work.end, work.idle) for work in found] == [
        (0, 0, 256, False), (0, 0, 128, False), (1, 0, 128, False), (1, 0, 0, True),
    ]  # fmt: skip
    assert [work.idle for work in backward_works(packed((256, 128), 1), 128)] == [False, False, False, True]
    assert clocks([Work(0, 0, 0, 0, idle=True)] * 4) == 2 * IDLE


def test_visible_pairs_are_counted():
    assert Shape(4, 4, 2, 2).pairs == 32
    assert Shape(4, 4, 2, 2, batch=3, causal=True).pairs == 60
    assert packed((4, 2), 1).pairs == 13


def test_parts_of_a_decode_have_all_keys_of_each_head_of_keys_once():
    found = [*decode_works(Shape(1, 1000, 8, 2), 3)]
    assert [(work.head, work.begin, work.end) for work in found] == [
        (head, begin, end) for head in (0, 1) for begin, end in ((0, 334), (334, 668), (668, 1000))
    ]


def test_the_l2_adds_beside_its_reads():
    """Four chunks of 1 KiB on one unit: at 4 bytes a clock 256 clocks to read one, 512 to add to it."""
    one = replace(DIE, units=1, l2=4.0, adds=2.0, l2_bytes=1 << 20)
    found = simulate(((Work(0, 0, 0, 4 * CHUNK),),), ADDING, one)
    assert found.clocks == pytest.approx(4 * (256 + 512), rel=0.01)
    assert clocks(works(4), die=one) == pytest.approx(4 * 256 + 100, rel=0.01)


def test_rows_of_one_die_are_added_to_in_its_l2():
    """Each head's two workgroups on a die of its own, or its workgroups on both."""
    slow = replace(DIE, units=2, leave=0.5, l2_bytes=1 << 20)
    given = [Work(block, head, 0, CHUNK) for head in (0, 1) for block in (0, 1)]
    near, far = (simulate(order(given, 2), ADDING, slow) for order in (heads_on_dies, as_numbered))
    assert near.clocks == pytest.approx(100, abs=1)
    assert far.clocks == pytest.approx(2 * 2 * KIB, rel=0.01)
    assert simulate(heads_on_dies(given, 2), ADDING, slow, leaves=True).clocks == far.clocks
    assert simulate(heads_on_dies(given, 2), ALONE, slow, leaves=True).clocks == pytest.approx(100, abs=1)


def test_rows_that_leave_a_die_are_read_and_written_beyond_it():
    given = [Work(block, 0, 0, CHUNK) for block in (0, 1)]
    found = simulate(as_numbered(given, 2), ADDING, replace(DIE, l2_bytes=1 << 20))
    assert found.memory_bytes == 2 * (KIB + 2 * KIB)


def test_additions_to_the_same_rows_wait_for_each_other():
    """Two workgroups add to a head's only chunk, or to two heads'."""
    turning = replace(DIE, l2_bytes=1 << 20, turn=300.0)
    same, apart = ([Work(0, 0, 0, CHUNK), Work(1, head, 0, CHUNK)] for head in (0, 1))
    found = [simulate((tuple(each),), ADDING, turning).clocks for each in (same, apart)]
    assert found == pytest.approx([600, 300], abs=1)
