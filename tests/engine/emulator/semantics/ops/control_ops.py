"""Control flow: s40 names the path taken. Pure pipeline control changes nothing."""

from tests.engine.emulator.semantics.snippets import Code

SKIP = "s_mov_b32 s40, 0\n{set}\n{{x}} L{n}\ns_mov_b32 s40, 1\nL{n}:"


def counted():
    n = 0
    while True:
        n += 1
        yield n


NUMBER = counted()


def branch(names, setup, taken, scalars=("s16", "s17")):
    """``taken(wave)``: whether the instruction after the branch is skipped."""
    text = SKIP.format(set=setup, n=next(NUMBER))
    return Code(
        names,
        text,
        lambda w: {"s40": not taken(w)},
        (),
        scalars,
        values=lambda rng, r: rng.getrandbits(32) * rng.getrandbits(1),
    )


def vcc_of(wave):
    return wave["s16"] | wave["s17"] << 32 if wave.lanes == 64 else wave["s16"]


SET_VCC = "s_mov_b32 vcc_lo, s16\ns_mov_b32 vcc_hi, s17"
LOOP = """s_mov_b32 s40, 0
s_mov_b32 s41, 20
Lback:
s_add_u32 s40, s40, s41
s_sub_u32 s41, s41, 1
s_cmp_lg_u32 s41, 0
{x} Lback"""
GET_PC = """{x} s[40:41]
Lpc:
s_add_u32 s40, s40, Ltarget-Lpc
s_addc_u32 s41, s41, 0
s_mov_b32 s42, 1
s_setpc_b64 s[40:41]
s_mov_b32 s42, 2
Ltarget:"""
SET_PC = """s_getpc_b64 s[40:41]
Lq:
s_add_u32 s40, s40, Lr-Lq
s_addc_u32 s41, s41, 0
s_mov_b32 s42, 3
{x} s[40:41]
s_mov_b32 s42, 2
Lr:"""
# A call: s42 is 1, then 2 more in the function, then 4 more after the call.
SWAP_PC = """s_getpc_b64 s[40:41]
Ls:
s_add_u32 s40, s40, Lt-Ls
s_addc_u32 s41, s41, 0
s_mov_b32 s42, 1
{x} s[44:45], s[40:41]
s_add_u32 s42, s42, 4
s_branch Lu
Lt:
s_add_u32 s42, s42, 2
s_setpc_b64 s[44:45]
Lu:"""
COUNTERS = (
    "loadcnt", "storecnt", "samplecnt", "bvhcnt", "expcnt", "dscnt", "kmcnt",
    "loadcnt_dscnt", "storecnt_dscnt",
)  # fmt: skip
CONTROL = [
    branch("s_branch", "s_nop 0", lambda w: True),
    branch("s_cbranch_scc0", "s_cmp_lg_u32 s16, 0", lambda w: w["s16"] == 0),
    branch("s_cbranch_scc1", "s_cmp_lg_u32 s16, 0", lambda w: w["s16"] != 0),
    branch("s_cbranch_vccz", SET_VCC, lambda w: vcc_of(w) == 0),
    branch("s_cbranch_vccnz", SET_VCC, lambda w: vcc_of(w) != 0),
    branch("s_cbranch_execz", "s_nop 0", lambda w: w.exec == 0),
    branch("s_cbranch_execnz", "s_nop 0", lambda w: w.exec != 0),
    # a loop: the sum 1..20 by a backward branch
    Code(
        "s_cbranch_scc1",
        LOOP,
        lambda w: {"s40": 210},
    ),
    Code(
        "s_getpc_b64",
        GET_PC,
        lambda w: {"s42": 1},
    ),
    Code(
        "s_setpc_b64",
        SET_PC,
        lambda w: {"s42": 3},
    ),
    Code(
        "s_swappc_b64",
        SWAP_PC,
        lambda w: {"s42": 7},
    ),
    # a barrier of the device: it waits for no other wave here
    Code(
        "ds_gws_barrier rdna4:-",
        "s_mov_b32 m0, 0x50000\ns_mov_b32 s40, 5\n{x} v16 offset:2 gds\ns_waitcnt lgkmcnt(0)",
        lambda w: {"s40": 5, "v16": w["v16"]},
        ("v16",),
        values=lambda rng, r: 0,
        full_exec=True,
    ),
    # a lone wave passes a barrier. Pure pipeline control changes nothing
    *(
        Code(names, f"s_mov_b32 s40, 5\n{text}", lambda w: {"s40": 5, "v16": w["v16"]}, ("v16",))
        for names, text in (
            ("s_barrier rdna4:-", "{x}"),
            ("rdna4:s_barrier_signal", "{x} -1\ns_barrier_wait -1"),
            ("rdna4:s_barrier_wait", "s_barrier_signal -1\n{x} -1"),
            ("s_nop", "{x} 3"),
            ("s_waitcnt rdna4:-", "{x} vmcnt(0) lgkmcnt(0)"),
            ("s_sleep", "{x} 1"),
            ("s_setprio", "{x} 2"),
            ("v_nop", "{x}"),
            ("rdna:s_clause", "{x} 0x1\nv_mov_b32 v20, v16\nv_mov_b32 v21, v16"),
            ("rdna1:s_inst_prefetch rdna3:s_set_inst_prefetch_distance rdna4:-", "{x} 0x1"),
            ("rdna3:s_delay_alu", "{x} instid0(VALU_DEP_1)\nv_mov_b32 v20, v16"),
            ("rdna:s_waitcnt_vscnt rdna4:-", "{x} null, 0x0"),
            ("rdna3:s_waitcnt_depctr rdna4:s_wait_alu", "{x} 0xfff"),
            ("rdna1:s_waitcnt_depctr rdna3:-", "{x} 0xffe3"),
            *((f"rdna4:s_wait_{counter}", "{x} 0x0") for counter in COUNTERS),
            ("rdna4:s_wait_idle", "{x}"),
        )
    ),
    # the end, and padding after a kernel: decoded, jumped over
    Code("s_endpgm", "s_mov_b32 s40, 5\ns_branch Lend\n{x}\nLend:", lambda w: {"s40": 5}),
    Code("rdna:s_code_end", "s_mov_b32 s40, 5\ns_branch Lafter\n{x}\nLafter:", lambda w: {"s40": 5}),
    Code("rdna3:s_sendmsg", "s_mov_b32 s40, 5\n{x} sendmsg(MSG_DEALLOC_VGPRS)", lambda w: {"s40": 5}),
]


OPS = CONTROL
