"""The kernels of latent attention as workloads: a workgroup whose rows are all used, with its keys."""

import random
import re
import struct

from wheel_builder.extras.perf.workloads import coded
from wheel_builder.extras.perf.workloads.ours import LABEL, PART, rows_of_wave
from wheel_builder.extras.perf.workloads.workload import Workload
from wheel_builder.machine_code.emulator.attention import NO_WINDOW, Descales, with_codes
from wheel_builder.machine_code.emulator.formats import encode
from wheel_builder.machine_code.emulator.machine import Kernel, Launch
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.tables.kinds import LATENT, answering, known_kinds

OPS = answering(known_kinds(), LATENT)
OP, CODED_OP, ROWS_OP = OPS["latent"], OPS["coded_latent"], OPS["packed_latent"]
NAME = re.compile(rf"fa_(?P<op>{OP}|{CODED_OP}|{ROWS_OP})_(?P<dtype>fp16|bf16)_d(?P<head_dim>\d+)$")
REST = 64  # elements of K beyond those of V
ROW_BYTES, GROUP = 656, 128  # of rows that hold their scales: codes of a scale
SHOWN = {OP: "", CODED_OP: coded.SHOWN, ROWS_OP: "rows"}  # in the names of figures


def has_latent(kernel_name: str) -> bool:
    return NAME.match(kernel_name) is not None


def op_of(kernel_name: str) -> str:
    """Of kernels that ``has_latent`` selects."""
    match = NAME.match(kernel_name)
    assert match is not None, "has_latent says so"
    return match["op"]


def decoding(kernel: Kernel, label: str = LABEL) -> Workload:
    """One query with ``PART`` keys. Its heads fill the rows of a workgroup.

    ``has_latent`` selects the kernels.
    """
    match = NAME.match(kernel.name)
    assert match is not None, "has_latent says so"
    dtype, head_dim, heads = match["dtype"], int(match["head_dim"]), rows_of_wave(kernel)
    draw = random.Random(0)  # noqa: S311  (test data, repeatable)

    def drawn(name: str, rows: int) -> Memory:
        values = [draw.gauss(0.0, 1.0) for _ in range(rows * head_dim)]
        return Memory.of(encode(values, dtype), name, readonly=True)

    op, width, row = match["op"], head_dim - REST, ROW_BYTES if match["op"] == ROWS_OP else head_dim
    q = drawn("q", heads)
    cache = {
        OP: lambda: drawn("kv_cache", PART),
        CODED_OP: lambda: _codes(draw, head_dim),
        ROWS_OP: lambda: _rows(draw, width),
    }[op]()
    out, lse = Memory.output(2 * heads * width, "out"), Memory.output(4 * heads, "lse")
    packed = layout("FwdParams").pack(
        {
            "q": q.address, "k": cache.address, "v": cache.address, "out": out.address, "lse": lse.address,
            "q_batch": heads * head_dim, "q_row": heads * head_dim, "q_head": head_dim,
            "k_batch": PART * row, "k_row": row, "k_head": row,
            "v_batch": PART * row, "v_row": row, "v_head": row,
            "o_batch": heads * width, "o_row": heads * width, "o_head": width,
            "lse_batch": heads, "lse_head": 1, "seqlen_q": 1, "seqlen_k": PART, "rows_q": 1, "rows_k": PART,
            "batch_k": 1, "splits": 1, "nheads": heads, "nheads_k": 1, "window_left": NO_WINDOW,
            "window_right": 0, "scale": head_dim**-0.5, "dropout_scale": 1.0,
        }
    )  # fmt: skip
    memories = [q, cache, out, lse]
    if op == CODED_OP:
        one = Descales(Memory.of(struct.pack("<f", coded.DESCALE), "kv_descale", readonly=True), (1, 0, 1))
        packed = with_codes(packed, coded.FORMAT, one, one)
        memories.append(one.memory)
    return Workload(
        label=label,
        kernel=kernel.name,
        op=op,
        dtype=dtype,
        head_dim=head_dim,
        launch=Launch((1, 1, 1), (kernel.max_threads, 1, 1)),
        arguments=(packed,),
        memory={memory.name: memory for memory in memories},
        flop=lambda _: 2 * heads * PART * (head_dim + width),
    )


def bytes_of(workload: Workload) -> int:
    """The keys of ``decoding``, whose first elements are the values."""
    of_row = {OP: 2 * workload.head_dim, CODED_OP: workload.head_dim, ROWS_OP: ROW_BYTES}
    return PART * of_row[workload.op]


def _codes(draw: random.Random, head_dim: int) -> Memory:
    codes = draw.choices(coded.finite_codes(), k=PART * head_dim)
    return Memory.of(bytes(codes), "kv_cache", readonly=True)


def _rows(draw: random.Random, width: int) -> Memory:
    """Codes of ``coded.FORMAT``, a scale for each ``GROUP`` of them, and rotated elements in bf16."""
    rows = []
    for _ in range(PART):
        scales = [coded.DESCALE * draw.uniform(0.5, 2) for _ in range(width // GROUP)]
        rotated = encode([draw.gauss(0.0, 1.0) for _ in range(REST)], "bf16")
        rows += [bytes(draw.choices(coded.finite_codes(), k=width)), struct.pack(f"<{len(scales)}f", *scales)]
        rows.append(rotated)
    return Memory.of(b"".join(rows), "kv_cache", readonly=True)
