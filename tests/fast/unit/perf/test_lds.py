"""Costs of LDS instructions, by hand: phases, conflicts, masks, widths, both readings of the phases."""

import pytest

from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.model.lds import (
    CONTIGUOUS,
    MEASURED,
    Access,
    Charge,
    accesses,
    charge,
    orders,
    phases_of,
)
from wheel_builder.tables.archs import arch_named

ALL = (1 << 64) - 1
ROW = 128  # bytes of all banks


def access(lanes, *, active=ALL, offsets=(0, 0)):
    return Access(0x1600, active, offsets, tuple(lanes))


def cost(mnemonic, address, *, arch="gfx942", order="", **more):
    """The charge when lane i has ``address(i)``."""
    lanes = map(address, range(arch_named(arch).isa.wave))
    return charge(arch, order or orders(arch)[0], mnemonic, access(lanes, **more))


def banks(*arguments, **more):
    found = cost(*arguments, **more)
    return found.banks, found.extra, found.ways


@pytest.mark.parametrize(
    ("arch", "mnemonic", "size", "clocks"),
    [
        ("gfx942", "ds_read_b32", 4, 2),
        ("gfx942", "ds_read_b64", 8, 4),
        ("gfx942", "ds_read_b128", 16, 8),
        ("gfx942", "ds_write_b128", 16, 8),
        ("gfx1100", "ds_load_b32", 4, 1),
        ("gfx1100", "ds_load_b64", 8, 2),
        ("gfx1100", "ds_load_b128", 16, 4),
        ("gfx1100", "ds_store_b64", 8, 2),
    ],
)
def test_lanes_side_by_side_take_a_clock_a_phase(arch, mnemonic, size, clocks):
    assert banks(mnemonic, lambda lane: size * lane, arch=arch) == (clocks, 0, 1)


@pytest.mark.parametrize(
    ("arch", "stride", "ways"),
    [("gfx942", 8, 2), ("gfx942", 64, 16), ("gfx942", ROW, 32), ("gfx1100", 12, 1), ("gfx1100", ROW, 32)],
)
def test_a_stride_conflicts_as_often_as_it_comes_back_to_a_bank(arch, stride, ways):
    phases = 2 if arch == "gfx942" else 1
    assert banks("ds_read_b32", lambda lane: stride * lane, arch=arch) == (
        phases * ways,
        phases * (ways - 1),
        ways,
    )


def test_a_broadcast_does_not_conflict():
    assert banks("ds_read_b32", lambda lane: 64) == (2, 0, 1)
    assert banks("ds_read_b128", lambda lane: 64) == (8, 0, 1)
    assert banks("ds_read_u16", lambda lane: 64 + 2 * (lane % 2)) == (2, 0, 1)  # halves of one dword


def test_one_other_lane_on_a_bank_is_one_more_clock():
    assert banks("ds_read_b32", lambda lane: ROW if lane == 5 else 0) == (3, 1, 2)


def test_a_stride_of_a_row_and_a_dword_does_not_conflict():
    assert banks("ds_read_b32", lambda lane: (ROW + 4) * lane) == (2, 0, 1)


def test_masked_lanes_need_no_bank_and_their_phases_are_still_paid_for():
    two = 0b11
    assert banks("ds_read_b32", lambda lane: ROW * lane, active=two) == (3, 1, 2)
    assert banks("ds_read_b32", lambda lane: ROW * lane, active=1) == (2, 0, 1)
    assert banks("ds_read_b32", lambda lane: ROW * lane, active=0) == (2, 0, 0)


def test_lanes_of_different_phases_do_not_meet():
    apart = 1 | 1 << 32
    assert banks("ds_read_b32", lambda lane: ROW * lane, active=apart) == (2, 0, 1)


def test_less_than_a_dword_is_counted_as_one():
    assert banks("ds_write_b16", lambda lane: ROW * lane) == (64, 62, 32)
    assert banks("ds_write_b8", lambda lane: lane) == (2, 0, 1)
    assert banks("ds_write_b16_d16_hi", lambda lane: 2 * lane) == (2, 0, 1)


def test_three_dwords_are_charged_as_four():
    assert cost("ds_read_b96", lambda lane: 16 * lane) == cost("ds_read_b128", lambda lane: 16 * lane)


def test_every_dword_of_a_wide_access_can_conflict():
    """Lanes of a phase that are half an access apart share two banks of four."""
    assert banks("ds_read_b128", lambda lane: ROW * lane + 8 * lane, order=CONTIGUOUS) == (16, 8, 2)


def test_an_offset_moves_all_lanes_alike():
    assert banks("ds_read_b64", lambda lane: 16 * lane) == banks(
        "ds_read_b64", lambda lane: 16 * lane, offsets=(520, 0)
    )


@pytest.mark.parametrize(
    ("mnemonic", "first", "second"),
    [("ds_read2_b32", 0, 4), ("ds_read2st64_b32", 0, 256), ("ds_load_2addr_stride64_b32", 0, 256)],
)
def test_two_addresses_are_two_accesses(mnemonic, first, second):
    """In the second the upper lanes read a row further, from the same banks."""

    def lane_address(lane):
        return 4 * (lane % 32) + (first if lane < 32 else second)

    assert banks(mnemonic, lambda lane: ROW * lane, active=0b11) == (6, 2, 2)
    assert banks(mnemonic, lane_address, offsets=(0, 1)) == (4, 0, 1)


def test_the_offsets_of_two_addresses_count_in_their_unit():
    """Two lanes on one dword by one offset: lane 1 is 64 elements behind. Each access is shared or not."""
    one, two = 0, 64 * 8 - 4 * 2
    lanes = [one, two, *[0] * 62]
    found = charge("gfx942", MEASURED, "ds_read2st64_b64", access(lanes, active=0b11, offsets=(1, 2)))
    assert (found.banks, found.extra) == (8, 0)
    near = charge(
        "gfx942", "gfx942", "ds_read2_b64", access([0, ROW, *[0] * 62], active=0b11, offsets=(1, 2))
    )
    assert (near.banks, near.extra, near.ways) == (10, 2, 2)


def test_lanes_that_add_to_one_dword_take_turns():
    assert banks("ds_add_u32", lambda lane: 0) == (64, 62, 32)
    assert banks("ds_add_rtn_f32", lambda lane: 4 * lane) == (2, 0, 1)


def test_exchanges_between_lanes_use_no_banks():
    assert banks("ds_bpermute_b32", lambda lane: ROW * lane) == (2, 0, 0)
    assert banks("ds_swizzle_b32", lambda lane: ROW * lane) == (2, 0, 0)


def measured(lane):
    """Rows of a bank's width for the lanes of gfx942's first phase of 128 bits. The others share a dword."""
    return {0: 0, 20: ROW}.get(lane, 16 * 4)


def test_reads_of_128_bits_meet_in_the_measured_phases_only():
    pair = 1 | 1 << 20
    assert banks("ds_read_b128", measured, active=pair) == (9, 1, 2)
    assert banks("ds_read_b128", measured, active=pair, arch="gfx908", order=CONTIGUOUS) == (8, 0, 1)
    assert banks("ds_write_b128", measured, active=pair) == (8, 0, 1)
    assert banks("ds_load_b128", measured, active=pair, arch="gfx1100") == (5, 1, 2)


@pytest.mark.parametrize("order", [MEASURED, CONTIGUOUS])
@pytest.mark.parametrize(("wave", "number"), [(32, 32), (64, 32), (64, 64)])
def test_every_lane_has_one_phase(order, wave, number):
    for dwords, phases in phases_of(order, wave, number, store=False).items():
        assert sorted(lane for lanes in phases for lane in lanes) == list(range(wave))
        assert {len(lanes) * dwords for lanes in phases} == {number}


def test_the_measured_phases_of_the_mi300x():
    found = [set(lanes) for lanes in phases_of(MEASURED, 64, 32, store=False)[4]]
    assert found[0] == {0, 1, 2, 3, 20, 21, 22, 23}
    assert {36, 37, 38, 39, 48, 49, 50, 51} in found
    assert {12, 13, 14, 15, 24, 25, 26, 27} in found


@pytest.mark.parametrize(
    ("mnemonic", "size", "clocks"),
    [
        ("ds_read_b32", 4, 2),
        ("ds_read_b64", 8, 2),
        ("ds_read_b128", 16, 4),
        ("ds_write_b64", 8, 4),
        ("ds_write_b128", 16, 8),
        ("ds_add_u64", 8, 4),
    ],
)
def test_64_banks_take_half_the_phases_of_wide_reads(mnemonic, size, clocks):
    """Once every arch had 32 banks."""
    assert banks(mnemonic, lambda lane: size * lane, arch="gfx950") == (clocks, 0, 1)


def test_with_64_banks_every_other_row_is_another_bank_of_wide_reads():
    assert banks("ds_read_b64", lambda lane: ROW * lane, arch="gfx950") == (32, 30, 16)
    assert banks("ds_read_b32", lambda lane: ROW * lane, arch="gfx950") == (64, 62, 32)
    assert banks("ds_write_b64", lambda lane: ROW * lane, arch="gfx950") == (64, 60, 16)


def test_the_measured_phases_of_the_mi350x():
    found = [set(lanes) for lanes in phases_of(MEASURED, 64, 64, store=False)[4]]
    assert found[0] == {0, 1, 2, 3, 12, 13, 14, 15, *range(20, 28)}
    assert {*range(36, 44), *range(48, 52), *range(60, 64)} in found


def test_the_port_of_gfx9_takes_four_clocks_and_four_a_dword():
    """Measured on an MI300X for 64 reads: 8, 12 and 20 clocks each, and 1.65 more per conflict."""
    found = [cost(f"ds_read_b{32 * n}", lambda lane, n=n: 4 * n * lane).port for n in (1, 2, 4)]
    assert found == [8, 12, 20]
    assert cost("ds_read_b32", lambda lane: ROW * lane).port == pytest.approx(8 + 1.65 * 62)
    assert cost("ds_read2_b32", lambda lane: 4 * lane, offsets=(0, 64)).port == 12


def test_the_port_of_gfx950_takes_half_of_that_for_each_dword_read():
    found = [
        cost(f"ds_read_b{32 * n}", lambda lane, n=n: 4 * n * lane, arch="gfx950").port for n in (1, 2, 4)
    ]
    assert found == [6, 8, 12]
    assert cost("ds_write_b128", lambda lane: 16 * lane, arch="gfx950").port == 20


def test_the_port_of_rdna_takes_two_clocks_a_phase():
    assert cost("ds_load_b128", lambda lane: 16 * lane, arch="gfx1100").port == 8
    assert cost("ds_load_b32", lambda lane: ROW * lane, arch="gfx1100").port == pytest.approx(2 + 1.2 * 31)


def test_archs_that_nobody_measured_are_modelled_under_two_orders():
    assert orders("gfx908") == (MEASURED, CONTIGUOUS)
    assert orders("gfx1030") == (MEASURED, CONTIGUOUS)


def test_a_record_gives_the_accesses_in_order():
    words = [1, 0b11, 0, 16, 32, *range(32), 0, 5, 1, 0, 0, *range(32, 64)]
    first, second = accesses(words, [(0x100, "a"), (0x108, "b")], 32)
    assert first == Access(0x108, 3, (16, 32), tuple(range(32)))
    assert (second.address, second.active, second.lanes[0]) == (0x100, 5 | 1 << 32, 32)


def test_what_has_no_width_is_refused():
    with pytest.raises(PerfError, match="the width of a memory instruction is not known"):
        cost("ds_strange", lambda lane: 0)


def test_a_charge_is_a_value():
    assert cost("ds_read_b32", lambda lane: 4 * lane) == Charge(banks=2, port=8, extra=0, ways=1)
