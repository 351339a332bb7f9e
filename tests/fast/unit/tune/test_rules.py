"""Rules: no row of the table is refused, and each rule has a row that breaks it alone."""

import pytest

from wheel_builder.extras.tune.rows import Change, Kernel, Rows, alone, changed, rows_of
from wheel_builder.extras.tune.rules import UNITS, refusal
from wheel_builder.extras.tune.works import works
from wheel_builder.matrix.support_table import kernels_of
from wheel_builder.tables.archs import CHECKOUT, arch_named, known_archs
from wheel_builder.tables.tiles import known_tiles


def test_no_row_of_a_tuned_kernel_is_refused():
    kernels = [each for each in kernels_of(CHECKOUT) if each.op in (*works(), "fwd_fp8")]
    assert len(kernels) > 50
    for each in kernels:
        for name in each.archs:
            arch, kernel = arch_named(name), Kernel(name, each.op, each.dtype, each.head_dim)
            assert refusal(kernel, arch, rows_of(known_tiles(), arch, kernel)) == "", kernel


def test_every_unit_is_known():
    assert {arch.isa.unit for arch in known_archs().values()} == set(UNITS)


def said(arch, head_dim, *changes, op="fwd"):
    kernel = Kernel(arch, op, "fp16", head_dim)
    rows = rows_of(known_tiles(), arch_named(arch), kernel)
    return refusal(kernel, arch_named(arch), changed(rows, changes))


@pytest.mark.parametrize(
    ("arch", "head_dim", "changes", "words"),
    [
        ("gfx908", 64, {"waves": 32}, "a workgroup has 2048 threads, and at most 1024 are possible"),
        ("gfx908", 64, {"keys": 48}, "48 keys are not whole matrix steps of 32 rows"),
        ("gfx908", 64, {"schedule": "two_tiles"}, "two_tiles needs reads that transpose, and cdna1 has none"),
        ("gfx908", 64, {"schedule": "direct"}, "direct needs reads that transpose, and cdna1 has none"),
        ("gfx950", 64, {"prefetch": 0}, "direct needs prefetch"),
        ("gfx908", 64, {"schedule": "slots_in_turn"}, "slots_in_turn needs padded_tiles and plain_exponents"),
        ("gfx908", 64, {"value_lanes": 16}, "16 lanes do not divide 8 groups of keys"),
        ("gfx908", 64, {"waves": 16}, "a workgroup needs 4 waves on a SIMD, and registers are for 3"),
        ("gfx908", 64, {"waves_per_simd": 11}, "a SIMD has 10 waves at most"),
        ("gfx908", 64, {"query_steps": 5}, "query_steps is 5 of 4"),
        ("gfx908", 256, {"keys": 128}, "tiles take 131072 bytes of LDS at least, and there are 65536"),
        (
            "gfx908",
            128,
            {"waves_per_simd": 4},
            "results and operands take 80 registers at least, and 4 waves leave 64",
        ),
        ("gfx908", 64, {"direct": True}, "fwd has no direct"),
    ],
)
def test_each_rule(arch, head_dim, changes, words):
    assert said(arch, head_dim, *(Change(*each) for each in changes.items())) == words


@pytest.mark.parametrize(
    ("arch", "op", "changes", "words"),
    [
        ("gfx908", "bwd_dkdv", {"pairs": 8}, "a workgroup needs 4 waves on a SIMD, and registers are for 2"),
        ("gfx908", "bwd_dkdv", {"pairs": 16}, "a workgroup has 2048 threads, and at most 1024 are possible"),
        ("gfx908", "bwd_dkdv", {"queries": 48}, "48 queries are not whole matrix steps of 32 rows"),
        ("gfx908", "bwd_dkdv", {"own_steps": 5}, "own_steps is 5 of 4"),
        ("gfx908", "bwd_dkdv", {"column_blocks": 1}, "ping_pong has no column_blocks"),
        ("gfx908", "bwd_dkdv", {"early_rows": True}, "ping_pong and early_rows: choose one loop"),
        ("gfx908", "bwd_dkdv", {"row_major": True},
         "row_major needs reads that transpose, and cdna1 has none"),
        ("gfx1100", "bwd_dkdv", {"ping_pong": True}, "ping_pong and early_rows: choose one loop"),
        ("gfx908", "bwd_fused", {"early_operands": False, "kept_zeros": False, "ping_pong": False},
         "bwd_fused needs ping_pong or early_rows"),
        ("gfx908", "bwd_dq", {"dout_steps": 5}, "dout_steps is 5 of 4"),
        ("gfx908", "bwd_dq", {"keys": 512}, "tiles take 131072 bytes of LDS at least, and there are 65536"),
        ("gfx908", "bwd_dq", {"direct": True}, "direct without row_major"),
        ("gfx908", "bwd_dq", {"waves_per_simd": 7},
         "results and operands take 64 registers at least, and 7 waves leave 36"),
    ],
)  # fmt: skip
def test_each_rule_of_gradients(arch, op, changes, words):
    assert said(arch, 64, *(Change(*each) for each in changes.items()), op=op) == words


def test_a_kernel_with_one_schedule():
    assert said("gfx908", 512, Change("schedule", "one_stage"), op="fwd_wide") == "fwd_wide has one schedule"


def test_codes_of_8_bits_through_registers():
    eager = Change("schedule", "eager")
    assert said("gfx908", 64, eager) == "eager needs padded_tiles and prefetch"
    assert said("gfx942", 64, eager, op="fwd_tall") == "eager needs products of e4m3fnuz"


def test_waves_with_keys_of_their_own():
    assert said("gfx908", 64, Change("schedule", "own_keys")) == "own_keys needs codes of 8 bits"
    assert said("gfx908", 64, Change("query_steps", 3), op="decode_8bit") == ""
    of_elements = (Change("schedule", "own_keys"), Change("keys", 64))
    assert said("gfx906", 128, *of_elements, op="decode") == ""
    assert said("gfx906", 64, *of_elements, op="decode") == "own_keys needs codes of 8 bits"
    many = said("gfx908", 64, Change("keys", 512), op="decode_8bit")  # no tile in LDS
    assert many == "results and operands take 144 registers at least, and 2 waves leave 128"


@pytest.mark.parametrize(
    ("arch", "changes", "words"),
    [
        ("gfx906", {"schedule": "one_stage"},
         "decode_8bit needs two_stages or own_keys: V's descales come with K's"),
        ("gfx1030", {"schedule": "pipelined"},
         "decode_8bit needs two_stages or own_keys: V's descales come with K's"),
        ("gfx906", {"keys": 32}, "32 keys are not whole matrix steps of 64 rows"),
        ("gfx906", {"keys": 96}, "96 keys are not whole matrix steps of 64 rows"),
        ("gfx906", {"keys": 64, "schedule": "two_stages"}, ""),
        ("gfx906", {"keys": 32, "narrow_steps": False}, ""),
        ("gfx1030", {"keys": 64}, ""),
    ],
)  # fmt: skip
def test_each_rule_of_codes(arch, changes, words):
    assert said(arch, 128, *(Change(*each) for each in changes.items()), op="decode_8bit") == words


@pytest.mark.parametrize("op", ["fwd", "decode", "decode_8bit"])
def test_steps_of_few_columns_that_an_isa_lacks(op):
    words = "narrow_steps needs steps of few columns, and rdna4 has none"
    assert said("gfx1201", 64, Change("narrow_steps", True), op=op) == words


def test_q_in_lds_counts():
    """Without registers for q, each wave has its rows in LDS."""
    few = said("gfx908", 256, Change("query_steps", 0), Change("keys", 32))
    assert few == "tiles take 98304 bytes of LDS at least, and there are 65536"


def test_rows_for_all_loops_are_no_conflict():
    arch, kernel = arch_named("gfx908"), Kernel("gfx908", "fwd", "fp16", 192)
    [row] = [each for each in known_tiles().rows["fwd"]["cdna1"] if each.head_dim == 192]
    assert refusal(kernel, arch, Rows(alone(row, "plain"), alone(row, "featured"))) == ""
