"""fa_fwd_masked_*, with every kind of mask, against float64: what the public functions cannot ask for included."""

import math

import pytest

from tests.emulator.masks import CLAMPED, LEAST, Masked, exact, run
from wheel_builder.base.archs import known_archs
from wheel_builder.emulator.attention import Case
from wheel_builder.emulator.machine import load_machine

ARCHS = tuple(known_archs())
# Twice what rounding P and out costs, of values up to 4.
OUT = {"fp16": 2.0**-8, "bf16": 2.0**-5}
LSE = 3e-5
GROUPED = {"batch": 2, "nheads": 4, "nheads_k": 2}


def case(dtype, head_dim, rows, keys, **more):
    return Case(dtype, head_dim, rows, keys, **more)


CALLS = {
    "bool": lambda dtype, dim: Masked(case(dtype, dim, 37, 88, **GROUPED), "bytes"),
    "bool, one for all, tail": lambda dtype, dim: Masked(case(dtype, dim, 19, 75, nheads=2, nheads_k=2), "bytes", "bhi"),
    "bool, window": lambda dtype, dim: Masked(case(dtype, dim, 40, 88), "bytes", "h", window=(20, 3)),
    "bool, rows that see nothing": lambda dtype, dim: Masked(case(dtype, dim, 37, 40), "bytes", hides="rows"),
    "bias": lambda dtype, dim: Masked(case(dtype, dim, 37, 88, **GROUPED), "elements", hides="rows"),
    "bias, causal, tail": lambda dtype, dim: Masked(case(dtype, dim, 70, 75), "elements", "bh", window=(-1, 0)),
    "bias of keys": lambda dtype, dim: Masked(case(dtype, dim, 19, 88, **GROUPED), "elements", "hi", "right"),
    "bias, left padding far below": lambda dtype, dim: Masked(case(dtype, dim, 19, 88), "elements", "hi", "left", LEAST[dtype]),
    "fp32": lambda dtype, dim: Masked(case(dtype, dim, 37, 88, **GROUPED), "fp32"),
    "fp32, left padding": lambda dtype, dim: Masked(case(dtype, dim, 19, 88), "fp32", "hi", "left", -1e9),
    "fp32, left padding far below": lambda dtype, dim: Masked(case(dtype, dim, 19, 88), "fp32", "i", "left", LEAST["fp32"]),
    "fp32, rows far below": lambda dtype, dim: Masked(case(dtype, dim, 37, 40), "fp32", "b", "rows", LEAST["fp32"]),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("arch", ARCHS)
def test_out_and_log_sum_exp(core, device_code, disassembled, arch, dtype, head_dim, call):
    masked = CALLS[call](dtype, head_dim)
    code = device_code(arch) / f"{masked.kernel}.hsaco"
    done, rows = run(load_machine(core, code, disassembled(code)), arch, masked)
    out, lse = done.out.values(), done.lse.values("f")
    heads, length = masked.case.nheads, masked.case.seqlen_q
    for (b, h, i), wanted, wanted_lse in exact(masked, done, rows):
        found, found_lse = done.out.at(out, b, i, h), lse[(b * heads + h) * length + i]
        if wanted_lse == math.inf:
            assert list(found) == wanted
            assert found_lse == math.inf
            continue
        worst = max(abs(x - y) for x, y in zip(found, wanted, strict=True))
        assert worst <= OUT[dtype], (b, h, i)
        # A whole row of the least number has the mean of v, and a log-sum-exp that may be cut off.
        near = abs(found_lse - wanted_lse) <= LSE * max(1.0, abs(wanted_lse))
        assert near or wanted_lse < found_lse <= CLAMPED * (1 - LSE), (b, h, i)
