"""The peer computes attention and its gradients: executed on an ISA emulator, compared with float64.

It follows the numerics rule of our kernels (the package's values/tolerances.py).
"""

import functools
import math
import random

import pytest

from tests.engine.perf.conftest import PEERED
from tests.engine.perf.gradients import columns, gradients, product
from wheel_builder.machine_code.emulator.formats import decode, encode, rounded
from wheel_builder.machine_code.emulator.machine import Options
from wheel_builder.machine_code.emulator.memory import Memory, f32, i32, memories, pack_arguments
from wheel_builder.machine_code.emulator.reference import attend, dot
from wheel_builder.machine_code.emulator.rule import tolerances

SEQLEN = 128  # a multiple of every tile, and at least two tiles of keys
LOG2E = math.log2(math.e)
HIDDEN = (b"\0" * 8, b"\0" * 8)  # addresses of Triton's own scratch buffers, unused


@functools.cache
def tensors(dtype, head_dim):
    """q, k, v and dout as rows of numbers representable in the dtype."""
    draw = random.Random(7)

    def rows():
        return [rounded([draw.gauss(0, 1) for _ in range(head_dim)], dtype) for _ in range(SEQLEN)]

    return rows(), rows(), rows(), rows()


def memory(rows, dtype, name):
    return Memory.of(encode([x for row in rows for x in row], dtype), name, readonly=True)


def output(head_dim, name):
    return Memory.output(2 * SEQLEN * head_dim, name)


def call(kernel, *arguments):
    """Run the whole grid. Any finding of the emulator fails the test."""
    packed = pack_arguments([*arguments, *HIDDEN])
    options = Options(checks=("race", "barrier"))
    result = kernel.machine.run(
        kernel.row["kernel"], kernel.launch(SEQLEN), packed, memories(arguments), options
    )
    assert not result.error
    result.raise_on_findings()


def check(found, exact, low, dtype, **rule):
    """Compare ``found`` memory with rows of numbers."""
    exact, low = ([x for row in rows for x in row] for rows in (exact, low))
    plain, worst = (max(map(abs, map(float.__sub__, exact, x))) for x in (low, decode(found.read(), dtype)))
    assert worst <= tolerances.allowed(plain, **rule)


def largest(rows):
    return max(abs(x) for row in rows for x in row)


def gradient_sizes(q, k, v, dout, scale):
    """The largest factors of the weights of dq, dk and dv."""
    dp = largest(product(*([[abs(x) for x in row] for row in rows] for rows in (dout, v)))) * scale
    return dp * largest(k), dp * largest(q), largest(dout)


@functools.cache
def forward_reference(dtype, head_dim, causal, low):
    q, k, v, _ = tensors(dtype, head_dim)
    seen = [i + 1 if causal else SEQLEN for i in range(SEQLEN)]
    return [
        attend(row, k[:n], columns(v[:n]), head_dim**-0.5, dtype if low else "")
        for row, n in zip(q, seen, strict=True)
    ]


@functools.cache
def gradient_reference(dtype, head_dim, low):
    return gradients(*tensors(dtype, head_dim), head_dim**-0.5, dtype if low else "")


def forward(kernel, dtype, head_dim, *mask):
    q, k, v, _ = tensors(dtype, head_dim)
    out, lse = output(head_dim, "out"), Memory.output(4 * SEQLEN, "lse")
    inputs = (memory(rows, dtype, name) for rows, name in ((q, "q"), (k, "k"), (v, "v")))
    call(kernel, *inputs, *mask, out, lse, i32(SEQLEN), i32(SEQLEN), f32(head_dim**-0.5 * LOG2E))
    return out, lse


@pytest.mark.full
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("arch", PEERED)
def test_forward(peer_kernel, arch, causal, dtype, head_dim):
    name = "fwd_causal" if causal else "fwd"
    out, lse = forward(peer_kernel(arch, f"{name}_{dtype}_d{head_dim}"), dtype, head_dim)
    exact, low = (forward_reference(dtype, head_dim, causal, which) for which in (False, True))
    rule = {"terms": SEQLEN, "largest": largest(tensors(dtype, head_dim)[2]), "factor": tolerances.OUT_FACTOR}
    check(out, [row.out for row in exact], [row.out for row in low], dtype, **rule)
    assert lse.values("f") == pytest.approx([row.lse * LOG2E for row in exact], rel=1e-5)


@functools.cache
def masked_reference(head_dim, low):
    q, k, v, _ = tensors("fp16", head_dim)
    dtype = "fp16" if low else ""
    return [
        attend(row, seen_of(i, k), columns(seen_of(i, v)), head_dim**-0.5, dtype) for i, row in enumerate(q)
    ]


def shows(row, key):
    """The first rows of this mask hide whole tiles of keys, before a visible one."""
    return (row * 5 + key * 3) % 7 < 3 and key >= 100 - row


def seen_of(row, rows):
    return [each for key, each in enumerate(rows) if shows(row, key)]


@pytest.mark.full
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("kind", ["bool", "bias"])
@pytest.mark.parametrize("arch", PEERED)
def test_masked(peer_kernel, arch, kind, head_dim):
    shown = [shows(row, key) for row in range(SEQLEN) for key in range(SEQLEN)]
    data = bytes(shown) if kind == "bool" else encode([0.0 if each else -math.inf for each in shown], "fp16")
    mask = Memory.of(data, "mask", readonly=True)
    kernel = peer_kernel(arch, f"fwd_masked_{kind}_fp16_d{head_dim}")
    out, lse = forward(kernel, "fp16", head_dim, mask)
    exact, low = (masked_reference(head_dim, which) for which in (False, True))
    rule = {
        "terms": SEQLEN,
        "largest": largest(tensors("fp16", head_dim)[2]),
        "factor": tolerances.OUT_FACTOR,
    }
    check(out, [row.out for row in exact], [row.out for row in low], "fp16", **rule)
    assert lse.values("f") == pytest.approx([row.lse * LOG2E for row in exact], rel=1e-5, abs=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("arch", PEERED)
def test_backward(peer_kernel, arch, head_dim):
    dtype, scale = "fp16", head_dim**-0.5
    out, lse = forward(peer_kernel(arch, f"fwd_{dtype}_d{head_dim}"), dtype, head_dim)
    q, k, v, dout = (
        memory(rows, dtype, name) for rows, name in zip(tensors(dtype, head_dim), "qkvd", strict=True)
    )
    delta = Memory.output(4 * SEQLEN, "delta")
    dq, dk, dv = (output(head_dim, name) for name in ("dq", "dk", "dv"))
    sizes = (i32(SEQLEN), i32(SEQLEN), f32(scale * LOG2E), f32(scale))
    call(peer_kernel(arch, f"bwd_delta_{dtype}_d{head_dim}"), out, dout, delta, i32(SEQLEN))
    call(peer_kernel(arch, f"bwd_dkdv_{dtype}_d{head_dim}"), q, k, v, dout, lse, delta, dk, dv, *sizes)
    call(peer_kernel(arch, f"bwd_dq_{dtype}_d{head_dim}"), q, k, v, dout, lse, delta, dq, *sizes)
    exact, low = (gradient_reference(dtype, head_dim, which) for which in (False, True))
    sizes = gradient_sizes(*tensors(dtype, head_dim), scale)
    for found, want, plain, size in zip((dq, dk, dv), exact, low, sizes, strict=True):
        check(
            found,
            want,
            plain,
            dtype,
            terms=tolerances.WEIGHT_ROUNDINGS,
            largest=size,
            factor=tolerances.GRADIENT_FACTOR,
        )


def test_the_gradients_are_those_of_finite_differences():
    """The reference itself, in float64, on a problem small enough to differentiate."""
    draw = random.Random(3)
    q, k, v, dout = ([[draw.gauss(0, 1) for _ in range(4)] for _ in range(5)] for _ in range(4))
    found = gradients(q, k, v, dout, 0.5)

    def loss():
        return sum(
            dot(attend(row, k, columns(v), 0.5).out, weight) for row, weight in zip(q, dout, strict=True)
        )

    step = 1e-5
    for rows, gradient in zip((q, k, v), found, strict=True):
        for row, wanted in zip(rows, gradient, strict=True):
            for i, want in enumerate(wanted):
                kept = row[i]
                row[i] = kept + step
                above = loss()
                row[i] = kept - step
                below = loss()
                row[i] = kept
                assert (above - below) / (2 * step) == pytest.approx(want, abs=1e-7)
