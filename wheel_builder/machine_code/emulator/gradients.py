"""The argument of this project's backward kernels."""

from collections.abc import Mapping

from wheel_builder.machine_code.emulator.attention import NO_WINDOW, Case, Grid, Order, Tensor
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout

SUM_ROWS = 32  # kSumRows


def sum_blocks(case: Case) -> int:
    """Blocks of a head's fp32 sums of dq."""
    return -(-case.seqlen_q // SUM_ROWS)


def gradient_arguments(
    case: Case, tensors: Mapping[str, Tensor], numbers: Mapping[str, Memory], order: Order, grid: Grid
) -> bytes:
    """``fa::BwdParams``: dense, one sequence. ``grid`` of the launch.

    ``tensors``: q, k, v, out, dout, dq, dk, dv. ``numbers``, in fp32: lse and delta (nheads, seqlen_q), and
    dq_sums (nheads, ``sum_blocks``, 32, head_dim).
    """
    fields = {
        f"{name}.{field}": value
        for name, each in tensors.items()
        for field, value in (
            ("data", each.memory.address), ("batch", each.batch), ("row", each.row), ("head", each.head),
        )
    }  # fmt: skip
    return layout("BwdParams").pack(
        {
            **fields, **{name: memory.address for name, memory in numbers.items()},
            **order.fields(grid), "dq_blocks": sum_blocks(case),
            "lse_batch": case.nheads * case.seqlen_q, "lse_head": case.seqlen_q,
            "seqlen_q": case.seqlen_q, "seqlen_k": case.seqlen_k, "rows_q": case.seqlen_q,
            "rows_k": case.seqlen_k, "nheads": case.nheads, "nheads_k": case.nheads_k,
            "head_dim": case.head_dim, "window_left": NO_WINDOW,
            "window_right": 0 if case.causal else NO_WINDOW, "scale": case.scale, "dropout_scale": 1.0,
        }
    )  # fmt: skip
