"""AMD's assembly backwards compute gradients: executed as released, compared with float64."""

import functools
import random
import struct
from itertools import chain

import pytest

from tests.engine.emulator import amd_assembly
from tests.engine.emulator.amd_backward import Shuffle, backwards
from tests.engine.perf.gradients import gradients, saved
from wheel_builder.machine_code.emulator.formats import decode, encode, rounded
from wheel_builder.machine_code.emulator.machine import Machine, Options
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.rule import tolerances

pytestmark = pytest.mark.full
TILES, HEADS = 2, 2
# Two waves load the same rows of lse and delta to the same place of the LDS. A causal workgroup of gfx950 has
# two tiles of keys. The second one's first stores to LDS follow the first one's last reads without a barrier:
# in step no wave is that late.
RACES = ("lds-race",)
IN_STEP = 1  # quantum


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    return functools.cache(lambda: amd_assembly.fetched(tmp_path_factory.mktemp("aiter")))


@functools.cache
def tensors(seqlen, head_dim):
    """q, k, v and dout by head, as rows of bf16 numbers."""
    draw = random.Random(11)

    def heads(dim):
        return [[rounded([draw.gauss(0, 1) for _ in range(dim)], "bf16") for _ in range(seqlen)]
                for _ in range(HEADS)]  # fmt: skip

    return heads(head_dim), heads(head_dim), heads(amd_assembly.OF_V), heads(amd_assembly.OF_V)


@functools.cache
def reference(seqlen, head_dim, causal, low):
    """dq, dk and dv of the heads, in float64, or as plain operations of bf16 compute them."""
    by_head = (
        gradients(*head, head_dim**-0.5, "bf16" if low else "", causal=causal)
        for head in zip(*tensors(seqlen, head_dim), strict=True)
    )
    return [flat(heads) for heads in zip(*by_head, strict=True)]


def flat(heads):
    return [x for rows in heads for row in rows for x in row]


@functools.cache
def saved_rows(seqlen, head_dim, causal):
    """The forward's log-sum-exps and the deltas, as fp32 in memory."""
    by_head = [
        saved(*head, head_dim**-0.5, causal=causal) for head in zip(*tensors(seqlen, head_dim), strict=True)
    ]
    return [
        Memory.of(struct.pack(f"<{HEADS * seqlen}f", *chain.from_iterable(heads)), name, readonly=True)
        for name, heads in zip(("lse", "delta"), zip(*by_head, strict=True), strict=True)
    ]


def executed(machine, kernel, memory, **options):
    assert not machine.missing, "\n".join(machine.missing)
    packed = kernel.packed(each.address for each in memory)
    result = machine.run(kernel.kernel, kernel.launch, packed, memory, Options(seed=3, **options))
    assert not result.error, result.error
    return result


@pytest.fixture
def loaded(wheel, core, disassembled, tmp_path):
    """``loaded(kernel)``: its code object of the wheel."""

    def load(kernel):
        file = tmp_path / f"{kernel.name}.co"
        file.write_bytes(amd_assembly.code_object(wheel(), kernel))
        return Machine(core, file.read_bytes(), disassembled(file))

    return load


@pytest.mark.parametrize("backward", [*backwards(TILES, HEADS)], ids=lambda b: f"{b.arch}-{b.name}")
def test_backward(backward, loaded):
    shape = backward.seqlen, backward.head_dim
    q, k, v, dout = (
        Memory.of(encode(flat(heads), "bf16"), name, readonly=True)
        for name, heads in zip(("q", "k", "v", "dout"), tensors(*shape), strict=True)
    )
    size = 2 if backward.atomics == "a16" else 4
    sums = Memory.of(bytes(q.size // 2 * size), "dq")
    dk, dv = Memory.output(k.size, "dk"), Memory.output(v.size, "dv")
    memory = (sums, dk, dv, q, k, v, dout, *saved_rows(*shape, backward.causal))
    result = executed(loaded(backward), backward, memory, quantum=IN_STEP)
    assert result.kinds() == RACES, "\n".join(map(str, result.findings))

    dq = decode(sums.read(), "bf16") if size == 2 else sums.values("f")
    if backward.is_shuffled:
        ordered = Memory.output(sums.size, "ordered")
        shuffle = Shuffle(backward)
        executed(loaded(shuffle), shuffle, (sums, ordered)).raise_on_findings()
        dq = decode(ordered.read(), "bf16")
    found = {"dq": dq, "dk": decode(dk.read(), "bf16"), "dv": decode(dv.read(), "bf16")}
    both = (reference(*shape, backward.causal, low) for low in (False, True))
    for (name, values), exact, low in zip(found.items(), *both, strict=True):
        worst, plain = farthest(values, exact), farthest(low, exact)
        print(f"{backward.arch} {backward.name} {name}: {worst:.4f} (plain {plain:.4f})")  # noqa: T201
        assert worst <= tolerances.allowed(
            plain, terms=backward.seqlen, largest=max(map(abs, exact)), factor=tolerances.GRADIENT_FACTOR
        )


def farthest(some, others):
    return max(abs(x - y) for x, y in zip(some, others, strict=True))
