"""Calls of an execution, and their comparison with float64."""

import math
import struct
from dataclasses import replace

import pytest

from wheel_builder.extras.perf.workloads import gradients
from wheel_builder.extras.tune import checks
from wheel_builder.extras.tune.checks import cases_of, expected, mask_of
from wheel_builder.extras.tune.exact import wrong
from wheel_builder.extras.tune.rows import Kernel
from wheel_builder.machine_code.emulator.attention import Case, make_call
from wheel_builder.tables.tiles import Workgroup

FUSED = Kernel("gfx908", "bwd_fused", "fp16", 64)
SMALL = Case("fp16", 64, 37, 21, nheads=2, causal=True)


def test_the_calls_use_all_waves_parts_of_tiles_a_mask_and_shared_keys():
    whole, causal = cases_of(Kernel("gfx908", "fwd", "fp16", 64), Workgroup(128, 256), step=32)
    assert whole.seqlen_q > 128
    assert whole.seqlen_k % 32
    assert causal.causal
    assert causal.nheads > causal.nheads_k
    assert causal.pad


def test_a_kernel_with_another_head_dim_of_v():
    for case in cases_of(Kernel("gfx942", "fwd_uneven", "fp16", 192), Workgroup(128, 256), step=32):
        assert (case.head_dim, case.value_dim, case.op) == (192, 128, "fwd_uneven")


def test_kernels_by_keys_have_workgroups_of_keys():
    whole, causal = cases_of(FUSED, Workgroup(128, 512), step=32)
    assert (whole.seqlen_q, whole.seqlen_k) == (73, 133)
    assert causal.seqlen_q > causal.seqlen_k  # rows that see no key
    whole, _ = cases_of(Kernel("gfx908", "bwd_dq", "fp16", 64), Workgroup(128, 256), step=32)
    assert (whole.seqlen_q, whole.seqlen_k) == (133, 73)


@pytest.mark.parametrize("kind", gradients.MASKS)
def test_a_mask_hides_some_keys_from_all_rows_and_all_from_one(kind):
    case = Case("bf16", 64, 9, 21)
    mask = mask_of(kind, case)
    assert [len(row) for row in mask.biases] == [21] * 9
    hidden = [[value == -math.inf for value in row] for row in mask.biases]
    assert all(all(row[:7]) for row in hidden)
    assert [all(row) for row in hidden].index(True) == checks.BLIND
    assert 0 < sum(map(sum, hidden)) < 9 * 21
    size = {"bool": 1, "bias": 2, "fp32 bias": 4}[kind]
    assert len(mask.memory.read()) == 9 * mask.row * size
    assert mask.row == 24


def test_a_mask_in_memory_is_the_one_of_the_reference():
    case = Case("fp16", 64, 9, 21)
    mask = mask_of("fp32 bias", case)
    rows = struct.unpack(f"<{9 * 24}f", mask.memory.read())
    assert [rows[at : at + 21] for at in range(0, 9 * 24, 24)] == [tuple(row) for row in mask.biases]
    shown = mask_of("bool", case)
    assert [*shown.memory.read()[:21]] == [int(value == 0) for value in shown.biases[0]]


@pytest.fixture(scope="module")
def want():
    return expected(make_call(SMALL), checks._diagonal(SMALL))


def test_the_diagonal_is_at_the_bottom_right(want):
    assert want.exact[0].lse[:16] == [math.inf] * 16
    assert math.isfinite(want.exact[0].lse[16])


def test_gradients_of_keys_are_sums_over_heads(want):
    [dk] = want.of("dk")
    assert dk[3][5] == pytest.approx(sum(each.dk[3][5] for each in want.exact))
    assert len(want.of("dq")) == 2


@pytest.mark.parametrize("name", ["out", "dq", "dk", "dv"])
def test_rounded_results_are_allowed_and_one_wrong_element_is_not(want, name):
    found = [[[*row] for row in matrix] for matrix in want.of(name, plain=True)]
    assert [*wrong(name, found, want)] == []
    found[-1][17][3] += 2 * want.allowed(name)
    [problem] = wrong(name, found, want)
    assert problem.startswith(f"{name}[{len(found) - 1}, 17, 3] is ")
    found[-1][17][3] = math.nan
    assert len([*wrong(name, found, want)]) == 1


def sums_of(want, factor):
    """A fused kernel's sums, in some order within each result of 32 rows and 32 columns."""
    found = []
    for dq in want.of("dq"):
        rows = [*dq, *([[0.0] * 64] * (-len(dq) % 32))]
        for row in range(0, len(rows), 32):
            for column in (0, 32):
                tile = [each[column : column + 32] for each in rows[row : row + 32]]
                found += [x / factor / SMALL.scale for turned in zip(*tile, strict=True) for x in turned]
    return found


@pytest.mark.parametrize("factor", [1.0, 2.0**-6 * 1.00035, 1.00282])
def test_a_fused_kernels_sums_in_any_order_of_a_result_and_by_a_power_of_two(want, factor):
    assert [*checks._wrong_sums(FUSED, sums_of(want, factor), want)] == []


def test_a_fused_kernels_wrong_sums_are_found(want):
    sums = sums_of(want, 1.0)
    sums[5] += 1
    assert "off in the step's result 0" in next(checks._wrong_sums(FUSED, sums, want))
    swapped = sums_of(want, 1.0)
    swapped[:1024], swapped[1024:2048] = swapped[1024:2048], swapped[:1024]
    assert any("off in the step's" in each for each in checks._wrong_sums(FUSED, swapped, want))
    assert "times a power of two" in next(checks._wrong_sums(FUSED, sums_of(want, 1.5), want))
    assert [*checks._wrong_sums(FUSED, [0.0] * len(sums), want)]


def test_the_dtype_bounds_the_error(want):
    low = expected(make_call(replace(SMALL, dtype="bf16")), checks._diagonal(SMALL))
    assert low.allowed("dq") > 4 * want.allowed("dq")
