"""fa_quantise_* bit for bit, and fa_fwd_int8_* against float64 on the numbers of its codes."""

import math
from dataclasses import replace

import pytest

from tests.engine.emulator.kernels.coded import fp32
from tests.engine.emulator.kernels.int8 import (
    FORWARD,
    HUGE,
    KEYS_OF_SCALE,
    QUANTISE,
    VALUES,
    Int8,
    exact,
    quantise,
    results,
    rotated,
    run,
)
from wheel_builder.machine_code.emulator.formats import nearest
from wheel_builder.machine_code.emulator.machine import load_machine
from wheel_builder.tables.archs import known_archs
from wheel_builder.tables.kinds import known_kinds

OP, QUANTISER = "fwd_int8", "quantise"
DTYPES = ("fp16", "bf16")
KERNELS = [
    (arch, dtype, head_dim)
    for arch in known_archs().values()
    for row in known_kinds()[OP].kernels
    if {*row.needs} <= {*arch.isa.features}
    for dtype in row.dtypes
    for head_dim in row.head_dims
]
# As in test_fp8.py: of probabilities. out is rounded to bf16, or more exactly to fp16.
HALF_ULP, HALF_STEPS, HALF_BF16 = 2.0**-4, {"e4m3fn": 2.0**-10, "e4m3fnuz": 2.0**-11}, 2.0**-8
LARGEST = {"e4m3fn": 448.0, "e4m3fnuz": 240.0}
OF_V = {"ocp": "e4m3fn", "fnuz": "e4m3fnuz", "none": ""}  # of an ISA's format of fp8
# Of probabilities in fp16, towards zero and below 2^-14 in steps of 2^-24. The largest of a row is 1 at
# least. 2^-16: exponentials and sums of fp32. out is rounded to fp16.
HALF_ULP_16, HALF_FP16, STEP_16 = 2.0**-10 + 2.0**-16, 2.0**-11, 2.0**-24
# The kernel starts from 1.5 * 2^23 quanta, whose product with their scale is rounded.
HALF_START = 1.5 * 2**23 * 2.0**-24
LEAST, INVERSE_ROOTS = 2.0**-100, {64: 2.0**-3, 128: float.fromhex("0x1.6a09e6p-4")}

CALLS = {
    "one tile": Int8(queries=40, keys=70),
    "one key": Int8(queries=3, keys=1),
    "causal, groups, two workgroups, batch": Int8(
        queries=290, keys=290, batch=2, heads=(4, 2), window=(-1, 0)
    ),
    "window": Int8(queries=100, keys=300, heads=(2, 1), window=(50, 3)),
    "more keys than a workgroup quantises": Int8(queries=20, keys=530, heads=(3, 3)),
    "a first key with most of each row": Int8(queries=20, keys=1000, values="sinks"),
    "scores that rise": Int8(queries=20, keys=500, values="rising"),
    "outliers": Int8(queries=20, keys=500, values="outliers"),
    "large": Int8(queries=20, keys=100, values="large", scale=1e-8),
    "zeros": Int8(queries=20, keys=100, values="zeros"),
    "negative scale": Int8(queries=20, keys=100, scale=-0.07),
    "scale of 0": Int8(queries=20, keys=100, scale=0.0),
}


def of_kernels(names):
    """Each kernel with the calls."""
    return pytest.mark.parametrize(
        ("machines", "name"),
        [
            pytest.param(kernel, name, id=f"{kernel[0].name}-{kernel[1]}-{kernel[2]}-{name}")
            for kernel in KERNELS
            for name in names
        ],
        indirect=["machines"],
    )


@pytest.fixture
def machines(request, core, device_code, disassembled):
    """The two kernels, arch, dtype and head dim."""
    arch, dtype, head_dim = request.param
    names = QUANTISE.format(dtype), FORWARD.format(dtype, head_dim)
    files = [device_code(arch.name) / f"{name}.hsaco" for name in names]
    return [load_machine(core, file, disassembled(file)) for file in files], arch.name, dtype, head_dim


def case_of(machines, name):
    _, arch, dtype, head_dim = machines
    return replace(CALLS[name], dtype=dtype, width=head_dim, of_v=OF_V[known_archs()[arch].isa.fp8])


@of_kernels(CALLS)
def test_out_and_lse(machines, name):
    case = case_of(machines, name)
    call = run(machines[0], machines[1], case)
    scales = {x: max(call.memory[f"{x}_scales"].values("f")) for x in call.coded_tensors}
    quantum = scales["q"] * scales["k"] * abs(case.scale)
    if case.of_v:
        relative, top = HALF_ULP + HALF_BF16, known_archs()[machines[1]].isa.fp8_top
        least = HALF_STEPS[case.of_v] / top * LARGEST[case.of_v] * scales["v"]
    else:
        relative = HALF_ULP_16 + HALF_FP16 + 2 * HALF_START * quantum
        least = STEP_16 * max(map(abs, call.numbers["v"]))
    for (b, h, i), out, lse in results(call, step=7):
        wanted, sums, sizes = exact(call, b, h, i)
        for x, y, size in zip(out, wanted, sizes, strict=True):
            assert abs(x - y) <= size * relative + case.keys * least
        assert lse == sums or abs(lse - sums) <= 1e-5 * max(1.0, abs(sums)) + HALF_START * quantum
        assert math.isfinite(sums) or out == (0.0,) * len(out)


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0)])
@of_kernels(HUGE)
def test_rows_of_huge_scores_are_averages_of_v(machines, name, window):
    """Each start is off by up to HALF_START codes, so of equal scores some count alone. Rows were NaN."""
    case = replace(case_of(machines, "one tile"), queries=200, keys=200, values=name, window=window)
    relative = HALF_ULP + HALF_BF16 if case.of_v else HALF_ULP_16 + HALF_FP16
    call = run(machines[0], machines[1], case)
    quantum = math.prod(max(call.memory[f"{x}_scales"].values("f")) for x in "qk") * case.scale
    for (b, h, i), out, lse in results(call, step=13):
        _, sums, _ = exact(call, b, h, i)
        seen = range(i + 1 if window[1] == 0 else case.keys)
        if name == "one huge key" and 37 in seen:
            seen = [37]
        columns = zip(*(call.coded("v", b, h, j) for j in seen), strict=True)
        for x, column in zip(out, columns, strict=True):
            slack = relative * max(map(abs, column))
            assert min(column) - slack <= x <= max(column) + slack
        assert abs(lse - sums) <= HALF_START * quantum + 2.0**-22 * abs(sums)


def scale_of(numbers, most):
    """The scale of codes up to ``most``, and the factor to them, in fp32."""
    largest = max(LEAST, *map(abs, numbers))
    return fp32(largest / most), fp32(most / largest)


def expected_counts(rows, width):
    """Codes and the common scale of rows of q or k, in fp32 as the kernel computes them."""
    turned = [rotated(row) for row in rows]
    scale, factor = scale_of([x for row in turned for x in row], 127.0)
    # Rounded once, to even: the product is exact in float64.
    return [[round(x * factor) % 256 for x in row] for row in turned], fp32(scale * INVERSE_ROOTS[width])


@of_kernels(["one tile", "window", "large", "zeros", "outliers"])
def test_codes_bit_for_bit(machines, name):
    """A sample of rows of q, of blocks of k, and the whole of v."""
    case = replace(case_of(machines, name), queries=20)
    call, width = quantise(machines[0][0], case), case.width
    codes = {x: call.memory[f"{x}_codes"].read() for x in call.coded_tensors}
    scales = {x: call.memory[f"{x}_scales"].values("f") for x in call.coded_tensors}

    def shown(x, row, head):
        at = (row * call.heads[x] + head) * width
        return [*codes[x][at : at + width]]

    for row in range(0, case.queries, 5):
        wanted, scale = expected_counts([call.given("q", 0, 0, row)], width)
        assert (shown("q", row, 0), scales["q"][row]) == (wanted[0], scale)
    for block in {0, (case.keys - 1) // KEYS_OF_SCALE}:
        keys = range(block * KEYS_OF_SCALE, min(case.keys, (block + 1) * KEYS_OF_SCALE))
        wanted, scale = expected_counts([call.given("k", 0, 0, j) for j in keys], width)
        assert [shown("k", j, 0) for j in keys] == wanted
        assert scales["k"][block] == scale
    if not case.of_v:
        return
    numbers = [call.given("v", 0, 0, j) for j in range(case.keys)]
    scale, factor = scale_of([x for row in numbers for x in row], LARGEST[case.of_v])
    assert scales["v"][0] == scale
    values, find = VALUES[case.of_v], nearest(case.of_v)
    for j in range(0, case.keys, 9):
        for x, code in zip(numbers[j], shown("v", j, 0), strict=True):
            exactly = fp32(x * factor)  # of two nearest codes either
            assert abs(values[code] - exactly) == abs(values[find(exactly)] - exactly)


def test_a_value_is_its_code_times_its_scale():
    assert (VALUES["int8"][0xFF], VALUES["e4m3fn"][0x7E], VALUES["e4m3fnuz"][0x7F]) == (-1.0, 448.0, 240.0)


# Simulated by tests/tools/eight_bit_errors.py, for 1,024 keys and four heads of dim 128. A tenth more for
# other draws. Of kernels with v in fp8, then of those with v in fp16.
MOST_RMS = {"normal": 0.041, "sinks": 0.047, "outliers": 0.0035}
OF_SCORES = {"normal": 0.0125, "sinks": 0.026, "outliers": 0.0006}


@pytest.mark.parametrize("values", MOST_RMS)
@of_kernels(["one tile"])
def test_errors_against_attention_of_the_given_numbers(machines, name, values):
    case = replace(case_of(machines, name), queries=16, keys=1024, heads=(4, 4), values=values)
    call = run(machines[0], machines[1], case)
    errors = squares = 0.0
    for place, out, _ in results(call, step=2):
        wanted, _, _ = exact(call, *place, coded=False)
        errors += sum((x - y) ** 2 for x, y in zip(out, wanted, strict=True))
        squares += sum(y * y for y in wanted)
    most = MOST_RMS if case.of_v else OF_SCORES
    assert math.sqrt(errors / squares) <= most[values]
