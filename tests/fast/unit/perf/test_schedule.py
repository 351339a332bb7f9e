"""The schedule, on programs small enough to play by hand."""

import pytest

from tests.tools.made.assembly import kernel
from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.model.lds import Charge
from wheel_builder.extras.perf.model.schedule import play
from wheel_builder.extras.perf.model.steps import charged, steps

MFMA = "v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], v[0:15]"
WMMA = "v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]"
ADD = "v_add_f32_e32 v{0}, v{1}, v{1}"


def path(arch, *lines):
    """The steps of a wave that executes each line once, and ends."""
    return list(steps(arch, kernel(*lines).instructions).values())


def clocks(arch, *waves, resident=1, rounds=1):
    return play(arch, [path(arch, *lines) for lines in waves], resident, rounds).clocks


def add(to, of):
    return ADD.format(to, of)


def test_independent_instructions_follow_each_other_slot_by_slot():
    assert clocks("gfx942", [add(0, 1), add(2, 3)]) == 8
    assert clocks("gfx1100", [add(0, 1), add(2, 3)]) == 2


def test_a_dependent_instruction_waits_for_its_register():
    assert clocks("gfx942", [add(0, 1), add(2, 0)]) == 8  # a slot is the latency
    assert clocks("gfx1100", [add(0, 1), add(2, 0)]) == 6  # 5, and one for itself


def test_only_what_adds_to_its_register_waits_for_it():
    assert clocks("gfx1100", [add(0, 1), add(0, 1)]) == 2
    assert clocks("gfx1100", ["v_fmac_f32_e32 v0, v1, v2"] * 2) == 6
    assert clocks("gfx1030", ["v_dot2c_f32_f16_e32 v0, v1, v2"] * 2) == 6


def test_transcendentals_hold_the_valu_for_a_quarter_rate():
    assert clocks("gfx942", ["v_exp_f32_e32 v0, v1", add(2, 3)]) == 20
    assert clocks("gfx1100", ["v_exp_f32_e32 v0, v1", add(2, 3)]) == 5
    assert clocks("gfx1100", ["v_exp_f32_e32 v0, v1", add(2, 0)]) == 11


def test_matrix_instructions_chain_their_sum_without_a_gap():
    found = play("gfx942", [path("gfx942", MFMA, MFMA, MFMA)], 1, 1)
    assert found.clocks == 96
    assert found.matrix == 96
    assert found.matrix_busy == 0.25  # one of four SIMDs


def test_other_readers_wait_until_the_matrix_result_is_out():
    assert clocks("gfx942", [MFMA, add(20, 0)]) == 52  # 32, 16 more, and one for itself
    assert clocks("gfx1100", [WMMA, add(24, 0)]) == 38


def test_a_sum_that_the_valu_scaled_is_waited_for():
    assert clocks("gfx1100", [add(0, 24), WMMA]) == 37  # issued at 5


def test_on_gfx9_another_wave_uses_the_valu_beside_a_matrix_instruction():
    idle = []
    waves = [[MFMA], idle, idle, idle, [add(20, 21)] * 9]  # the first and the last share a SIMD
    assert clocks("gfx942", *waves) == 40  # from 4 on


EXP = "v_exp_f32_e32 v20, v21"


def beside(arch, matrix, *lines, exclusive):
    """Clocks of two waves on one SIMD. The first one multiplies."""
    waves = [[matrix], [], [], [], [*lines]]
    paths = [path(arch, *lines) for lines in waves]
    return play(arch, paths, 1, 1, exclusive=exclusive).clocks


@pytest.mark.parametrize(
    ("line", "alone"),
    [
        (EXP, 32 + 16),
        ("v_rcp_f32_e32 v20, v21", 32 + 16),
        ("v_pk_mul_f32 v[20:21], v[22:23], v[24:25]", 32 + 4),
        ("v_pk_fma_f32 v[20:21], v[22:23], v[24:25], v[26:27]", 32 + 4),
        ("v_dot2c_f32_f16_e32 v20, v21, v22", 32 + 4),
        (add(20, 21), 32),
        ("v_cvt_pkrtz_f16_f32 v20, v21, v22", 32),
        ("v_perm_b32 v20, v21, v22, v23", 32),
    ],
)
def test_what_is_exclusive_waits_for_the_matrix_unit(line, alone):
    assert beside("gfx942", MFMA, line, exclusive=False) == 32
    assert beside("gfx942", MFMA, line, exclusive=True) == alone


def test_gfx950_converts_pairs_exclusively():
    longer = "v_mfma_f32_32x32x16_f16 v[0:15], v[16:19], v[30:33], v[0:15]"
    convert = "v_cvt_pk_f16_f32 v20, v21, v22"
    assert beside("gfx950", longer, convert, exclusive=True) == 36
    assert beside("gfx950", longer, EXP, exclusive=True) == 40  # transcendentals at twice the rate


@pytest.mark.parametrize("arch", ["gfx908", "gfx90a"])
def test_no_rule_of_older_archs_keeps_transcendentals_from_running_beside_products(arch):
    product = MFMA.replace("x8_f16", "x8f16").replace("v[0:15]", "a[0:15]")
    assert beside(arch, product, EXP, exclusive=True) == beside(arch, product, EXP, exclusive=False)


def test_on_gfx1100_it_has_to_wait():
    idle = []
    assert clocks("gfx1100", [WMMA], idle, idle, idle, [add(24, 25)] * 3) == 35  # at 32, 33, 34


def test_matrix_instructions_of_two_waves_take_turns():
    idle = []
    assert clocks("gfx942", [MFMA], idle, idle, idle, [MFMA]) == 64


def test_lds_moves_128_bytes_a_clock_and_answers_later():
    read = "ds_read_b128 v[0:3], v4"
    assert clocks("gfx942", [read, "s_waitcnt lgkmcnt(0)"]) == 76  # 8 + 64, and the wait itself
    assert clocks("gfx942", [read, read, "s_waitcnt lgkmcnt(0)"]) == 84
    assert clocks("gfx942", [read, read, "s_waitcnt lgkmcnt(1)"]) == 76
    assert clocks("gfx1100", ["ds_load_b128 v[0:3], v4", "s_waitcnt lgkmcnt(0)"]) == 52  # 4 + 47


def test_waves_share_the_lds():
    wave = ["ds_read_b128 v[0:3], v4", "s_waitcnt lgkmcnt(0)"]
    assert clocks("gfx942", wave, wave) == 84


def test_a_load_past_the_registers_holds_the_banks_too():
    read = ["ds_read_b128 v[0:3], v4", "s_waitcnt lgkmcnt(0)"]
    assert clocks("gfx950", read) == 80  # 4 + 69, and the wait itself, in slots
    assert clocks("gfx950", ["global_load_dwordx4 v[8:11], v[4:5], off", *read]) == 84
    assert clocks("gfx950", ["global_load_lds_dwordx4 v[4:5], off", *read]) == 88  # banks are busy until 8
    assert clocks("gfx950", ["buffer_load_dwordx4 v4, s[4:7], 0 offen lds", *read]) == 88
    assert clocks("gfx950", ["buffer_load_dwordx4 v[8:11], v4, s[4:7], 0 offen", *read]) == 84


def charged_path(arch, count, charge, *, port):
    """A wave with ``count`` LDS reads at this charge, and a wait."""
    name = "ds_read_b32" if arch == "gfx942" else "ds_load_b32"
    read, wait, end = path(arch, f"{name} v0, v4", "s_waitcnt lgkmcnt(0)")
    return [*[charged(read, charge, port=port)] * count, wait, end]


def test_conflicts_hold_the_banks_of_a_compute_unit():
    conflict = Charge(banks=64, port=8, extra=62, ways=32)
    wave = charged_path("gfx942", 2, conflict, port=False)
    assert play("gfx942", [wave], 1, 1).clocks == 2 * 64 + 64 + 4
    assert play("gfx942", [wave] * 2, 1, 1).clocks == 4 * 64 + 64 + 4
    wave = charged_path("gfx1100", 2, conflict, port=False)
    assert play("gfx1100", [wave] * 2, 1, 1).clocks == 4 * 64 + 47 + 1  # both on the first compute unit
    assert play("gfx1100", [wave] * 4, 1, 1).clocks == 4 * 64 + 47 + 1


def test_the_way_to_the_lds_is_shared_by_a_pair_of_simds_on_gfx9_only():
    wide = Charge(banks=2, port=19.2, extra=0, ways=1)
    wave, idle = charged_path("gfx942", 1, wide, port=True), path("gfx942")
    assert play("gfx942", [wave], 1, 1).clocks == 20 + 64 + 4
    assert play("gfx942", [wave] * 2, 1, 1).clocks == 40 + 64 + 4
    assert play("gfx942", [wave, idle, wave], 1, 1).clocks == 20 + 64 + 4
    wave = charged_path("gfx1100", 1, wide, port=True)
    assert play("gfx1100", [wave] * 2, 1, 1).clocks == 20 + 47 + 1


def test_what_nobody_waits_for_holds_the_lds_until_the_end():
    (store,) = path("gfx942", "ds_write_b32 v0, v4")[:1]
    wave = [charged(store, Charge(banks=64, port=8, extra=62, ways=32), port=False), *path("gfx942")]
    assert play("gfx942", [wave], 1, 1).clocks == 64


def test_a_counter_cannot_count_beyond_its_width():
    reads = ["ds_read_b32 v0, v4"] * 16
    assert (
        clocks("gfx942", reads) == 72
    )  # 15 at most: the last waits for the first, 2 + 64, and a slot begins


def test_memory_and_stores_have_counters_of_their_own_on_rdna():
    load, store = "global_load_b128 v[0:3], v4, s[0:1]", "global_store_b32 v4, v5, s[0:1]"
    assert clocks("gfx1100", [load, "s_waitcnt vmcnt(0)"]) == 329  # 8 + 320
    assert clocks("gfx1100", [store, "s_waitcnt vmcnt(0)"]) == 2
    assert clocks("gfx1100", [store, "s_waitcnt_vscnt null, 0x0"]) == 323  # 2 + 320
    add = "global_atomic_add_f32 v4, v5, s[0:1]"
    assert clocks("gfx1100", [add, "s_waitcnt vmcnt(0)"]) == 2
    assert clocks("gfx1100", [add, "s_waitcnt_vscnt null, 0x0"]) == 323
    assert clocks("gfx1100", ["global_atomic_add_f32 v6, v4, v5, s[0:1] glc", "s_waitcnt vmcnt(0)"]) == 323
    assert clocks("gfx942", [add, "s_waitcnt vmcnt(0)"]) == 808
    assert clocks("gfx908", ["global_store_dword v4, v5, s[0:1]", "s_waitcnt vmcnt(0)"]) == 328
    assert clocks("gfx942", ["global_store_dword v4, v5, s[0:1]", "s_waitcnt vmcnt(0)"]) == 808


def test_no_ops_take_slots():
    assert clocks("gfx942", ["s_nop 9"]) == 40
    assert clocks("gfx1100", ["s_nop 9"]) == 10


def test_a_barrier_waits_for_the_last_wave():
    assert clocks("gfx942", ["s_barrier"], ["s_nop 9", "s_barrier"]) == 48
    assert clocks("gfx942", ["s_barrier", add(0, 1)], ["s_nop 9"]) == 44  # barriers ignore an ended wave


def test_what_is_resident_hides_what_one_waits_for():
    wave = ["ds_read_b32 v0, v4", "s_waitcnt lgkmcnt(0)"]
    assert clocks("gfx942", wave, resident=4) == 76  # 8 instead of 2 on the LDS path
    assert clocks("gfx942", wave) == 72


def test_workgroups_follow_each_other_in_their_place():
    one = play("gfx942", [path("gfx942", MFMA, MFMA)], 2, 1)
    two = play("gfx942", [path("gfx942", MFMA, MFMA)], 2, 2)
    assert (one.workgroups, one.clocks) == (2, 64)
    assert (two.workgroups, two.clocks) == (4, 128)
    assert (two.clocks_in_place, two.clocks_per_workgroup) == (64, 32)


def test_a_workgroup_processor_is_two_compute_units():
    found = play("gfx1100", [path("gfx1100", add(0, 1))], 4, 1)
    assert (found.clocks, found.cus, found.simds, found.waves_per_simd) == (1, 2, 4, 1.0)
    assert found.clocks_per_workgroup == 0.5


def test_dot2_is_counted_apart():
    found = play("gfx1030", [path("gfx1030", "v_dot2c_f32_f16_e32 v0, v1, v2", add(3, 4))], 1, 1)
    assert found.dot2_busy == 1 / (4 * 2)


def test_a_matrix_instruction_waits_for_the_valu_of_its_simd():
    """Five waves on four SIMDs: the last shares one with the first."""
    others = [["s_nop 0"]] * 3
    assert clocks("gfx942", ["v_exp_f32_e32 v0, v1"], *others, [MFMA]) == 48
    assert clocks("gfx1100", ["v_exp_f32_e32 v0, v1"], *others, [WMMA]) == 36


def test_one_wave_issues_while_another_waits():
    """The first and the fifth share a SIMD: one is in the other's gap of five clocks."""
    waves = [["s_nop 0"]] * 3
    dependent = [add(0, 1), add(2, 0)]
    assert clocks("gfx1100", dependent, *waves, dependent) == 7


def test_the_highest_priority_goes_first_then_the_oldest():
    """The first and the fifth wave share a SIMD. Both need its VALU again and again."""
    others = [["s_nop 0"]] * 3
    slow, ready = ["v_exp_f32_e32 v0, v1"] * 4, "s_nop 0"
    # All 16-clock instructions of the first are issued before the fifth gets a turn.
    waits = [ready, add(2, 3), "s_nop 9"]
    assert clocks("gfx942", slow, *others, waits) == 64 + 4 + 40
    first = ["s_setprio 3", add(2, 3), "s_nop 9"]
    assert clocks("gfx942", slow, *others, first) == 16 + 4 + 48
    # A priority holds until another is set.
    assert clocks("gfx942", slow, *others, ["s_setprio 3", "s_setprio 0", *waits[1:]]) == 64 + 4 + 40


def test_workgroups_of_a_launch_begin_in_turn():
    """Of two waves one multiplies. In another workgroup it is the other one, on another SIMD."""
    work, idle = path("gfx942", MFMA, MFMA), path("gfx942", "s_nop 0")
    paths, turned = [work, idle, idle, idle], [idle, work, idle, idle]
    assert play("gfx942", paths, 2, 1).clocks == 128
    found = play("gfx942", paths, 2, 1, others=[turned])
    assert (found.clocks, found.matrix, found.workgroups) == (64, 128, 2)


def test_a_sum_from_other_registers_is_waited_for():
    other = MFMA.replace("v[0:15]", "v[32:47]")
    from_other = "v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], v[32:47]"
    assert clocks("gfx942", [other, from_other]) == 80  # 32, 16 more, and one for itself


def test_scalar_loads_have_a_latency():
    lines = ["s_load_dwordx2 s[0:1], s[2:3], 0x0", "s_waitcnt lgkmcnt(0)", add(0, 1)]
    assert clocks("gfx942", lines) == 208  # 200, the wait's slot, and the last
    assert clocks("gfx1100", lines) == 202


def test_a_branch_keeps_its_wave_from_going_on():
    assert clocks("gfx942", ["s_branch 0", add(0, 1)]) == 20
    assert clocks("gfx1100", ["s_branch 0", add(0, 1)]) == 13


def test_the_same_program_takes_the_same_clocks_again():
    waves = [[MFMA, add(20, 0), "ds_read_b128 v[24:27], v4", "s_waitcnt lgkmcnt(0)", "s_barrier"]] * 6
    assert clocks("gfx942", *waves, resident=3, rounds=2) == clocks("gfx942", *waves, resident=3, rounds=2)


def test_a_wait_that_cannot_be_read_is_refused():
    with pytest.raises(PerfError, match="a wait is not written as") as refusal:
        path("gfx942", "s_waitcnt 0x3f70")
    assert "s_waitcnt 0x3f70" in str(refusal.value)


# RDNA 4: operands half as large, counters apart.
WMMA_SPLIT = "v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[16:19], v[0:7]"


def test_nothing_runs_beside_a_matrix_instruction_of_16_clocks():
    found = play("gfx1201", [path("gfx1201", WMMA_SPLIT, WMMA_SPLIT)], 1, 1)
    assert (found.clocks, found.matrix) == (32, 32)
    assert clocks("gfx1201", [WMMA_SPLIT, add(20, 21)]) == 17
    assert clocks("gfx1201", [WMMA_SPLIT, add(20, 0)]) == 22  # 16, 5 more, and one for itself


def test_each_counter_is_waited_for_by_itself():
    scalar, read = "s_load_b64 s[4:5], s[0:1], 0x0", "ds_load_b128 v[0:3], v4"
    load, store = "global_load_b32 v5, v[6:7], off", "global_store_b32 v[6:7], v5, off"
    each = {"kmcnt": scalar, "dscnt": read, "loadcnt": load, "storecnt": store}
    alone = {name: clocks("gfx1201", [line, f"s_wait_{name} 0x0"]) for name, line in each.items()}
    assert alone["kmcnt"] == 201  # 200, and the wait
    assert alone["dscnt"] == 52  # 4 + 47
    for name, line in each.items():
        others = [clocks("gfx1201", [line, f"s_wait_{other} 0x0"]) for other in each if other != name]
        assert max(others) < alone[name]


def test_two_counters_in_one_wait():
    lines = ["global_load_b32 v5, v[6:7], off", "ds_load_b128 v[0:3], v4", "{}"]
    both, first, second = (
        [line.format(f"s_wait_loadcnt_dscnt {number:#x}") for line in lines] for number in (0, 0x3F, 0x3F00)
    )
    assert path("gfx1201", *both)[2].waits == ((0, 0), (1, 0))
    assert path("gfx1201", *first)[2].waits == ((0, 0), (1, 63))
    assert path("gfx1201", *second)[2].waits == ((0, 63), (1, 0))


def test_scalar_loads_have_a_counter_of_31():
    loads = ["s_load_b32 s4, s[0:1], 0x0"] * 32
    assert clocks("gfx1201", [*loads, "s_nop 0"]) > clocks("gfx1201", [*loads[:31], "s_nop 0"]) + 100


def test_a_wait_for_scalar_registers_and_a_signal_take_a_slot():
    assert clocks("gfx1201", ["s_wait_alu depctr_sa_sdst(0)", add(0, 1)]) == 2
    assert clocks("gfx1201", ["s_barrier_signal -1", "s_barrier_wait 0xffff"]) == 3
    assert (
        clocks(
            "gfx1201",
            ["s_nop 9", "s_barrier_signal -1", "s_barrier_wait 0xffff"],
            ["s_barrier_signal -1", "s_barrier_wait 0xffff", add(0, 1)],
        )
        == 14
    )


def test_a_wait_that_is_not_known_is_refused():
    with pytest.raises(PerfError):
        path("gfx1201", "s_wait_event 0x1")
