"""RDNA 1: each rule with the instruction that keeps it, and without."""

import pytest

from tests.tools.made.assembly import kernel
from wheel_builder.machine_code.static_checks.hazards import check_hazards

ARCHS = ("gfx1010", "gfx1012")  # the first RDNA 1, without dot products, has the same rules
LOAD = "global_load_dword v1, v2, s[4:5]"
STORE = "buffer_store_dword v1, v2, s[8:11], 0 offen"
LDS = "ds_write_b32 v1, v2"
SCALAR_LOAD = "s_load_dword s8, s[4:5], 0x0"
VALU = "v_mov_b32_e32 v7, 0"
READS_DONE = ("s_waitcnt_depctr depctr_vm_vsrc(0)", "s_waitcnt_depctr 0xffe3")
STORES_DONE = "s_waitcnt_vscnt null, 0x0"
BRANCH = "s_cbranch_scc0 0"
LOADS_BACK = "s_mov_b32 null, 0"


def texts(*lines, archs=ARCHS):
    """The findings, equal on all of ``archs``."""
    first, *others = ([each.text for each in check_hazards(arch, kernel(*lines))] for arch in archs)
    assert others == [first] * len(others)
    return first


@pytest.mark.parametrize(
    ("memory", "write", "register"),
    [
        (LOAD, "s_mov_b32 s4, 0", "s4"),
        (LOAD, "s_load_dword s5, s[12:13], 0x0", "s5"),
        (LOAD, "s_mov_b32 exec_lo, s20", "exec"),
        (LOAD, "s_and_saveexec_b32 s20, s21", "exec"),
        (STORE, "s_add_u32 s11, s12, s13", "s11"),
        (LDS, "s_or_b32 exec_lo, exec_lo, s20", "exec"),
        ("global_load_lds_dword v[2:3], off", "s_mov_b32 m0, s4", "m0"),
    ],
)
def test_the_scalar_unit_overwrites_what_memory_operations_read(memory, write, register):
    (text,) = texts(memory, write)
    assert (
        f"`{write}` writes {register}, which an earlier LDS or vector memory operation may still read" in text
    )
    assert "needs s_waitcnt_depctr vm_vsrc(0) between them" in text
    for wait in (*READS_DONE, VALU):
        assert texts(memory, wait, write) == []
    for other in ("s_nop 7", "s_mov_b32 s30, 0", "s_waitcnt_depctr 0xffff"):
        assert len(texts(memory, other, write)) == 1
    assert texts(memory, write, archs=["gfx1030"]) == []


@pytest.mark.parametrize(
    ("memory", "done", "others"),
    [
        (LOAD, "s_waitcnt vmcnt(0)", ("s_waitcnt lgkmcnt(0)", "s_waitcnt vmcnt(1)", STORES_DONE)),
        (STORE, STORES_DONE, ("s_waitcnt vmcnt(0)", "s_waitcnt_vscnt null, 0x1")),
        (LDS, "s_waitcnt lgkmcnt(0)", ("s_waitcnt vmcnt(0)", STORES_DONE)),
    ],
)
def test_a_finished_operation_has_read(memory, done, others):
    write = "s_and_saveexec_b32 s20, s21"
    assert texts(memory, done, write) == []
    assert [len(texts(memory, other, write)) for other in others] == [1] * len(others)


@pytest.mark.parametrize(
    ("first", "second", "words"), [(LDS, LOAD, "an LDS operation"), (STORE, LDS, "a vector memory operation")]
)
def test_lds_and_vector_memory_on_two_sides_of_a_branch(first, second, words):
    (text,) = texts(first, BRANCH, second)
    assert f"`{second}` follows {words} behind a branch: needs s_waitcnt_vscnt null, 0 between them" in text
    assert texts(first, STORES_DONE, BRANCH, second) == []
    assert texts(first, BRANCH, STORES_DONE, second) == []
    assert len(texts(first, BRANCH, "s_waitcnt vmcnt(0)", second)) == 1
    assert len(texts(first, BRANCH, "s_waitcnt_vscnt null, 0x1", second)) == 1
    assert texts(first, second) == [], "no branch"
    assert texts(first, BRANCH, first, second) == [], "no branch behind the last one"
    assert texts(first, BRANCH, second, archs=["gfx1030"]) == []


def test_around_a_loop():
    """The last LDS operation of one round, and the first load of the next."""
    (text,) = texts(LOAD, LDS, "s_cbranch_scc0 65533")
    assert f"`{LOAD}` follows an LDS operation behind a branch" in text
    assert texts(LOAD, LDS, STORES_DONE, "s_cbranch_scc0 65532") == []


@pytest.mark.parametrize(
    ("write", "register"),
    [("v_readfirstlane_b32 s4, v1", "s4"), ("v_cmp_lt_f32_e64 s5, v1, v2", "s5")],
)
def test_the_vector_unit_overwrites_the_address_of_a_scalar_load(write, register):
    (text,) = texts(SCALAR_LOAD, write)
    assert f"`{write}` writes {register}, which an earlier scalar load may still read" in text
    assert "needs s_mov_b32 null, 0 between them" in text
    for wait in (LOADS_BACK, "s_waitcnt lgkmcnt(0)"):
        assert texts(SCALAR_LOAD, wait, write) == []
    for other in ("s_nop 7", VALU, "s_waitcnt vmcnt(0)", STORES_DONE, "s_waitcnt lgkmcnt(1)"):
        assert len(texts(SCALAR_LOAD, other, write)) == 1, other
    assert texts(SCALAR_LOAD, write, archs=["gfx1030"]) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("v_cmpx_lt_f32_e32 v1, v2", "is never right on this arch: it may overwrite EXEC"),
        ("s_inst_prefetch 0x3", "is never right on this arch: instruction prefetch can stop the GPU"),
        ("flat_load_dword v1, v[2:3] offset:4", "is never right on this arch: the offset of a flat access"),
    ],
)
def test_what_this_arch_gets_wrong(line, words):
    (text,) = texts(line)
    assert words in text
    assert texts(line, archs=["gfx1030"]) == []


def test_a_jump_over_0x3f_dwords():
    """LLVM adds an s_nop."""
    (text,) = texts("s_branch 63", *["s_nop 0"] * 64)
    assert "jumps over 0x3f dwords, which goes astray on this arch" in text
    assert texts("s_branch 62", *["s_nop 0"] * 64) == texts("s_branch 64", *["s_nop 0"] * 64) == []
    assert texts("s_branch 63", *["s_nop 0"] * 64, archs=["gfx1030"]) == []
