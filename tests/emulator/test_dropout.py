"""Dropout in the forward kernels: what it drops is what the definition says, on every arch and head dim."""

import pytest

from tests.emulator.features import Call, Running, check, contiguous
from wheel_builder.emulator.attention import Case
from wheel_builder.emulator.command import open_machine, tile_of
from wheel_builder.emulator.machine import Launch, Options

ARCHS = ("gfx908", "gfx942", "gfx1030", "gfx1100")
SHAPES = (
    {"seqlen_q": 3, "seqlen_k": 69, "batch": 2, "nheads": 2, "nheads_k": 1, "right": 0, "dropout_p": 0.3},
    {"seqlen_q": 18, "seqlen_k": 35, "left": 9, "right": 2, "dropout_p": 0.6},
)


@pytest.fixture
def run(workshop, device_code):
    def run_(arch, call):
        name = f"fa_fwd_{call.dtype}_d{call.head_dim}"
        machine = open_machine((device_code(arch) / f"{name}.hsaco").read_bytes(), name, workshop)
        case = Case(call.dtype, call.head_dim, call.seqlen_q, call.seqlen_k)
        tile, running = tile_of(arch, case, workshop), Running(call)
        grid = (-(-call.seqlen_q // tile.block_m), call.nheads, call.batch)
        launch = Launch(grid, (tile.threads, 1, 1))
        return running, machine.run(name, launch, running.params(), running.memory(), Options(seed=1))

    return run_


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s['seqlen_q']}x{s['seqlen_k']}")
@pytest.mark.parametrize("head_dim", [32, 64, 96, 128, 192, 256])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("arch", ARCHS)
def test_dropout(run, arch, dtype, head_dim, shape):
    running, result = run(arch, Call(dtype, head_dim, scale=head_dim**-0.5, **shape))
    check(running, result, plain=False)


@pytest.mark.parametrize("arch", ARCHS)
def test_another_batch_and_head_drops_others(run, arch):
    """The comparison itself: two sequences that are equal come out different."""

    def equal(name, shape):
        batch, row, head = contiguous(shape)
        return (batch if name == "out" else 0, row, head)

    running, result = run(arch, Call("fp16", 64, 4, 40, batch=2, dropout_p=0.5, layout=equal))
    check(running, result, plain=False)
    assert running.out[0, 0, 0] != running.out[1, 0, 0]
    assert running.lse.values("f")[:4] == running.lse.values("f")[4:]
