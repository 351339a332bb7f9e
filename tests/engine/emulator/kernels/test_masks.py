"""fa_fwd_masked_*, with every kind of mask, against float64."""

import math
from itertools import product

import pytest

from tests.engine.emulator.kernels.masks import CLAMPED, LEAST, Masked, exact, run
from wheel_builder.machine_code.emulator.attention import Case
from wheel_builder.machine_code.emulator.machine import load_machine
from wheel_builder.tables.archs import known_archs

ARCHS = tuple(known_archs())
# Twice the cost of rounding P and out, for values up to 4.
OUT = {"fp16": 2.0**-8, "bf16": 2.0**-5}
LSE = 3e-5
GROUPED = {"batch": 2, "nheads": 4, "nheads_k": 2}


# Rows, keys, more of the case. Then kind, broadcast dimensions, hidden keys, hiding value, and window.
CALLS = {
    "bool": (37, 88, GROUPED, "bytes"),
    "bool, one for all, tail": (19, 75, {"nheads": 2, "nheads_k": 2}, "bytes", "bhi"),
    "bool, window": (40, 88, {}, "bytes", "h", "", -math.inf, (20, 3)),
    "bool, waves that begin later": (140, 170, {}, "bytes", "", "", -math.inf, (20, 3)),
    "bool, rows that see nothing": (37, 40, {}, "bytes", "", "rows"),
    "bool, left padding, strides": (70, 136, {"pad": 8, **GROUPED}, "bytes", "", "left"),
    "bool of sequences, right padding, tail": (70, 131, GROUPED, "bytes", "h", "right"),
    "bool of keys, right padding, causal": (40, 160, GROUPED, "bytes", "hi", "right", -math.inf, (-1, 0)),
    "bool, blocks": (130, 99, {}, "bytes", "bh", "other blocks"),
    "bool, later keys": (97, 130, {"nheads": 2, "nheads_k": 1}, "bytes", "bh", "later"),
    "bool, nothing hidden, window": (40, 130, {}, "bytes", "h", "none", -math.inf, (20, 70)),
    "bool, one row": (1, 200, GROUPED, "bytes", "", "right"),
    "bool, one key hidden": (40, 160, {}, "bytes", "bh", "one"),
    "bool, all hidden": (100, 70, {"nheads": 2, "nheads_k": 2}, "bytes", "h", "all"),
    "bias": (37, 88, GROUPED, "elements", "", "rows"),
    "bias, causal, tail": (70, 75, {}, "elements", "bh", "", -math.inf, (-1, 0)),
    "bias, waves that begin later": (140, 170, {}, "elements", "b", "", -math.inf, (9, 0)),
    "bias of keys": (19, 88, GROUPED, "elements", "hi", "right"),
    "bias, left padding far below": (19, 88, {}, "elements", "hi", "left", "least"),
    "fp32": (37, 88, GROUPED, "fp32"),
    "fp32, left padding": (19, 88, {}, "fp32", "hi", "left", -1e9),
    "fp32, left padding far below": (19, 88, {}, "fp32", "i", "left", "least"),
    "fp32, rows far below": (37, 40, {}, "fp32", "b", "rows", "least"),
}


def made(call, dtype, head_dim):
    rows, keys, more, kind, *mask = CALLS[call]
    least = LEAST["fp32" if kind == "fp32" else dtype]
    mask = [least if each == "least" else each for each in mask]
    return Masked(Case(dtype, head_dim, rows, keys, **more), kind, *mask)


def kernels_and_calls():
    """Each call on each kernel. Without --full on two of the four, in turn."""
    kernels = [("fp16", 64), ("fp16", 128), ("bf16", 128), ("bf16", 64)]
    for (number, call), (which, kernel) in product(enumerate(CALLS), enumerate(kernels)):
        marks = [] if (number + which) % 2 == 0 else pytest.mark.full
        yield pytest.param(*kernel, call, marks=marks)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("dtype", "head_dim", "call"), list(kernels_and_calls()))
def test_out_and_log_sum_exp(core, device_code, disassembled, arch, dtype, head_dim, call):
    masked = made(call, dtype, head_dim)
    code = device_code(arch) / f"{masked.kernel}.hsaco"
    before = code.with_name("fa_mask_ranges_fp16.hsaco")
    machines = (load_machine(core, each, disassembled(each)) for each in (code, before))
    done = run(*machines, arch, masked)
    out, lse = done.out.values(), done.lse.values("f")
    heads, length = masked.case.nheads, masked.case.seqlen_q
    for (b, h, i), wanted, wanted_lse in exact(masked):
        found, found_lse = done.out.at(out, b, i, h), lse[(b * heads + h) * length + i]
        if wanted_lse == math.inf:
            assert list(found) == wanted
            assert found_lse == math.inf
            continue
        worst = max(abs(x - y) for x, y in zip(found, wanted, strict=True))
        assert worst <= OUT[dtype], (b, h, i)
        # A row filled with the least number has the mean of v. Its log-sum-exp may be cut off.
        near = abs(found_lse - wanted_lse) <= LSE * max(1.0, abs(wanted_lse))
        assert near or wanted_lse < found_lse <= CLAMPED * (1 - LSE), (b, h, i)
