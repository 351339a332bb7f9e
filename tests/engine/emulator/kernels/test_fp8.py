"""fa_fwd_fp8_*, with products of fp8, against float64 on the numbers of the codes."""

import math
from dataclasses import replace

import pytest

from tests.engine.emulator.kernels.fp8 import KERNEL, Fp8, exact, results, run
from wheel_builder.extras.perf.workloads.fp8 import PARAMS
from wheel_builder.machine_code.emulator.machine import load_machine
from wheel_builder.tables.archs import known_archs
from wheel_builder.tables.kinds import known_kinds

OP = next(op for op, kind in known_kinds().items() if kind.params == PARAMS)
KERNELS = [
    (arch, head_dim)
    for arch in known_archs().values()
    for row in known_kinds()[OP].kernels
    if {*row.needs} <= {*arch.isa.features}
    for head_dim in row.head_dims
]
# A probability has 3 bits of mantissa. Below 2^-6 in e4m3fn it is subnormal and errs by 2^-10, beside a
# largest in its row of at least `fp8_top` in isas.toml. In e4m3fnuz both are half. out is rounded to bf16.
HALF_ULP, HALF_STEP, HALF_BF16 = 2.0**-4, {"ocp": 2.0**-10, "fnuz": 2.0**-11}, 2.0**-8
FP32 = 2.0**-24

CALLS = {
    "one tile": Fp8(queries=(40,), keys=(70,)),
    "one key": Fp8(queries=(3,), keys=(1,)),
    "e4m3fnuz": Fp8(code="e4m3fnuz", queries=(33,), keys=(130,)),
    "every code": Fp8(values="codes", queries=(33,), keys=(130,), descales=False, scale=1e-5),
    "every code, e4m3fnuz": Fp8(
        code="e4m3fnuz", values="codes", queries=(33,), keys=(130,), descales=False, scale=4e-5
    ),
    "causal, groups, two workgroups": Fp8(queries=(290,), keys=(200,), heads=(4, 2), window=(-1, 0)),
    "window": Fp8(queries=(100,), keys=(300,), heads=(2, 1), window=(50, 3)),
    "ragged": Fp8(
        queries=(5, 130, 0, 64), keys=(64, 70, 3, 0), heads=(2, 1), ragged=True, window=(-1, 0)
    ),
    "a first key with most of each row": Fp8(queries=(20,), keys=(1000,), values="sinks"),
    "scores that rise": Fp8(queries=(20,), keys=(500,), values="rising", descales=False),
    "scores of 9 million": Fp8(queries=(20,), keys=(300,), values="large", descales=False, scale=0.35),
    "scores of 100 million": Fp8(queries=(20,), keys=(300,), values="large", descales=False, scale=4.0),
    "outliers": Fp8(queries=(20,), keys=(500,), values="outliers"),
    "sinks": Fp8(queries=(20,), keys=(100,), sinks=True),
    "0 and -0": Fp8(queries=(20,), keys=(100,), values="zeros"),
    "negative scale": Fp8(queries=(20,), keys=(100,), scale=-0.07),
    "negative scale, e4m3fnuz": Fp8(code="e4m3fnuz", queries=(20,), keys=(100,), scale=-0.07),
    "scale of 0": Fp8(queries=(20,), keys=(100,), scale=0.0),
    "without descales": Fp8(queries=(20,), keys=(100,), descales=False),
}  # fmt: skip


def reads(arch, case):
    """Whether the kernels of an arch read the codes of a call."""
    return case.code == "e4m3fn" or arch.isa.fp8 == "fnuz"


def of_kernels(names):
    """Each kernel with the calls that it reads."""
    return pytest.mark.parametrize(
        ("machine", "name"),
        [
            pytest.param(kernel, name, id=f"{kernel[0].name}-{kernel[1]}-{name}")
            for kernel in KERNELS
            for name in names
            if reads(kernel[0], CALLS[name])
        ],
        indirect=["machine"],
    )


@pytest.fixture
def machine(request, core, device_code, disassembled):
    """The kernel's machine, arch and head dim."""
    arch, head_dim = request.param
    code = device_code(arch.name) / f"{KERNEL.format(head_dim)}.hsaco"
    return load_machine(core, code, disassembled(code)), arch.name, head_dim


def ran(machine, name):
    loaded, arch, head_dim = machine
    return run(loaded, arch, replace(CALLS[name], width=head_dim))


@of_kernels(CALLS)
def test_out_and_lse(machine, name):
    case, call, isa = CALLS[name], ran(machine, name), known_archs()[machine[1]].isa
    error = HALF_STEP[isa.fp8] / isa.fp8_top
    largest = max((abs(call.values[code]) for code in call.codes["v"]), default=0.0)
    for (b, h, i), out, lse in results(call, step=7):
        wanted, sums, sizes = exact(call, b, h, i)
        subnormal = case.keys[b] * error * largest * max(call.descale["v"])
        for x, y, size in zip(out, wanted, sizes, strict=True):
            assert abs(x - y) <= size * (HALF_ULP + HALF_BF16) + subnormal
        assert lse == sums or abs(lse - sums) <= 1e-5 * max(1.0, abs(sums))
        assert math.isfinite(sums) or out == (0.0,) * len(out)


# Simulated by tests/tools/eight_bit_errors.py: 24 to 25 thousandths, from rounding probabilities alone. A
# fifth more for calls with fewer keys.
MOST_RMS = 0.03


@of_kernels(["e4m3fnuz", "window", "negative scale", "without descales", "scores that rise"])
def test_errors_of_many_keys(machine, name):
    call = ran(machine, name)
    errors = squares = 0.0
    for place, out, _ in results(call, step=7):
        wanted, _, _ = exact(call, *place)
        errors += sum((x - y) ** 2 for x, y in zip(out, wanted, strict=True))
        squares += sum(y * y for y in wanted)
    assert math.sqrt(errors / squares) <= MOST_RMS
