"""Cases, and the comparison with float64, without a machine: the tests write the outputs."""

import ctypes
import math
import struct

import pytest

from wheel_builder.base.errors import CaseError
from wheel_builder.machine_code.emulator import attention
from wheel_builder.machine_code.emulator.attention import Case, compare, make_call, reference_rows
from wheel_builder.machine_code.emulator.formats import encode
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.machine_code.emulator.reference import attend, visible
from wheel_builder.machine_code.emulator.rule import tolerances


def test_all_that_is_wrong_with_a_case_is_told_at_once():
    with pytest.raises(CaseError) as caught:
        Case("fp32", 64, 0, -1, nheads=3, nheads_k=2)
    assert caught.value.problems == (
        "seqlen_q is 0, expected at least 1",
        "seqlen_k is -1, expected at least 0",
        "nheads is 3, expected a multiple of nheads_k, which is 2",
        "dtype is fp32, expected one of fp16, bf16",
    )


@pytest.mark.parametrize(
    "shapes",
    [{"seqlen_q": 99999999999}, {"seqlen_k": 1 << 18}, {"nheads": 2**14, "nheads_k": 1}, {"batch": 10**3000}],
)
def test_a_case_that_no_machine_can_hold_is_refused_before_anything_is_drawn(shapes):
    """``emulate --seqlen-q 99999999999`` took 22 GB before the system ended it."""
    with pytest.raises(CaseError) as caught:
        Case("fp16", 64, **{"seqlen_q": 128, "seqlen_k": 128, **shapes})
    (problem,) = caught.value.problems
    assert problem == (
        "q, k, v and out have more than 16777216 elements together, which is too much memory: "
        "use shorter sequences, fewer heads or a smaller batch"
    )


def test_the_largest_case_has_exactly_as_many_elements():
    assert Case("fp16", 64, 2**16, 2**16).elements == 2**24
    assert Case("fp16", 60, 2, 3, batch=5, nheads=7, nheads_k=1, pad=4).elements == 2 * 5 * (14 + 3) * 64


def test_a_case_names_its_kernel():
    assert Case("bf16", 128, 1, 1).kernel == "fa_fwd_bf16_d128"


def test_the_argument_structure_has_the_size_that_the_kernels_read():
    assert len(make_call(Case("fp16", 64, 2, 3)).kernarg()) == layout("FwdParams").size


def finished(case, change=0.0, lse_change=0.0):
    """A call with the plain computation's output and the exact logsumexp.

    The first element of each is shifted.
    """
    call = make_call(case)
    q, k, v = (tensor.values() for tensor in (call.q, call.k, call.v))
    out, lse = [], []
    for row in range(case.seqlen_q):
        seen = visible(row, case.seqlen_q, case.seqlen_k, causal=case.causal)
        keys = [call.k.at(k, 0, j, 0) for j in range(seen)]
        columns = list(zip(*(call.v.at(v, 0, j, 0) for j in range(seen)), strict=True))
        given = (call.q.at(q, 0, row, 0), keys, columns or [()] * case.head_dim, case.scale)
        out += attend(*given, case.dtype).out
        lse.append(attend(*given).lse)
    out[0] += change
    lse[0] += lse_change
    put(call.out.memory, encode(out, case.dtype))
    put(call.lse, struct.pack(f"<{len(lse)}f", *lse))
    return call


def put(memory, data):
    ctypes.memmove(memory.address, data, len(data))


CASE = Case("fp16", 8, 3, 5, causal=True)


def test_the_plain_computation_itself_passes():
    numbers = compare(finished(CASE))
    assert numbers.first is None
    assert 0 < numbers.out_error <= numbers.out_allowed / tolerances.OUT_FACTOR


def test_an_element_too_far_off_is_the_first_difference():
    numbers = compare(finished(CASE, change=0.25))
    assert (numbers.first.what, numbers.first.index) == ("out", (0, 0, 0, 0))
    assert numbers.first.found - numbers.first.expected == pytest.approx(0.25, abs=1e-2)
    assert numbers.out_error == pytest.approx(0.25, abs=1e-2)


@pytest.mark.parametrize(("times", "right"), [(0.9, True), (1.1, False)])
def test_a_log_sum_exp_just_beyond_the_rule_is_a_difference(times, right):
    """The first row sees 3 of 5 keys."""
    call = finished(CASE)
    rows = [row for _, row in reference_rows(call, "")]
    bound = tolerances.lse_allowed(rows[0].lse, max(row.magnitude for row in rows))
    first = compare(finished(CASE, lse_change=times * bound)).first
    assert right == (first is None)
    assert right or (first.what, first.index) == ("lse", (0, 0, 0))


def one_key(change):
    """With one key the plain computation is exact: the output is v."""
    call = finished(Case("bf16", 8, 1, 1))
    out = list(call.v.values())
    out[3] = change(out[3])
    put(call.out.memory, encode(out, "bf16"))
    return compare(call), max(map(abs, call.v.values()))


def test_where_the_plain_computation_is_exact_one_step_of_the_dtype_is_too_much():
    numbers, largest = one_key(lambda x: x)
    assert numbers.first is None
    assert numbers.out_allowed == tolerances.allowed(0.0, terms=1, largest=largest)
    numbers, _ = one_key(lambda x: x * (1 + 2.0**-7))
    assert (numbers.first.what, numbers.first.index) == ("out", (0, 0, 0, 3))


def test_not_a_number_is_never_right():
    numbers = compare(finished(CASE, change=math.nan))
    assert numbers.first.what == "out"
    assert numbers.out_error == math.inf


def test_rows_that_see_no_key_are_zero_and_infinite():
    numbers = compare(finished(Case("bf16", 8, 4, 2, causal=True)))
    assert numbers.first is None


def test_calls_with_equal_numbers_share_what_is_expected_and_others_do_not(monkeypatch):
    case, counted = Case("fp16", 16, 3, 5, seed=77), []

    def counting(*given):
        counted.append(given)
        return attend(*given)

    monkeypatch.setattr(attention, "attend", counting)
    assert compare(finished(case)).first is None
    assert len(counted) == 2 * 3  # exact and rounded
    assert compare(finished(case, change=9.0)).first is not None
    assert len(counted) == 2 * 3
    other = finished(case)
    ctypes.memset(other.v.memory.address, 0, 32)  # the first key's row
    assert compare(other).first is not None
    assert len(counted) == 4 * 3
