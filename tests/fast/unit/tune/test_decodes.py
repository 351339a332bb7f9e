"""Calls of a decode, and parts of its keys joined to the answer of all."""

import ctypes
import math
from dataclasses import replace

import pytest

from wheel_builder.extras.perf.workloads.coded import DESCALE, FORMAT
from wheel_builder.extras.tune import decodes
from wheel_builder.extras.tune.decodes import Parts, cases_of
from wheel_builder.extras.tune.rows import Kernel
from wheel_builder.machine_code.emulator.attention import Case, compare, make_call, reference_rows
from wheel_builder.machine_code.emulator.formats import values_of_codes
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.machine_code.emulator.reference import attend
from wheel_builder.tables.tiles import Workgroup

KERNEL, TILE, STEP = Kernel("gfx908", "decode", "fp16", 32), Workgroup(32, 128), 64
CASE = Case("fp16", 32, 3, 24, nheads=2, causal=True)
FIRST = 23  # keys of the first part: some queries see no key of the second one


def test_the_calls_use_two_workgroups_all_waves_parts_of_tiles_and_of_keys():
    (whole, one), (causal, parts) = cases_of(KERNEL, TILE, STEP)
    assert (one, parts) == (1, decodes.PARTS)
    assert TILE.rows < whole.seqlen_q * whole.nheads <= 2 * TILE.rows
    assert whole.seqlen_k > 2 * 2 * STEP
    assert whole.seqlen_k % STEP
    assert causal.causal
    assert causal.nheads > causal.nheads_k
    assert causal.pad


def parts_of(call):
    """What a right kernel leaves of the keys before and after ``FIRST``."""
    case = call.case
    q, k, v = call.q.values(), call.k.values(), call.v.values()
    outs, lses = [], []
    for begin, end in ((0, FIRST), (FIRST, case.seqlen_k)):
        for head in range(case.nheads):
            for row in range(case.seqlen_q):
                seen = range(begin, min(end, row + case.seqlen_k - case.seqlen_q + 1))
                keys = [call.k.at(k, 0, j, 0) for j in seen]
                columns = list(zip(*(call.v.at(v, 0, j, 0) for j in seen), strict=True)) or [()] * 32
                found = attend(call.q.at(q, 0, row, head), keys, columns, case.scale)
                outs += found.out if seen else [math.nan] * 32
                lses.append(found.lse if seen else -math.inf)
    floats = [(ctypes.c_float * len(each))(*each) for each in (outs, lses)]
    return Parts(*(Memory.of(bytes(each), "part") for each in floats))


def test_parts_are_joined_to_the_answer_of_all_keys():
    call = make_call(CASE)
    parts = parts_of(call)
    assert -math.inf in parts.lse.values("f")
    decodes._join(call, parts, 2)
    assert compare(call).first is None
    [*_, (_, last)] = reference_rows(call, "")
    assert call.lse.values("f")[-1] == pytest.approx(last.lse)


def test_a_wrong_part_is_seen():
    call = make_call(CASE)
    out, lse = parts_of(call)
    wrong = [x + 0.5 for x in lse.values("f")]
    wrong = [*wrong[:6], *lse.values("f")[6:]]
    decodes._join(call, Parts(out, Memory.of(bytes((ctypes.c_float * 12)(*wrong)), "lse")), 2)
    assert compare(call).first is not None


def test_arguments_name_the_parts():
    call, parts = make_call(CASE), Parts(Memory.output(64, "out"), Memory.output(64, "lse"))
    kernarg = call.kernarg()
    assert decodes._with_parts(kernarg, parts, 1, CASE) == kernarg
    names = [scalar.name for scalar in layout("FwdParams").scalars]
    given = [
        dict(zip(names, layout("FwdParams").unpack(each), strict=True))
        for each in (kernarg, decodes._with_parts(kernarg, parts, 2, CASE))
    ]
    changed = {name: value for name, value in given[1].items() if value != given[0][name]}
    assert changed == {
        "partial_out": parts.out.address, "partial_lse": parts.lse.address, "splits": 2, "partial_split": 6,
    }  # fmt: skip


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_numbers_of_a_cache_of_8_bits_are_those_of_its_codes(dtype):
    """Without rounding, or a right kernel would differ from float64."""
    given, values = (
        decodes.with_coded_cache(make_call(replace(CASE, dtype=dtype, pad=16))),
        values_of_codes(FORMAT),
    )
    for numbers, coded in ((given.call.k, given.coded.k), (given.call.v, given.coded.v)):
        codes = coded.memory.read()
        assert numbers.values() == tuple(values[code] * DESCALE for code in codes)
        assert len({*codes}) > 100
    assert given.call.k.values() != given.call.v.values()
    parts = Parts(Memory.output(64, "out"), Memory.output(64, "lse"))
    names = [scalar.name for scalar in layout("CodedParams").scalars]
    sent = dict(zip(names, layout("CodedParams").unpack(given.kernarg((1, 1, 1), parts, 2)), strict=True))
    assert [sent["k_descale"], sent["v_descale"]] == [each.memory.address for each in given.descales]
