"""The model of AMD's assembly forwards, beside their published rates.  Fetched from the registry."""

import json

import pytest

from tests.conftest import CHECKOUT
from tests.engine.emulator import amd_assembly
from tests.engine.perf.conftest import MAX_MIB
from wheel_builder.extras.perf.counters import through
from wheel_builder.extras.perf.published import ERRORS, PRODUCTS, RATES, Kernel, read_rates, report
from wheel_builder.extras.perf.run import model

pytestmark = pytest.mark.full
LENGTHS = (512, 2048)
DEFAULT = {"gfx942": "rtna", "gfx950": ""}  # the rounding of AMD's benchmark
CAUSAL_HEADS = 8  # the order of work needs a multiple of 8


def tensor(name, heads, seqlen, fill="normal"):
    return {"name": name, "dtype": "bf16", "shape": [heads, seqlen, amd_assembly.OF_V], "fill": fill}


def padded(argument, kind):
    """An argument and zeros up to 16 bytes."""
    zero = {"kind": "i64" if kind == "Q" else "i32", "value": 0}
    return [argument, *[zero] * (1 if kind == "Q" else 3)]


def described(forward):
    """The launch as ``perf`` reads it: its first workgroup's useful work is that of each."""
    seqlen, heads = forward.seqlen, forward.heads
    tensors = iter([
        tensor("out", heads, seqlen, "output"),
        *(tensor(name, heads, seqlen) for name in "qkv"),
        {"name": "lse", "dtype": "fp32", "shape": [heads, seqlen], "fill": "output"},
    ])  # fmt: skip
    arguments = []
    for kind, value in forward.arguments():
        number = {"kind": {"Q": "i64", "I": "i32", "f": "f32"}[kind], "value": value}
        arguments += padded(next(tensors) if value is None else number, kind)
    launch = forward.launch
    pairs = seqlen * (seqlen + 1) // 2 if forward.causal else seqlen * seqlen
    op = "fwd causal" if forward.causal else "fwd"
    return {
        "label": f"aiter {forward.rounding}", "kernel": forward.kernel, "op": op, "dtype": "bf16",
        "head_dim": amd_assembly.OF_V, "grid": launch.grid, "block": launch.block,
        "flop": 4 * amd_assembly.OF_V * pairs // launch.grid[0], "arguments": arguments,
    }  # fmt: skip


@pytest.fixture(scope="session")
def rows(bench, tmp_path_factory):
    """Both models of each kernel in AMD's benchmark, by forward."""
    folder, found = tmp_path_factory.mktemp("aiter"), {}
    wheel = amd_assembly.fetched(folder)
    for seqlen in LENGTHS:
        for causal in (False, True):
            heads = CAUSAL_HEADS if causal else 1
            for forward in amd_assembly.forwards(seqlen, heads, heads):
                if forward.causal != causal or forward.rounding != DEFAULT[forward.arch]:
                    continue
                file = folder / f"{forward.arch}_{forward.name}_{seqlen}.hsaco"
                file.write_bytes(amd_assembly.code_object(wheel, forward))
                launches = file.with_name(f"{file.name}.launch.json")
                launches.write_text(json.dumps([described(forward)]))
                (found[forward],) = model(file, bench, max_mib=MAX_MIB, only_figures=True)
    return found


def kernel(rows, arch, causal):
    """Through the modelled lengths."""
    near, far = (
        row
        for forward, row in sorted(rows.items(), key=lambda item: item[0].seqlen)
        if (forward.arch, forward.causal) == (arch, causal)
    )
    flop = through(*zip(LENGTHS, (near.flop, far.flop), strict=True))
    clocks = [
        through(*((n, getattr(row.charged[0], which).clocks_per_workgroup) for n, row in both))
        for both in [list(zip(LENGTHS, (near, far), strict=True))]
        for which in ("schedule", "exclusive")
    ]
    return Kernel(flop, tuple(clocks))


def test_the_error_against_published_rates(rows, golden):
    """The golden file shows the schedule's error, so no tolerance hides it."""
    kernels = {
        (product, causal): kernel(rows, arch, causal)
        for product, arch in PRODUCTS.items()
        for causal in (False, True)
    }
    golden(report(read_rates(CHECKOUT / RATES), kernels), ERRORS)
