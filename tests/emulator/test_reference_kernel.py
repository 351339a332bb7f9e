"""fa_reference_*: any head dim, any strides, every feature, executed with all sanitizers on."""

import struct

import pytest

from tests.emulator.features import Call, Running, check, contiguous
from wheel_builder.emulator.machine import Launch, Options, load_machine

ARCHS = ("gfx908", "gfx942", "gfx1030", "gfx1100")
DTYPES = ("fp16", "bf16")
FAR = (1 << 31) + 3  # elements: more than 2^32 bytes, and aligned to nothing


def far_batches(_, shape):
    return FAR, *contiguous(shape)[1:]


@pytest.fixture(scope="module")
def machines(core, device_code, disassembled):
    loaded = {}

    def load(arch, dtype):
        if (arch, dtype) not in loaded:
            code = device_code(arch) / f"fa_reference_{dtype}.hsaco"
            loaded[arch, dtype] = load_machine(core, code, disassembled(code))
        return loaded[arch, dtype]

    return load


@pytest.fixture(params=ARCHS)
def run(machines, request):
    def run_(call, blocks=0):
        running = Running(call)
        machine = machines(request.param, call.dtype)
        name = f"fa_reference_{call.dtype}"
        blocks = blocks or call.seqlen_q
        launch = Launch((blocks, call.nheads, call.batch), (machine.kernels[name].max_threads, 1, 1))
        arguments = running.params() + struct.pack("<ii", call.head_dim, blocks)
        result = machine.run(name, launch, arguments, running.memory(), Options(seed=call.seed))
        check(running, result, plain=True)

    return run_


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_length_around_a_wave(run, dtype):
    for length in range(71):
        run(Call(dtype, 8 + length % 5, 2, length, right=0 if length % 2 else -1, seed=length))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [1, 2, 31, 33, 63, 64, 65, 127, 128, 129, 255, 256])
def test_any_head_dim(run, dtype, head_dim):
    run(Call(dtype, head_dim, 2, 21, nheads=2, seed=head_dim, skew=head_dim % 3, dropout_p=0.3))


def test_rows_that_see_nothing(run):
    run(Call("fp16", 24, 9, 4, right=0))
    run(Call("bf16", 24, 3, 40, left=2, right=1))
    run(Call("fp16", 24, 70, 3, left=0, right=0), blocks=4)


@pytest.mark.parametrize("name", ["q", "k", "v", "out"])
@pytest.mark.parametrize("dimension", range(3))
def test_strides_beyond_32_bits(run, name, dimension):
    def layout(tensor, shape):
        strides = list(contiguous(shape))
        if tensor == name:
            strides[dimension] = FAR * (1 if dimension else shape[1])
        return tuple(strides)

    run(Call("fp16", 20, 3, 3, batch=2, nheads=2, nheads_k=2, layout=layout, right=0))


def test_expanded_keys(run):
    """One key head for all, one sequence for all: strides of 0."""

    def layout(tensor, shape):
        batch, row, head = contiguous(shape)
        return {"k": (0, row, 0), "v": (0, 0, head)}.get(tensor, (batch, row, head))

    run(Call("bf16", 40, 2, 9, batch=2, nheads=4, nheads_k=2, layout=layout))


def test_odd_strides_and_bases(run):
    run(Call("fp16", 33, 3, 70, batch=2, nheads=2, skew=1, layout=lambda _, s: (s[1] * 77, 77, 35)))


def test_rows_of_a_cache(run):
    run(Call("fp16", 16, 2, 9, batch=3, right=0, cache_rows=(4, 0, 4), cache_size=5))


def test_a_far_row_of_a_cache(run):
    run(Call("fp16", 16, 1, 3, batch=2, cache_rows=(2, 1), cache_size=3, layout=far_batches))


@pytest.mark.parametrize("layout", [None, far_batches])
def test_pages(run, layout):
    pages = ((3, 0, 2), (1, 1, 4))
    run(Call("bf16", 16, 3, 0, batch=2, nheads=2, right=0, page=16, pages=pages, num_pages=5, layout=layout))


@pytest.mark.parametrize("p", [1e-9, 0.17, 0.999])
def test_dropout(run, p):
    run(Call("fp16", 24, 9, 75, batch=2, nheads=4, nheads_k=2, right=0, dropout_p=p))
