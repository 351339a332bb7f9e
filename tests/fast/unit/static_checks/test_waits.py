"""Small kernels with and without the required wait, for each rule."""

import random

import pytest

from tests.tools.made.assembly import kernel
from tests.tools.missing_waits import less_waits
from tests.tools.queues import ARRIVED, FENCE, NEEDED, ORDERED, UNUSED
from wheel_builder.base.errors import ArchError, DeviceCodeError
from wheel_builder.machine_code.static_checks import waits
from wheel_builder.machine_code.static_checks.waits import check_waits

GFX9, RDNA = ("gfx908", "gfx942"), ("gfx1030", "gfx1100")
ARCHS = (*GFX9, *RDNA)
LOAD = "global_load_dword v1, v[8:9], off"
NEXT_LOAD = "global_load_dword v2, v[8:9], off"
STORE = "global_store_dword v[8:9], v7, off"
SCALAR = "s_load_dwordx2 s[4:5], s[0:1], 0x0"
NEXT_SCALAR = "s_load_dwordx2 s[6:7], s[0:1], 0x8"
READ = "ds_read_b32 v1, v8"
NEXT_READ = "ds_read_b32 v2, v8"
WRITE = "ds_write_b32 v8, v9"
FLAT = "flat_load_dword v1, v[8:9]"
USE = "v_add_f32_e32 v3, v1, v1"


def texts(arch, *lines):
    return [finding.text for finding in check_waits(arch, kernel(*lines))]


# Archs, an instruction in flight, the sufficient wait, a weaker one, the use.
RULES = {
    "a load is read": (ARCHS, [LOAD], "vmcnt(0)", "vmcnt(1)", USE),
    "a load is overwritten": (ARCHS, [LOAD], "vmcnt(0)", "vmcnt(1)", "v_mov_b32_e32 v1, 0"),
    "a load is stored": (ARCHS, [LOAD], "vmcnt(0)", "vmcnt(1)", "global_store_dword v[8:9], v1, off"),
    "a load is an address": (ARCHS, [LOAD], "vmcnt(0)", "vmcnt(1)", "ds_read_b32 v4, v1"),
    "loads arrive in order": (ARCHS, [LOAD, NEXT_LOAD], "vmcnt(1)", "vmcnt(2)", USE),
    "a later load is overtaken by none": (ARCHS, [NEXT_LOAD, LOAD], "vmcnt(0)", "vmcnt(1)", USE),
    "gfx9 counts stores with loads": (GFX9, [LOAD, STORE], "vmcnt(1)", "vmcnt(2)", USE),
    "RDNA counts stores apart": (RDNA, [LOAD, STORE], "vmcnt(0)", "vmcnt(1)", USE),
    "atomics without result are stores": (
        RDNA, [LOAD, "global_atomic_add v[8:9], v7, off"], "vmcnt(0)", "vmcnt(1)", USE,
    ),
    "atomics with a result are loads": (
        ARCHS, ["global_atomic_add v1, v[8:9], v7, off glc", NEXT_LOAD], "vmcnt(1)", "vmcnt(2)", USE,
    ),
    "cache control does not count": (ARCHS, [LOAD, "buffer_gl0_inv"], "vmcnt(0)", "vmcnt(1)", USE),
    "LDS is read in order": (ARCHS, [READ, NEXT_READ], "lgkmcnt(1)", "lgkmcnt(2)", USE),
    "LDS writes count": (ARCHS, [READ, WRITE], "lgkmcnt(1)", "lgkmcnt(2)", USE),
    "lanes are exchanged through LDS": (
        ARCHS, ["ds_bpermute_b32 v1, v8, v9"], "lgkmcnt(0)", "lgkmcnt(1)", USE,
    ),
    "scalar loads do not help LDS on": (ARCHS, [READ, SCALAR], "lgkmcnt(0)", "lgkmcnt(1)", USE),
    "scalar loads come in any order": (
        ARCHS, [SCALAR, NEXT_SCALAR], "lgkmcnt(0)", "lgkmcnt(1)", "s_add_u32 s8, s4, s5",
    ),
    "scalar loads to one register come in any order": (
        ARCHS, [SCALAR], "lgkmcnt(0)", "lgkmcnt(1)", "s_load_dword s5, s[0:1], 0x8",
    ),
    "LDS does not help scalar loads on": (
        ARCHS, [SCALAR, READ], "lgkmcnt(0)", "lgkmcnt(1)", "s_add_u32 s8, s4, s5",
    ),
    "clocks are scalar loads": (ARCHS, ["s_memtime s[4:5]"], "lgkmcnt(0)", "lgkmcnt(1)", "s_mov_b32 s8, s4"),
    "a branch reads VCC": (
        ARCHS, ["s_load_dwordx2 vcc, s[0:1], 0x0"], "lgkmcnt(0)", "lgkmcnt(1)", "s_cbranch_vccz 0",
    ),
    "half of a dual-issue pair selects by VCC": (
        ("gfx1100",), ["s_load_dword vcc_lo, s[0:1], 0x0"], "lgkmcnt(0)", "lgkmcnt(1)",
        "v_dual_cndmask_b32 v3, v4, v5 :: v_dual_mov_b32 v6, 0",
    ),
    "another queue writes the register": (ARCHS, [LOAD], "vmcnt(0)", "vmcnt(1)", READ),
    "flat loads ask for vmcnt(0)": (ARCHS, [FLAT, "s_waitcnt lgkmcnt(0)"], "vmcnt(0)", "vmcnt(1)", USE),
    "flat loads ask for lgkmcnt(0)": (ARCHS, [FLAT, "s_waitcnt vmcnt(0)"], "lgkmcnt(0)", "lgkmcnt(1)", USE),
    "flat loads do not help others on": (
        ARCHS, [LOAD, "flat_load_dword v4, v[8:9]"], "vmcnt(0)", "vmcnt(1)", USE,
    ),
    "LDS is written before a barrier": (ARCHS, [WRITE], "lgkmcnt(0)", "lgkmcnt(1)", "s_barrier"),
    "LDS is read before a barrier": (ARCHS, [READ], "lgkmcnt(0)", "lgkmcnt(1)", "s_barrier"),
    "loads into LDS before a barrier": (
        ARCHS, ["buffer_load_dword v1, s[8:11], 0 offen lds"], "vmcnt(0)", "vmcnt(1)", "s_barrier",
    ),
    "loads into LDS before a barrier, while other places are read": (
        ARCHS, ["global_load_lds_dword v[8:9], off", READ, "s_waitcnt lgkmcnt(0)"], "vmcnt(0)", "vmcnt(1)",
        "s_barrier",
    ),
    "gfx9 loads of half a register write all of it": (
        GFX9, ["global_load_short_d16 v1, v[8:9], off"], "vmcnt(0)", "vmcnt(1)",
        "global_store_short_d16_hi v[8:9], v1, off",
    ),
    "half a register is read as a whole": (
        RDNA, ["global_load_short_d16_hi v1, v[8:9], off"], "vmcnt(0)", "vmcnt(1)", USE,
    ),
    "the high half is stored": (
        RDNA, ["global_load_short_d16_hi v1, v[8:9], off"], "vmcnt(0)", "vmcnt(1)",
        "global_store_short_d16_hi v[8:9], v1, off",
    ),
    "the low half is named": (
        RDNA, ["global_load_d16_b16 v1, v[8:9], off", NEXT_LOAD], "vmcnt(1)", "vmcnt(2)",
        "v_cvt_f32_f16_e32 v3, v1.l",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "begin", "enough", "less", "use"),
    [
        pytest.param(arch, *rest, id=f"{arch}: {name}")
        for name, (archs, *rest) in RULES.items()
        for arch in archs
    ],
)
def test_a_wait_that_is_enough_and_one_that_is_not(arch, begin, enough, less, use):
    assert texts(arch, *begin, f"s_waitcnt {enough}", use) == []
    assert len(texts(arch, *begin, f"s_waitcnt {less}", use)) == 1
    assert len(texts(arch, *begin, use)) == 1


# Separate counters: an instruction in flight, a sufficient wait, an insufficient one, the use.
LEAVES = "global_atomic_add_u32 v1, v[8:9], v7, off th:TH_ATOMIC_RETURN scope:SCOPE_DEV"
SIGNAL, COMES = "s_barrier_signal -1", "s_barrier_wait 0xffff"
APART = {
    "a load": ([LOAD], "s_wait_loadcnt 0x0", "s_wait_loadcnt 0x1", USE),
    "a load, LDS": ([LOAD], "s_wait_loadcnt 0x0", "s_wait_dscnt 0x0", USE),
    "a load of a register of an earlier one": (
        [LOAD], "s_wait_loadcnt 0x0", "s_wait_loadcnt 0x1", "global_load_dword v1, v[6:7], off",
    ),
    "a load, an earlier one": ([LOAD, NEXT_LOAD], "s_wait_loadcnt 0x1", "s_wait_loadcnt 0x2", USE),
    "a load, invalidated caches": (
        [LOAD, "global_inv scope:SCOPE_DEV"], "s_wait_loadcnt 0x1", "s_wait_loadcnt 0x2", USE,
    ),
    "a load, caches written back": (
        [LOAD, "global_wb scope:SCOPE_DEV"], "s_wait_loadcnt 0x0", "s_wait_loadcnt 0x1", USE,
    ),
    "a load, a store": ([LOAD, STORE], "s_wait_loadcnt 0x0", "s_wait_storecnt 0x0", USE),
    "an atomic's result": ([LEAVES, NEXT_LOAD], "s_wait_loadcnt 0x1", "s_wait_loadcnt 0x2", USE),
    "LDS": ([READ, NEXT_READ], "s_wait_dscnt 0x1", "s_wait_dscnt 0x2", USE),
    "LDS, scalars are apart": ([READ, SCALAR], "s_wait_dscnt 0x0", "s_wait_kmcnt 0x0", USE),
    "LDS, a scalar load does not count": (
        [READ, NEXT_READ, SCALAR], "s_wait_dscnt 0x1", "s_wait_dscnt 0x2", USE,
    ),
    "scalars, in any order": (
        [SCALAR, NEXT_SCALAR], "s_wait_kmcnt 0x0", "s_wait_kmcnt 0x1", "s_add_co_u32 s8, s4, s5",
    ),
    "both, the upper bits for loads": (
        [LOAD, NEXT_LOAD], "s_wait_loadcnt_dscnt 0x13f", "s_wait_loadcnt_dscnt 0x23f", USE,
    ),
    "both, the lower bits for LDS": (
        [READ, NEXT_READ], "s_wait_loadcnt_dscnt 0x3f01", "s_wait_loadcnt_dscnt 0x3f02", USE,
    ),
    "stores and LDS": ([READ], "s_wait_storecnt_dscnt 0x3f00", "s_wait_storecnt_dscnt 0x3f", USE),
    "everything": ([READ], "s_wait_idle", "s_wait_alu 0xfffe", USE),
    "a flat load in memory": ([FLAT, "s_wait_dscnt 0x0"], "s_wait_loadcnt 0x0", "s_wait_loadcnt 0x1", USE),
    "a flat load in LDS": ([FLAT, "s_wait_loadcnt 0x0"], "s_wait_dscnt 0x0", "s_wait_dscnt 0x1", USE),
    "LDS is written before a barrier is signalled": (
        [WRITE], "s_wait_dscnt 0x0", "s_wait_dscnt 0x1", SIGNAL,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("begin", "enough", "less", "use"), APART.values(), ids=APART)
def test_a_wait_for_a_counter_of_its_own(begin, enough, less, use):
    assert texts("gfx1201", *begin, enough, use) == []
    assert len(texts("gfx1201", *begin, less, use)) == 1
    assert len(texts("gfx1201", *begin, use)) == 1


def test_rdna4_reads_lds_in_order():
    assert texts("gfx1201", READ, "ds_read_b32 v1, v9") == []


def test_a_wait_of_other_isas_is_none():
    assert len(texts("gfx1201", LOAD, "s_waitcnt vmcnt(0)", USE)) == 1
    assert len(texts("gfx1100", LOAD, "s_wait_loadcnt 0x0", USE)) == 1


def test_between_the_halves_of_a_barrier_nothing_has_to_arrive():
    assert texts("gfx1201", SIGNAL, WRITE, COMES) == []


def test_a_barrier_that_is_signalled_by_a_loop_s_next_turn_without_a_wait():
    """clang 22 omits this wait in backward kernels of gfx1201: the tile stored last is still in flight."""
    loop = [SIGNAL, COMES, READ, "s_wait_dscnt 0x0", WRITE, "{}", "s_cbranch_scc1 65529"]
    assert texts("gfx1201", *(line.format("s_wait_dscnt 0x0") for line in loop)) == []
    (text,) = texts("gfx1201", *(line.format("s_nop 0") for line in loop))
    assert f"`{SIGNAL}` needs LDS of " in text
    assert "dscnt(0) must be waited for" in text


NO_WAIT = {
    "ordered loads to one register": (ARCHS, [LOAD, "global_load_dword v1, v[6:7], off"]),
    "ordered reads to one register": (ARCHS, [READ, "ds_read_b32 v1, v9"]),
    "LDS is read behind its writes": (ARCHS, [WRITE, READ]),
    "a store's data and address change": (ARCHS, [STORE, "v_mov_b32_e32 v7, 0", "v_mov_b32_e32 v8, 0"]),
    "an address changes": (ARCHS, [LOAD, "v_mov_b32_e32 v8, 0"]),
    "lanes exchanged before a barrier": (ARCHS, ["ds_bpermute_b32 v1, v8, v9", "s_barrier"]),
    "global memory before a barrier": (ARCHS, [LOAD, STORE, "s_barrier"]),
    "the end of the kernel": (ARCHS, [LOAD, STORE, NEXT_READ, WRITE, SCALAR]),
    "halves from two loads": (
        RDNA, ["global_load_d16_b16 v1, v[8:9], off", "global_load_d16_hi_b16 v1, v[8:9], off"],
    ),
    "the other half is used": (
        RDNA, ["global_load_d16_b16 v1, v[8:9], off", "v_cvt_f32_f16_e32 v3, v1.h",
               "global_store_d16_hi_b16 v[8:9], v1, off"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "lines"),
    [pytest.param(a, lines, id=f"{a}: {name}") for name, (archs, lines) in NO_WAIT.items() for a in archs],
)
def test_what_needs_no_wait(arch, lines):
    assert texts(arch, *lines) == []


def test_a_finding_says_what_is_missing():
    (finding,) = check_waits(
        "gfx942", kernel("global_load_dwordx2 v[1:2], v[8:9], off", LOAD, USE, NEXT_LOAD)
    )
    assert str(finding) == (
        "gfx942 fa_fwd_fp16_d64: 0x1608 `v_add_f32_e32 v3, v1, v1` needs v1 of 0x1604 "
        "`global_load_dword v1, v[8:9], off`: vmcnt(0) must be waited for on every path between them"
    )
    assert finding.fails


def test_registers_of_one_use_are_one_finding():
    (text,) = texts(
        "gfx942", "global_load_dwordx4 v[0:3], v[8:9], off", "v_pk_add_f32 v[0:1], v[2:3], v[4:5]"
    )
    assert "needs v0 and 3 more of" in text


def test_a_branch_that_skips_the_wait_is_found():
    assert texts("gfx942", LOAD, "s_cbranch_scc1 0", "s_waitcnt vmcnt(0)", USE) == []
    assert len(texts("gfx942", LOAD, "s_cbranch_scc1 1", "s_waitcnt vmcnt(0)", USE)) == 1


def test_where_paths_meet_the_fewer_operations_count():
    # Fallthrough: one more load after the first. Branch: no further load, so vmcnt(1) waits for nothing.
    lines = [LOAD, "s_cbranch_scc1 1", NEXT_LOAD, "s_waitcnt {}", USE]
    assert len(texts("gfx942", *(line.format("vmcnt(1)") for line in lines))) == 1
    assert texts("gfx942", *(line.format("vmcnt(0)") for line in lines)) == []


def test_a_load_for_the_next_turn_of_a_loop():
    # Each turn uses the previous turn's load, and issues its own loads afterwards.
    loop = [USE, LOAD, NEXT_LOAD, "s_waitcnt {}", "s_cbranch_scc1 65531"]
    enough = [line.format("vmcnt(1)") for line in loop]
    assert texts("gfx942", *enough) == []
    (text,) = texts("gfx942", *(line.format("vmcnt(2)") for line in loop))
    assert "vmcnt(1) must be waited for" in text


def test_a_loop_that_never_waits_comes_to_an_end():
    (text,) = texts("gfx942", "global_load_dword v1, v[8:9], off", NEXT_LOAD, "s_cbranch_scc1 65534", USE)
    assert "vmcnt(1)" in text


@pytest.mark.parametrize(
    "wait",
    [
        "s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)",
        "s_waitcnt vmcnt(0) & lgkmcnt(0)",
        "s_waitcnt_vmcnt null, 0x0",
    ],
)
def test_other_ways_to_write_a_wait(wait):
    assert texts("gfx1030", LOAD, wait, USE) == []


@pytest.mark.parametrize(
    "wait", ["s_waitcnt expcnt(0)", "s_waitcnt_vscnt null, 0x0", "s_waitcnt_depctr 0xfff", "s_nop 7"]
)
def test_waits_for_something_else_do_not_help(wait):
    assert len(texts("gfx1030", LOAD, wait, USE)) == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("s_waitcnt 0xc07f", "for what '0xc07f' waits is not known"),
        ("s_waitcnt_vmcnt s4, 0x0", "for what 's4 0x0' waits is not known"),
        ("s_wait_event 0x1", "for what '0x1' waits is not known"),
        ("v_movrels_b32 v1, v2", "what it reads and writes is not known"),
        ("s_set_gpr_idx_on s4, gpr_idx(SRC0)", "what it reads and writes is not known"),
        ("image_load v1, v2, s[8:15] dmask:0x1", "what it reads and writes is not known"),
        ("s_store_dword s4, s[0:1], 0x0", "what it reads and writes is not known"),
        ("ds_add_u32 v1, v2 gds", "what it reads and writes is not known"),
        ("global_wonder v1, v[2:3], off", "which counter it raises is not known"),
        ("s_memsomething s[0:1]", "which counter it raises is not known"),
    ],
)
def test_what_is_not_known_is_an_error_in_words(line, words):
    with pytest.raises(DeviceCodeError) as error:
        check_waits("gfx1030", kernel(line))
    assert f"unknown instruction `{line}`" in str(error.value)
    assert words in str(error.value)


def test_an_arch_without_rules_is_refused_in_words():
    with pytest.raises(ArchError, match="nothing is known of gfx900"):
        check_waits("gfx900", kernel())


def test_mutants_that_wait_less_are_counted_one_by_one():
    code = kernel(LOAD, WRITE, "s_waitcnt vmcnt(0) lgkmcnt(0)", "s_barrier", "s_waitcnt vmcnt(0)", USE)
    found = {
        (m.instruction[:6], m.counter, m.weaker): (m.found, m.verdict) for m in less_waits("gfx942", code)
    }
    # Each vmcnt(0) makes up for the other, so a weaker one is not found.
    assert found == {
        ("0x1608", "vmcnt", False): (False, UNUSED), ("0x1608", "vmcnt", True): (False, UNUSED),
        ("0x1608", "lgkmcnt", False): (True, NEEDED), ("0x1608", "lgkmcnt", True): (True, NEEDED),
        ("0x1610", "vmcnt", False): (False, ARRIVED), ("0x1610", "vmcnt", True): (False, ARRIVED),
    }  # fmt: skip


def test_a_wait_for_stores_at_a_barrier_is_a_verdict_of_its_own():
    mutants = less_waits("gfx942", kernel(STORE, "s_waitcnt vmcnt(0)", "s_barrier"))
    assert [(m.found, m.verdict) for m in mutants] == [(False, FENCE)] * 2


@pytest.mark.parametrize(
    ("arch", "spill", "wait"),
    [
        ("gfx906", "buffer_store_dword v1, off, s[64:67], 0 offset:40", "s_waitcnt vmcnt(0)"),
        ("gfx1100", "scratch_store_b32 off, v1, off", "s_waitcnt_vscnt null, 0x0"),
    ],
)
def test_no_barrier_orders_stores_of_spilled_registers(arch, spill, wait):
    """They go to a thread's own memory. gfx906's fa_fwd_wide_bf16_d512 has such a wait."""
    mutants = less_waits(arch, kernel(spill, wait, "s_barrier"))
    assert {(m.found, m.verdict) for m in mutants} == {(False, UNUSED)}


def test_a_wait_between_lds_reads_of_one_register_is_a_verdict_of_its_own():
    mutants = less_waits("gfx942", kernel(READ, "s_waitcnt lgkmcnt(0)", "ds_read_b32 v1, v9"))
    assert [(m.found, m.verdict) for m in mutants] == [(False, ORDERED)] * 2


HOLES = {
    "results of loads": ("gfx942", [LOAD, "s_waitcnt vmcnt(0)", USE], "vmem"),
    "LDS at a barrier": ("gfx942", [WRITE, "s_waitcnt lgkmcnt(0)", "s_barrier"], "lds"),
    "scalars": ("gfx942", [SCALAR, "s_waitcnt lgkmcnt(0)", "s_mov_b32 s8, s4"], "smem"),
    "loads of one register": ("gfx1201", [LOAD, "s_wait_loadcnt 0x0", LOAD], "vmem"),
    "a branch by VCC": (
        "gfx942", ["s_load_dwordx2 vcc, s[0:1], 0x0", "s_waitcnt lgkmcnt(0)", "s_cbranch_vccz 0"], "smem",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("arch", "lines", "kinds"), HOLES.values(), ids=HOLES)
def test_a_hole_of_the_check_is_seen_by_the_second_opinion(monkeypatch, arch, lines, kinds):
    """The check forgets what is in flight behind operations of some kinds."""
    assert [(m.found, m.verdict) for m in less_waits(arch, kernel(*lines))] == [(True, NEEDED)] * 2
    known = waits.flights
    monkeypatch.setattr(
        waits, "flights", lambda arch, operation: () if operation.kind in kinds else known(arch, operation)
    )
    assert [(m.found, m.verdict) for m in less_waits(arch, kernel(*lines))] == [(False, NEEDED)] * 2


POOL = [
    *("global_load_dword v1, v[8:9], off", "global_load_dword v2, v[8:9], off", STORE),
    *("ds_read_b32 v1, v8", "ds_read_b32 v2, v8", "s_load_dword s4, s[0:1], 0x0"),
    *("s_waitcnt vmcnt(0)", "s_waitcnt vmcnt(1)", "s_waitcnt lgkmcnt(0)", "s_waitcnt lgkmcnt(1)"),
    *("v_mov_b32_e32 v3, v1", "v_mov_b32_e32 v3, v2", "s_mov_b32 s5, s4"),
]


def walked(code, rng, steps=60):
    """The addresses of early uses on one random path, whose queues are simulated one by one."""
    queues = {"vmcnt": [], "lds": [], "scalar": []}
    found, number = set(), 0
    for _ in range(steps):
        one = code.instructions[number]
        text = one.text
        if one.mnemonic == "s_waitcnt":
            counter, count = text[10:].rstrip(")").split("(")
            for name in ["vmcnt"] if counter == "vmcnt" else ["lds", "scalar"]:
                keep = queues[name] if name == "scalar" and int(count) else queues[name][-int(count) or 99 :]
                queues[name] = keep
        own = {"global": "vmcnt", "ds": "lds", "s_load": "scalar"}.get(
            "s_load" if "s_load" in text else text.split("_")[0]
        )
        for name, queue in queues.items():
            ordered = own == name and name != "scalar"
            used = one.reads if ordered else one.reads | one.writes
            found |= {one.address} if not used.isdisjoint(queue) else set()
        if own:
            queues[own].append(next(iter(one.writes), ""))
        choices = [n for n, before in enumerate(code.predecessors) if number in before]
        if not choices:
            break
        number = rng.choice(choices)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_random_kernels_against_random_walks(seed):
    rng = random.Random(seed)
    lines = [rng.choice(POOL) for _ in range(14)]
    for at, target in ((rng.randrange(4, 9), rng.randrange(9)), (rng.randrange(9, 13), rng.randrange(13))):
        lines[at] = f"s_cbranch_scc1 {(target - at - 1) % 65536}"
    code = kernel(*lines)
    found = {int(text.split(" ")[0], 16) for text in texts("gfx942", *lines)}
    assert found == set().union(*(walked(code, rng) for _ in range(300)))
