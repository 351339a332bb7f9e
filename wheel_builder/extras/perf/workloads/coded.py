"""Decode over caches of 8 bits as a workload: ``ours.decoding`` with codes as keys and values."""

import math
import random
import re
import struct
from collections.abc import Sequence
from dataclasses import replace

from wheel_builder.extras.perf.workloads.ours import LABEL, PART
from wheel_builder.extras.perf.workloads.workload import Workload
from wheel_builder.machine_code.emulator.attention import Case, Descales, Tensor, make_call, with_codes
from wheel_builder.machine_code.emulator.formats import values_of_codes
from wheel_builder.machine_code.emulator.machine import Kernel, Launch
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.tables.kinds import FORWARD, answering, known_kinds

OP = answering(known_kinds(), FORWARD)["coded"]
NAME = re.compile(rf"fa_{OP}_(?P<dtype>fp16|bf16)_d(?P<head_dim>\d+)$")
SHOWN = "8-bit"  # beside the figures of decode
FORMAT = "e4m3fn"  # of vLLM's caches. Others take as many instructions, or fewer
DESCALE = 2.0**-5  # of a head


def has_coded(kernel_name: str) -> bool:
    return NAME.match(kernel_name) is not None


def finite_codes() -> Sequence[int]:
    return [code for code, value in enumerate(values_of_codes(FORMAT)) if math.isfinite(value)]


def decoding(kernel: Kernel, label: str = LABEL, *, keys: int = PART) -> Workload:
    """One query of a head with ``keys``. ``has_coded`` selects the kernels."""
    match = NAME.match(kernel.name)
    assert match is not None, "has_coded says so"
    case = Case(match["dtype"], int(match["head_dim"]), 1, keys)
    draw = random.Random(0)  # noqa: S311  (test data, repeatable)

    def drawn(name: str) -> Tensor:
        codes = bytes(draw.choices(finite_codes(), k=keys * case.head_dim))
        return Tensor(name, case, keys, 1, Memory.of(codes, name, readonly=True))

    call = replace(make_call(case), k=drawn("k"), v=drawn("v"))
    of = {
        name: Descales(Memory.of(struct.pack("<f", DESCALE), name, readonly=True), (1, 0, 1))
        for name in ("k_descale", "v_descale")
    }
    packed = with_codes(call.kernarg(), FORMAT, of["k_descale"], of["v_descale"])
    memories = (*call.memory, *(each.memory for each in of.values()))
    return Workload(
        label=label,
        kernel=kernel.name,
        op=OP,
        dtype=case.dtype,
        head_dim=case.head_dim,
        launch=Launch((1, 1, 1), (kernel.max_threads, 1, 1)),
        arguments=(packed,),
        memory={memory.name: memory for memory in memories},
        flop=lambda _: 2 * keys * 2 * case.head_dim,
    )


def bytes_of(workload: Workload) -> int:
    """The keys and values of ``decoding``."""
    return 2 * PART * workload.head_dim
