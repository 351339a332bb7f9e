"""The copy of a cache of 8 bits in 16 bits as a workload: rows of keys of one head."""

import random
import re
import struct

from wheel_builder.extras.perf.workloads.coded import DESCALE, FORMAT, finite_codes
from wheel_builder.extras.perf.workloads.ours import LABEL, PART
from wheel_builder.extras.perf.workloads.workload import Workload
from wheel_builder.machine_code.emulator.formats import CODES
from wheel_builder.machine_code.emulator.machine import Kernel, Launch
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.tables.kinds import WIDEN, known_kinds

[OP] = (op for op, kind in known_kinds().items() if kind.call == WIDEN)
NAME = re.compile(rf"fa_{OP}_(?P<dtype>fp16|bf16)$")
HEAD_DIM = 128
WORKGROUPS = (1, 4, 8)  # at a time. Each has few loads in flight, and registers for many
BYTES = 3  # of an element: its code, and the copy


def widens(kernel_name: str) -> bool:
    return NAME.match(kernel_name) is not None


def widening(kernel: Kernel, label: str = LABEL) -> Workload:
    """One workgroup with ``PART`` keys. ``widens`` selects the kernels."""
    match = NAME.match(kernel.name)
    assert match is not None, "widens says so"
    draw = random.Random(0)  # noqa: S311  (test data, repeatable)
    codes = Memory.of(bytes(draw.choices(finite_codes(), k=PART * HEAD_DIM)), "codes", readonly=True)
    copy = Memory.output(2 * PART * HEAD_DIM, "copy")
    descale = Memory.of(struct.pack("<f", DESCALE), "descale", readonly=True)
    tensor = {"from": codes.address, "to": copy.address, "descale": descale.address}
    tensor |= {f"{name}_batch": PART * HEAD_DIM for name in ("from", "to")}
    tensor |= {f"{name}_{each}": HEAD_DIM for name in ("from", "to") for each in ("row", "head")}
    given = {f"tensors[0].{name}": value for name, value in tensor.items()}
    packed = layout("WidenParams").pack(
        {
            **given, "seqlen_k": PART, "nheads_k": 1, "head_dim": HEAD_DIM, "batch_cache": 1,
            "format": CODES.index(FORMAT), "blocks": 1, "vectors": 1,
        }
    )  # fmt: skip
    return Workload(
        label=label,
        kernel=kernel.name,
        op=OP,
        dtype=match["dtype"],
        head_dim=HEAD_DIM,
        launch=Launch((1, 1, 1), (kernel.max_threads, 1, 1)),
        arguments=(packed,),
        memory={memory.name: memory for memory in (codes, copy, descale)},
        flop=lambda _: 0,
    )


def bytes_of() -> int:
    """Read and written by ``widening``."""
    return BYTES * PART * HEAD_DIM
