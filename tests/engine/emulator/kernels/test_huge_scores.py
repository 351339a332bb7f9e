"""Forwards of scores up to 10^10, where a step of fp32 is hundreds of exponents.

Equal scores have to stay equal from tile to tile: other kernels gave NaN, or the mean of a few keys.
"""

from dataclasses import replace

import pytest

from tests.engine.emulator.kernels.int8 import HUGE
from wheel_builder.machine_code.emulator.attention import Case, Tensor, make_call, reference_rows, run_call
from wheel_builder.machine_code.emulator.command import forward_workgroup, open_machine
from wheel_builder.machine_code.emulator.formats import encode
from wheel_builder.machine_code.emulator.machine import Options
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.rule import tolerances
from wheel_builder.tables.archs import known_archs

KERNELS = {"fp16-d64": ("fp16", 64), "bf16-d128": ("bf16", 128)}
KEYS, LARGE = 200, 30000.0
# Elements of k's row 0, and what each further row adds.
RAMPS = {"rising": (0.0, 100.0), "falling": (LARGE, -100.0)}
# Of the largest v. P of one key, or equal ones, are truncated to the dtype, and out is rounded.
RELATIVE = {"fp16": 2.0**-10 + 2.0**-11, "bf16": 2.0**-7 + 2.0**-8}


def element(name, row, column):
    """Of q, whose row is None, or k. Columns differ, so sums of products have more bits than fp32."""
    if name in RAMPS:
        start, step = RAMPS[name]
        found = LARGE if row is None else start + step * row
    else:
        of_q, of_k, of_one = HUGE[name]
        found = of_q if row is None else of_one if row == 37 else of_k
        found = LARGE * (-1) ** row if found is None else found
    return found * (1 - column / 256) * 0.6 ** (column % 7)


def call_of(case, name):
    call = make_call(case)
    rows = {"q": [None] * case.seqlen_q, "k": range(case.seqlen_k)}

    def tensor(which):
        numbers = [element(name, row, column) for row in rows[which] for column in range(case.head_dim)]
        memory = Memory.of(encode(numbers, case.dtype), which, readonly=True)
        return Tensor(which, case, len(rows[which]), 1, memory)

    return replace(call, q=tensor("q"), k=tensor("k"))


def check(call):
    """out and lse against float64."""
    allowed = RELATIVE[call.case.dtype] * max(map(abs, call.v.values()))
    values, sums = call.out.values(), call.lse.values("f")
    for (batch, head, row), want in reference_rows(call, ""):
        found = call.out.at(values, batch, row, head)
        assert max(abs(x - y) for x, y in zip(found, want.out, strict=True)) <= allowed
        assert abs(sums[row] - want.lse) <= tolerances.lse_allowed(want.lse, want.magnitude)


@pytest.mark.parametrize("name", [*HUGE, *RAMPS])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("arch", known_archs())
def test_out_and_lse(workshop, device_code, arch, kernel, name):
    case = Case(*KERNELS[kernel], seqlen_q=3, seqlen_k=KEYS)
    code = (device_code(arch) / f"{case.kernel}.hsaco").read_bytes()
    call = call_of(case, name)
    machine = open_machine(code, case.kernel, workshop)
    assert not run_call(machine, call, forward_workgroup(arch, case), Options()).error
    check(call)
