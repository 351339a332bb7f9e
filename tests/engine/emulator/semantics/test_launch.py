"""Launches: the argument segment is as long as the runtime's. Unimplemented modes are refused."""

import struct

import pytest

from tests.engine.emulator.semantics import cases
from tests.engine.emulator.semantics.machine import ARCHS, LANES, expand, shares_accumulators
from wheel_builder.machine_code.emulator.machine import Launch, Options
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.tables.archs import arch_named

SEGMENT = 52  # bytes. A load of the last three dwords by s_load_dwordx4 reads 12 bytes more
KERNEL = """.amdgcn_target "amdgcn-amd-amdhsa--{arch}"
.amdhsa_code_object_version 5
.text
.globl last
.p2align 8
.type last,@function
last:
s_load_dwordx2 s[4:5], s[0:1], 0x0
{code}
s_endpgm
.size last, . - last
.section .rodata,"a"
.p2align 6
.amdhsa_kernel last
.amdhsa_float_denorm_mode_32 {denormals}
.amdhsa_user_sgpr_kernarg_segment_ptr 1
.amdhsa_kernarg_size {described}
.amdhsa_next_free_vgpr 8
.amdhsa_next_free_sgpr 16
{more}
.end_amdhsa_kernel
.text
.amdgpu_metadata
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: last
    .symbol: last.kd
    .kernarg_segment_size: {size}
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: {lanes}
    .sgpr_count: 16
    .vgpr_count: 8
    .max_flat_workgroup_size: {threads}
    .args:
      - .offset: 48
        .size: 4
        .value_kind: by_value
.end_amdgpu_metadata
"""
LOAD = """s_load_dwordx4 s[8:11], s[0:1], {offset}
s_waitcnt lgkmcnt(0)
v_lshlrev_b32 v0, 2, v0
v_mov_b32 v1, s8
global_store_dword v0, v1, s[4:5]"""
# Each thread stores its number, and then a copy of its neighbour's store in the other wave.
EXCHANGE = """s_waitcnt lgkmcnt(0)
v_lshlrev_b32 v1, 2, v0
v_xor_b32 v2, {bytes}, v1
global_store_dword v1, v0, s[4:5]
v_mov_b32 v4, {more}
s_mov_b32 m0, 0
{barrier}
global_load_dword v3, v2, s[4:5]
s_waitcnt vmcnt(0)
global_store_dword v1, v3, s[4:5] offset:{all}"""
GWS = "ds_gws_barrier v4 gds"
WITH_GWS = [arch for arch in ARCHS if GWS.split(maxsplit=1)[0] in cases.tested(arch)]
VCC = {64: "vcc", 32: "vcc_lo"}
MORE = {arch: ".amdhsa_accum_offset 8" for arch in ARCHS if shares_accumulators(arch)}
MORE |= {arch: ".amdhsa_wavefront_size32 1" for arch in ARCHS if LANES[arch] == 32}


def run(assembled, arch, code, waves=1, options=Options(), grid=(1, 1, 1), **changed):  # noqa: B008
    """Result and memory of one workgroup. The memory has two dwords for each of its threads."""
    threads = waves * LANES[arch]
    given = {"arch": arch, "code": code, "threads": threads, "denormals": 3, "described": SEGMENT, **changed}
    text = KERNEL.format(size=SEGMENT, more=MORE.get(arch, ""), lanes=LANES[arch], **given)
    machine, out = assembled(expand(text, arch), arch), Memory.output(8 * threads, "out")
    kernarg = struct.pack("<Q11I", out.address, *range(100, 111))
    assert len(kernarg) == SEGMENT
    launch = Launch(grid, (threads, 1, 1))
    return machine.run("last", launch, kernarg, (out,), options), out


@pytest.mark.parametrize("arch", ARCHS)
def test_a_load_may_reach_past_the_arguments_to_the_end_of_the_segment(arch, assembled):
    result, out = run(assembled, arch, LOAD.format(offset=48))
    assert not result.error
    assert [str(f) for f in result.findings] == []
    assert out.values("I")[: LANES[arch]] == (110,) * LANES[arch]


@pytest.mark.parametrize("arch", ARCHS)
def test_a_load_past_the_end_of_the_segment_is_out_of_bounds(arch, assembled):
    result, _ = run(assembled, arch, LOAD.format(offset=64))
    assert "global-out-of-bounds" in result.kinds()
    assert "of buffer 'kernarg' (64 bytes)" in result.findings[0].detail


@pytest.mark.parametrize("arch", ARCHS)
def test_a_descriptor_may_leave_the_size_of_the_arguments_open(arch, assembled):
    result, out = run(assembled, arch, LOAD.format(offset=48), described=0)
    assert not result.error
    assert out.values("I")[: LANES[arch]] == (110,) * LANES[arch]


@pytest.mark.parametrize("arch", ARCHS)
def test_a_label_is_a_place_in_its_function(arch, assembled):
    result, _ = run(assembled, arch, f"Lhere:\n{LOAD.format(offset=64)}")
    assert result.findings[0].at == "last+0x8"


@pytest.mark.parametrize("arch", ARCHS)
def test_a_kernel_that_flushes_denormals_somewhere_unknown_is_refused_before_it_runs(arch, assembled):
    code = LOAD.format(offset=48) + "\nv_mul_f32 v1, v1, v1\nv_floor_f32 v1, v1"
    result, _ = run(assembled, arch, code, denormals=0)
    assert result.executed == 0
    assert (
        "launch of 'last': float mode 192, which flushes denormals; 'v_floor_f32_e32 v1, v1' may"
        in result.error
    )
    assert "is implemented for round-to-nearest-even with denormals kept (240) only" in result.error


# Each thread stores 1.5, and memory adds 2 to it.
ADDED = """v_mov_b32 v1, 1.5
v_mov_b32 v2, 2.0
v_lshlrev_b32 v0, 2, v0
s_waitcnt lgkmcnt(0)
global_store_dword v0, v1, s[4:5]
global_atomic_add_f32 v0, v2, s[4:5]"""
WITH_SUMS = [arch for arch in ARCHS if "global_atomic_add_f32" in cases.tested(arch)]


@pytest.mark.parametrize("arch", WITH_SUMS)
def test_atomics_of_memory_ignore_the_float_mode(arch, assembled):
    assert "gfx942" in WITH_SUMS
    result, out = run(assembled, arch, ADDED, denormals=0)
    assert not result.error
    assert out.values("f")[: LANES[arch]] == (3.5,) * LANES[arch]


# The sum of a denormal and zero, in the launch's mode and in the mode after an instruction has changed it.
MODES = """v_mov_b32 v1, 5
v_add_f32 v2, 0, v1
s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), {first}
v_add_f32 v3, 0, v1
s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0
v_add_f32 v4, 0, v1
v_lshlrev_b32 v0, 2, v0
s_waitcnt lgkmcnt(0)
global_store_dword v0, v{shown}, s[4:5]"""


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("shown", "sum_"), [(2, 0), (3, 5), (4, 0)])
def test_a_kernel_that_flushes_denormals_may_keep_them_for_a_while(arch, shown, sum_, assembled):
    result, out = run(assembled, arch, MODES.format(first=3, shown=shown), denormals=0)
    assert not result.error
    assert out.values("I")[: LANES[arch]] == (sum_,) * LANES[arch]


@pytest.mark.parametrize("arch", ARCHS)
def test_a_kernel_that_keeps_denormals_may_not_change_to_flushing(arch, assembled):
    error = run(assembled, arch, MODES.format(first=0, shown=3))[0].error
    assert "float mode 192 is not implemented; only round-to-nearest-even with denormals kept" in error


@pytest.mark.parametrize("arch", ARCHS)
def test_a_kernel_of_integers_runs_in_any_float_mode(arch, assembled):
    result, out = run(assembled, arch, LOAD.format(offset=48), denormals=0)
    assert not result.error
    assert out.values("I")[: LANES[arch]] == (110,) * LANES[arch]


def exchange(assembled, arch, seed=1, more=1, barrier=GWS, checks=("race", "uninit")):
    lanes = LANES[arch]
    code = EXCHANGE.format(bytes=4 * lanes, all=8 * lanes, more=more, barrier=barrier)
    return run(assembled, arch, code, waves=2, options=Options(seed=seed, checks=checks))


@pytest.mark.parametrize("arch", WITH_GWS)
def test_waves_meet_at_a_resource_of_the_device(arch, assembled):
    threads = 2 * LANES[arch]
    for seed in range(4):
        result, out = exchange(assembled, arch, seed)
        assert not result.error
        assert [str(f) for f in result.findings] == []
        assert out.values("I") == (*range(threads), *(i ^ LANES[arch] for i in range(threads)))


@pytest.mark.parametrize("arch", WITH_GWS)
def test_without_that_barrier_it_is_a_race(arch, assembled):
    assert "global-race" in exchange(assembled, arch, barrier="")[0].kinds()


@pytest.mark.parametrize("arch", WITH_GWS)
def test_waves_that_cannot_come_are_an_error(arch, assembled):
    error = exchange(assembled, arch, more=2)[0].error
    assert "waits for 3 waves; workgroups run one after another here, and this one has 2" in error
    first_wave_passes = f"v_cmp_eq_u32 {VCC[LANES[arch]]}, 0, v0\ns_cbranch_vccnz Lpast\n{GWS}\nLpast:"
    error = exchange(assembled, arch, barrier=first_wave_passes)[0].error
    assert "waits for waves that do not come; those of other workgroups cannot" in error


@pytest.mark.parametrize("arch", WITH_GWS)
def test_how_many_waves_meet_may_not_be_undefined(arch, assembled):
    result, _ = exchange(assembled, arch, barrier="ds_gws_barrier v6 gds")
    assert "undefined-address" in result.kinds()


# The first wave waits at another instruction than the second.
APART = """v_cmp_eq_u32 {vcc}, 0, v0
s_cbranch_vccnz Lfirst
{barrier}
s_branch Ltogether
Lfirst:
{barrier}
Ltogether:"""


@pytest.mark.parametrize("arch", ARCHS)
def test_waves_may_wait_at_different_barriers(arch, assembled):
    threads = 2 * LANES[arch]
    barrier = SIGNAL + COMES if arch in HALVES else "s_barrier"
    apart = APART.format(vcc=VCC[LANES[arch]], barrier=barrier)
    for seed in range(4):
        result, out = exchange(assembled, arch, seed, barrier=apart, checks=("race", "uninit", "barrier"))
        assert not result.error
        assert [str(f) for f in result.findings] == []
        assert out.values("I") == (*range(threads), *(i ^ LANES[arch] for i in range(threads)))


# A barrier in two halves, and the instructions allowed between them.
HALVES = [arch for arch in ARCHS if "s_barrier_signal" in cases.tested(arch)]
SIGNAL, COMES = "s_barrier_signal -1\n", "s_barrier_wait -1"


@pytest.mark.parametrize("arch", HALVES)
def test_both_halves_of_a_barrier_order_what_was_before(arch, assembled):
    threads = 2 * LANES[arch]
    for seed in range(4):
        result, out = exchange(assembled, arch, seed, barrier=SIGNAL + COMES)
        assert not result.error
        assert [str(f) for f in result.findings] == []
        assert out.values("I") == (*range(threads), *(i ^ LANES[arch] for i in range(threads)))


@pytest.mark.parametrize("arch", HALVES)
def test_a_store_behind_the_signal_is_a_race(arch, assembled):
    late = f"{SIGNAL}global_store_dword v1, v0, s[4:5]\n{COMES}"
    assert "global-race" in exchange(assembled, arch, barrier=late)[0].kinds()


@pytest.mark.parametrize("arch", HALVES)
@pytest.mark.parametrize(
    ("barrier", "words"),
    [
        (COMES, "waits at a barrier that it has not signalled, for ever"),
        (SIGNAL + SIGNAL + COMES, "signals the barrier again without having waited at it"),
        ("s_barrier_signal -2\n" + COMES, "mnemonic 's_barrier_signal' is not implemented"),
    ],
)
def test_halves_that_do_not_belong_together_are_an_error(arch, barrier, words, assembled):
    assert words in exchange(assembled, arch, barrier=barrier)[0].error


# Archs with the workgroup's number in trap registers. The kernel stores the number at itself.
IN_TTMPS = [arch for arch in ARCHS if arch_named(arch).isa.workgroup_ids_in_ttmps]
NUMBER = """s_and_b32 s8, ttmp7, 0xffff
s_lshr_b32 s9, ttmp7, 16
s_mul_i32 s9, s9, 3
s_add_u32 s9, s9, s8
s_lshl_b32 s9, s9, 1
s_add_u32 s9, s9, ttmp9
v_lshlrev_b32 v1, 2, s9
v_mov_b32 v2, s9
s_waitcnt lgkmcnt(0)
global_store_dword v1, v2, s[4:5]"""


@pytest.mark.parametrize("arch", IN_TTMPS)
def test_a_workgroup_finds_its_number_in_trap_registers(arch, assembled):
    options = Options(checks=("race", "uninit"))
    result, out = run(assembled, arch, NUMBER, grid=(2, 3, 4), options=options)
    assert not result.error
    assert [str(f) for f in result.findings] == []
    assert out.values("I")[:24] == tuple(range(24))


@pytest.mark.parametrize("arch", IN_TTMPS)
def test_a_grid_whose_numbers_do_not_fit_there_is_refused(arch, assembled):
    error = run(assembled, arch, NUMBER, grid=(1, 65536, 1))[0].error
    assert "grid of 1 x 65536 x 1 workgroups (y and z have 16 bits each on this arch)" in error
