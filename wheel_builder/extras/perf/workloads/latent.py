"""The kernels of latent attention as workloads: a workgroup whose rows are all used, with its keys."""

import random
import re

from wheel_builder.extras.perf.workloads.ours import LABEL, PART, rows_of_wave
from wheel_builder.extras.perf.workloads.workload import Workload
from wheel_builder.machine_code.emulator.attention import NO_WINDOW
from wheel_builder.machine_code.emulator.formats import encode
from wheel_builder.machine_code.emulator.machine import Kernel, Launch
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.tables.kinds import LATENT, known_kinds

[OP] = (op for op, kind in known_kinds().items() if kind.call == LATENT)
NAME = re.compile(rf"fa_{OP}_(?P<dtype>fp16|bf16)_d(?P<head_dim>\d+)$")
REST = 64  # elements of K beyond those of V


def has_latent(kernel_name: str) -> bool:
    return NAME.match(kernel_name) is not None


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

    q, cache, width = drawn("q", heads), drawn("kv_cache", PART), head_dim - REST
    out, lse = Memory.output(2 * heads * width, "out"), Memory.output(4 * heads, "lse")
    whole = PART * head_dim
    packed = layout("FwdParams").pack(
        {
            "q": q.address, "k": cache.address, "v": cache.address, "out": out.address, "lse": lse.address,
            "q_batch": heads * head_dim, "q_row": heads * head_dim, "q_head": head_dim,
            "k_batch": whole, "k_row": head_dim, "k_head": head_dim,
            "v_batch": whole, "v_row": head_dim, "v_head": head_dim,
            "o_batch": heads * width, "o_row": heads * width, "o_head": width,
            "lse_batch": heads, "lse_head": 1, "seqlen_q": 1, "seqlen_k": PART, "rows_q": 1, "rows_k": PART,
            "batch_k": 1, "splits": 1, "nheads": heads, "nheads_k": 1, "window_left": NO_WINDOW,
            "window_right": 0, "scale": head_dim**-0.5, "dropout_scale": 1.0,
        }
    )  # fmt: skip
    return Workload(
        label=label,
        kernel=kernel.name,
        op=OP,
        dtype=dtype,
        head_dim=head_dim,
        launch=Launch((1, 1, 1), (kernel.max_threads, 1, 1)),
        arguments=(packed,),
        memory={memory.name: memory for memory in (q, cache, out, lse)},
        flop=lambda _: 2 * heads * PART * (head_dim + width),
    )


def bytes_of(workload: Workload) -> int:
    """The keys of ``decoding``, whose first elements are the values."""
    return PART * workload.head_dim * 2
