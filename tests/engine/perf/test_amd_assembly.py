"""The model of AMD's assembly kernels, beside their published rates.  Fetched from the registry."""

import json
from operator import attrgetter

import pytest

from tests.conftest import CHECKOUT
from tests.engine.emulator import amd_assembly
from tests.engine.emulator.amd_backward import KEYS, Backward
from tests.engine.perf.conftest import MAX_MIB
from wheel_builder.extras.perf.counters import through
from wheel_builder.extras.perf.published import ERRORS, OPS, PRODUCTS, RATES, Kernel, read_rates, report
from wheel_builder.extras.perf.run import model

pytestmark = pytest.mark.full
HEAD_DIM = amd_assembly.OF_V  # of all published rates
LENGTHS = (512, 2048)
TILES = (2, 8)  # of keys, for a backward
DEFAULT = {"gfx942": "rtna", "gfx950": ""}  # the rounding of AMD's benchmark
CAUSAL_HEADS = 8  # of a forward: its order of work needs a multiple of 8
MATRIX_PRODUCTS = {"fwd": 2, "bwd": 5}
LSE = 6.7  # typical of 512 keys
CHARGED = ("schedule", "port", "exclusive")  # as published.LINES


def tensor(name, kernel, dtype="bf16", fill="normal"):
    return {"name": name, "dtype": dtype, "shape": [kernel.heads, kernel.seqlen, HEAD_DIM], "fill": fill}


def of_rows(name, kernel, fill):
    return {"name": name, "dtype": "fp32", "shape": [kernel.heads, kernel.seqlen], "fill": fill}


def of_forward(forward):
    """The tensors, in the order of the arguments."""
    yield tensor("out", forward, fill="output")
    yield from (tensor(name, forward) for name in "qkv")
    yield of_rows("lse", forward, "output")


def of_backward(backward):
    yield tensor("dq", backward, "bf16" if backward.atomics == "a16" else "fp32", 0.0)
    yield from (tensor(name, backward, fill="output") for name in ("dk", "dv"))
    yield from (tensor(name, backward) for name in ("q", "k", "v", "dout"))
    yield from (of_rows("lse", backward, LSE), of_rows("delta", backward, "normal"))


def padded(argument, kind):
    """An argument and zeros up to 16 bytes."""
    zero = {"kind": "i64" if kind == "Q" else "i32", "value": 0}
    return [argument, *[zero] * (1 if kind == "Q" else 3)]


def described(kernel, op, tensors):
    """The launch as ``perf`` reads it: its first workgroup's useful work is that of each."""
    seqlen, arguments = kernel.seqlen, []
    for kind, value in kernel.arguments():
        number = {"kind": {"Q": "i64", "I": "i32", "f": "f32"}[kind], "value": value}
        arguments += padded(next(tensors) if value is None else number, kind)
    launch = kernel.launch
    pairs = seqlen * (seqlen + 1) // 2 if kernel.causal else seqlen * seqlen
    flop = 2 * MATRIX_PRODUCTS[op] * HEAD_DIM * pairs
    return {
        "label": f"aiter {kernel.name}", "kernel": kernel.kernel,
        "op": f"{op} causal" if kernel.causal else op, "dtype": "bf16",
        "head_dim": HEAD_DIM, "grid": launch.grid, "block": launch.block,
        "flop": flop // launch.grid[0], "arguments": arguments,
    }  # fmt: skip


def forwards(arch, causal):
    heads = CAUSAL_HEADS if causal else 1
    return [amd_assembly.Forward(arch, DEFAULT[arch], causal, seqlen, heads, heads) for seqlen in LENGTHS]


def backwards(arch, atomics, causal):
    keys = KEYS[arch, HEAD_DIM]
    return [Backward(arch, atomics, causal, tiles * keys, 1) for tiles in TILES]


@pytest.fixture(scope="session")
def row(bench, tmp_path_factory):
    """``row(kernel)``: its schedules."""
    folder = tmp_path_factory.mktemp("aiter")
    wheel = amd_assembly.fetched(folder)

    def modelled(kernel):
        op, tensors = ("bwd", of_backward) if isinstance(kernel, Backward) else ("fwd", of_forward)
        file = folder / f"{kernel.arch}_{kernel.name}_{kernel.seqlen}.hsaco"
        file.write_bytes(amd_assembly.code_object(wheel, kernel))
        launches = file.with_name(f"{file.name}.launch.json")
        launches.write_text(json.dumps([described(kernel, op, tensors(kernel))]))
        (found,) = model(file, bench, max_mib=MAX_MIB)
        return found

    return modelled


def clocks_by(schedule):
    return lambda row: getattr(row.charged[0], schedule).clocks_per_workgroup


def through_lengths(near, far):
    """A kernel through two lengths, each with its row."""

    def line(value):
        return through(*((length, value(row)) for length, row in (near, far)))

    flop, *clocks = (line(value) for value in (attrgetter("flop"), *map(clocks_by, CHARGED)))
    return Kernel(flop, tuple(clocks))


def of_op(op, arch, causal):
    """A kernel of AMD's benchmark at two lengths."""
    if op == "fwd":
        return forwards(arch, causal)
    return backwards(arch, op.removeprefix("bwd_"), causal)


def test_the_error_against_published_rates(row, golden):
    """The golden file shows the schedule's error, so no tolerance hides it."""
    kernels = {
        (product, op, causal): through_lengths(*((of.seqlen, row(of)) for of in of_op(op, arch, causal)))
        for product, arch in PRODUCTS.items()
        for op in OPS
        for causal in (False, True)
    }
    golden(report(read_rates(CHECKOUT / RATES), kernels), ERRORS)
