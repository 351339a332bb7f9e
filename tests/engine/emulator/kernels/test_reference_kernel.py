"""fa_reference_* with arguments out of reach of tests/installed/numerics.

Rows of out are more than 32 bits of bytes apart, and there are fewer workgroups than rows.  Each row of out
has a separate memory.
"""

import ctypes
import mmap

import pytest

from wheel_builder.machine_code.emulator.attention import Case, make_call, reference_rows
from wheel_builder.machine_code.emulator.formats import decode
from wheel_builder.machine_code.emulator.machine import Launch, Options, load_machine
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.machine_code.emulator.rule import tolerances
from wheel_builder.tables.archs import known_archs

ARCHS = tuple(known_archs())
FAR = (1 << 31) + 3  # elements: more than 2^32 bytes, and unaligned
SPACE = 1 << 36  # bytes of address space. Only rows are ever touched
MAP_NORESERVE = 0x4000  # Linux. The mmap module has no name for it
CASE = Case("fp16", 20, 3, 5, batch=2, nheads=2, nheads_k=2, causal=True)
NEAR = {"o_batch": 120, "o_row": 40, "o_head": 20}


class Placed(Memory):
    """Uninitialised memory at a given address."""

    def __init__(self, address, size):
        self.name, self.size, self.readonly, self.initialised = "out", size, False, False
        self.address = address


@pytest.fixture(scope="module")
def base():
    """The start of a large reserved address range."""
    space = mmap.mmap(-1, SPACE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    held = ctypes.c_char.from_buffer(space)
    yield ctypes.addressof(held)
    del held
    space.close()


def rows_of_out(base, steps):
    """Each row of out by (batch, row, head)."""
    return {
        (b, i, h): Placed(base + 2 * (b * steps["o_batch"] + i * steps["o_row"] + h * steps["o_head"]), 40)
        for b in range(CASE.batch)
        for i in range(CASE.seqlen_q)
        for h in range(CASE.nheads)
    }


def values_of(call, steps, base, blocks):
    """The fields of ``fa::ReferenceParams``: the forward kernel's, except for out."""
    inner = layout("FwdParams")
    given = dict(zip((s.name for s in inner.scalars), inner.unpack(call.kernarg()), strict=True))
    given |= {"out": base, **steps}
    return {"head_dim": CASE.head_dim, "blocks": blocks, **{f"fwd.{k}": v for k, v in given.items()}}


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("far", [None, "o_batch", "o_row", "o_head"])
@pytest.mark.parametrize("arch", ARCHS)
def test_out(core, device_code, disassembled, base, arch, far, blocks):
    name = f"fa_reference_{CASE.dtype}"
    code = device_code(arch) / f"{name}.hsaco"
    machine = load_machine(core, code, disassembled(code))
    call, steps = make_call(CASE), NEAR | ({far: FAR} if far else {})
    out = rows_of_out(base, steps)
    launch = Launch((blocks, CASE.nheads, CASE.batch), (machine.kernels[name].max_threads, 1, 1))
    kernarg = layout("ReferenceParams").pack(values_of(call, steps, base, blocks))
    memory = [*(each.memory for each in (call.q, call.k, call.v)), call.lse, *out.values()]
    result = machine.run(name, launch, kernarg, memory, Options())
    assert not result.error
    assert not result.findings, "\n".join(map(str, result.findings))
    largest = max(map(abs, call.v.values()))
    for (b, head, i), row in reference_rows(call, ""):
        for found, exact in zip(decode(out[b, i, head].read(), CASE.dtype), row.out, strict=True):
            near = tolerances.rounded_once_allowed(
                exact, CASE.dtype, magnitude=row.magnitude, terms=CASE.head_dim, largest=largest
            )
            assert abs(found - exact) <= near
